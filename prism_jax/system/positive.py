"""A check that descriptions of hardware share."""

from __future__ import annotations

from .._core.arrays import is_traced
from ..errors import Problem, SpecError


def check_positive(owner: str, **values: float) -> None:
    """Every value is finite and greater than 0; traced values are left out.

    Args:
        owner: whose values they are, for the message: "device h100-sxm".

    Raises:
        SpecError: the first one that is not.
    """
    for name, value in values.items():
        if not is_traced(value) and not 0 < value < float("inf"):
            raise SpecError.of(Problem(name, f"{value}, but it must be finite and greater than 0"), owner)

"""Parameter counts as their authors published them, of the models of `prism_jax/workload/models.toml`."""

from __future__ import annotations

from dataclasses import dataclass

from prism_jax.errors import SpecError
from prism_jax.workload.catalog import _entries

_SUFFIX = {"M": 10**6, "B": 10**9, "T": 10**12}


@dataclass(frozen=True)
class PublishedCount:
    """A parameter count as its source prints it.

    Attributes:
        text: as printed: digits alone are exact, a suffix means rounded ("145.6B").
        n_params: its value.
        half_ulp: half a unit of the last printed digit, 0 if exact: how far a correct count may be away.
        source: paper and table, or model card.
    """

    text: str
    n_params: float
    half_ulp: float
    source: str

    @property
    def exact(self) -> bool:
        """Whether the source prints every digit."""
        return self.half_ulp == 0.0

    def agrees_with(self, n_params: int) -> bool:
        """`n_params` prints as this text."""
        return abs(n_params - self.n_params) <= self.half_ulp


def published_params(name: str) -> PublishedCount:
    """The published parameter count of a preset model."""
    entry = _entries()[name]
    return parse_count(entry["published"], entry["source"])


def parse_count(text: str, source: str = "") -> PublishedCount:
    """A printed parameter count: "6738415616" is exact, "145.6B" is rounded to 0.1 billion.

    Raises:
        SpecError: not a number with an optional suffix M, B or T.
    """
    digits, scale = (text[:-1], _SUFFIX[text[-1]]) if text[-1:] in _SUFFIX else (text, 1)
    try:
        value = float(digits) if scale > 1 else int(digits)
    except ValueError:
        raise SpecError(f"{text!r} is not a parameter count. Write it like 6738415616 or 145.6B.") from None
    n_decimals = len(digits.partition(".")[2])
    return PublishedCount(text, value * scale, 0.5 * scale / 10**n_decimals if scale > 1 else 0.0, source)

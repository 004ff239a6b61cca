"""Assumption: a field that a row does not state, what it is taken for, and on what ground."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..record import StepRecord


@dataclass(frozen=True)
class Assumption:
    """One field.

    Attributes:
        field: of `StepRecord`, or `device`.
        value: what it is taken for.
        why: on what ground, in words.
    """

    field: str
    value: int | str
    why: str

    def __str__(self) -> str:
        return f"{self.field} {self.value} assumed: {self.why}"


def assuming(
    record: StepRecord, why: str, values: Mapping[str, int | str]
) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The record with these values, and the assumptions that they are."""
    changes: dict[str, Any] = dict(values)
    return replace(record, **changes), tuple(Assumption(field, value, why) for field, value in values.items())

"""A job file as plain data plus, for every field, where it was written.

A field is addressed by its path, a tuple of keys and list indices. Mistakes are reported as
`job.yaml:5:3 plan.micro_batchs: unknown field, did you mean micro_batch?`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.bounds import MOST_COUNT
from ..core.errors import FieldPath as Path, Mark, Mistake, dotted as dotted

MAX_FIELDS = 20_000  # a job has tens; more means aliases that multiply
MAX_DEPTH = 50


@dataclass(frozen=True)
class Document:
    """Plain data (mappings, lists, scalars) and where its fields stand.

    Attributes:
        name: the file, as the user wrote it.
        data: the top-level mapping.
        marks: path of a field -> where it was written: in the file, or in an option.
    """

    name: str
    data: dict[str, Any]
    marks: dict[Path, Mark] = field(default_factory=dict)

    def mark(self, path: Sequence[str | int]) -> Mark:
        """Mark of `path`, or of the innermost part of it that was written at all."""
        for end in range(len(path), 0, -1):
            if tuple(path[:end]) in self.marks:
                return self.marks[tuple(path[:end])]
        return Mark(self.name)

    def mistake(self, path: Sequence[str | int], text: str) -> Mistake:
        """Mistake in the field at `path`, and where that was written."""
        if path and path[-1] == "preset" and tuple(path) not in self.marks:  # written as the bare text of the section
            path = path[:-1]
        return Mistake(text, self.mark(path), tuple(path))


def short(value: object) -> str:
    """`value` for a message, cut to a readable length."""
    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = shortener.maxlong = 60
    return shortener.repr(value)


def is_too_long(value: object) -> bool:
    """Whether `value` is a whole number beyond 64 bits, which no field takes and which other code may not even print."""
    return type(value) is int and abs(value) > MOST_COUNT

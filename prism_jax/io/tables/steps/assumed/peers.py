"""What rows of one source have in common, for those of them that leave it blank."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ..record import StepRecord

FIELDS = ("seq_len", "n_gpus")


@dataclass(frozen=True)
class Peers:
    """Most frequent values, smallest of equals.

    Attributes:
        by_model: (field, source, model) -> value.
        by_source: (field, source) -> value.
    """

    by_model: dict[tuple[str, str, str], int]
    by_source: dict[tuple[str, str], int]

    def value(self, field: str, record: StepRecord) -> int | None:
        """That of rows of the same source and model, else of the same source; None if no row states it."""
        own = self.by_model.get((field, record.source, _bare(record.model_name)))
        return own or self.by_source.get((field, record.source))


def peers_of(records: Iterable[StepRecord]) -> Peers:
    """From all rows of a table."""
    by_model: defaultdict[tuple[str, str, str], Counter[int]] = defaultdict(Counter)
    by_source: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for record in records:
        for field in FIELDS:
            value = getattr(record, field)
            if value:
                by_model[field, record.source, _bare(record.model_name)][value] += 1
                by_source[field, record.source][value] += 1
    return Peers({k: _usual(v) for k, v in by_model.items()}, {k: _usual(v) for k, v in by_source.items()})


def _usual(counts: Counter[int]) -> int:
    return min(counts, key=lambda value: (-counts[value], value))


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())

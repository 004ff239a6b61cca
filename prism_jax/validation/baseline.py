"""The trivial prediction: a job reaches the utilisation that jobs of the other groups typically reach on such devices.

Typical is the median over sources of the median of their rows, so that no large source decides alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from .rows import RowResult


def with_baseline(rows: Sequence[RowResult], kinds: Sequence[str]) -> list[RowResult]:
    """Rows with `baseline_error`, where any row of another group, without a defect, has been measured.

    Args:
        kinds: of each row's device (its generation); where no row of another group has it, all devices stand in.
    """
    known = [(row, kind) for row, kind in zip(rows, kinds, strict=True) if row.mfu is not None and not row.defect]
    typical: dict[tuple[str, str], float | None] = {}
    done = []
    for row, kind in zip(rows, kinds, strict=True):
        if row.mfu is None:
            done.append(row)
            continue
        if (row.group, kind) not in typical:
            others = [(one, of) for one, of in known if one.group != row.group]
            alike = [one for one, of in others if of == kind]
            typical[row.group, kind] = _typical_mfu(alike or [one for one, _ in others])
        expected = typical[row.group, kind]
        done.append(replace(row, baseline_error=row.mfu / expected - 1.0) if expected else row)
    return done


def _typical_mfu(rows: Iterable[RowResult]) -> float | None:
    by_source = defaultdict(list)
    for row in rows:
        by_source[row.source].append(row.mfu)
    return median(median(found) for found in by_source.values()) if by_source else None

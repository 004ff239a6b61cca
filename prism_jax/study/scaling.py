"""Scaling: what each size makes of a job, beside the smallest one, and the size at which more GPUs stop paying.

marginal return of size n      d ln(tokens/s) / d ln n, from the size before
per-GPU change                 tokens/s/GPU over that of the smallest size, minus 1
stop size                      first size whose marginal return is below a threshold
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, nan

from .._core.content import ByContent
from .figures import Figures

THRESHOLD = 0.8


@dataclass(frozen=True, eq=False)
class SizeRow(ByContent):
    """One number of GPUs.

    Attributes:
        settings: field -> value of the best plan along the axes that vary.
        figures: None where no plan is possible; `problem` says why.
        per_gpu_change: of tokens/s/GPU from the smallest possible size.
        marginal_return: NaN at the smallest possible size.
        energy_change: of tokens per joule from the smallest possible size; NaN where power is not known.
    """

    n_devices: int
    settings: Mapping[str, str]
    figures: Figures | None
    problem: str
    per_gpu_change: float = nan
    marginal_return: float = nan
    energy_change: float = nan


def size_rows(
    sizes: Sequence[int], best: Sequence[tuple[Mapping[str, str], Figures | None, str]]
) -> tuple[SizeRow, ...]:
    """Rows of sizes in ascending order, each with its settings, figures and problem."""
    rows: list[SizeRow] = []
    first = before = None
    for n, (settings, own, problem) in zip(sizes, best, strict=True):
        if own is None:
            rows.append(SizeRow(n, settings, None, problem))
            continue
        first = first or own
        rows.append(
            SizeRow(
                n,
                settings,
                own,
                problem,
                own.tokens_per_s_per_gpu / first.tokens_per_s_per_gpu - 1.0,
                nan if before is None else _slope(before, own),
                first.joules_per_token / own.joules_per_token - 1.0,
            )
        )
        before = own
    return tuple(rows)


def stop_size(rows: Sequence[SizeRow], threshold: float = THRESHOLD) -> int | None:
    """First size whose marginal return is below `threshold`; None if there is none."""
    return next((row.n_devices for row in rows if row.marginal_return < threshold), None)


def smallest_meeting(rows: Sequence[SizeRow]) -> SizeRow | None:
    """Smallest size that meets the target more likely than not and fits into memory; None if none does."""
    return next((row for row in rows if row.figures and row.figures.target_prob >= 0.5 and row.figures.fits), None)


def _slope(before: Figures, own: Figures) -> float:
    return log(own.tokens_per_s / before.tokens_per_s) / log(own.n_devices / before.n_devices)

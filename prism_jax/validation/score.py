"""Errors of many rows in a few numbers: by source and overall, with and without rows that are known to be wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .rows import RowResult

LARGE, LOW = 8, 0.6  # rows of a source whose coverage says something; a share inside 90 % intervals that is far too low


@dataclass(frozen=True)
class Errors:
    """Relative errors of rows, absolute where the name says ape. None where there is no row."""

    n: int
    median_ape: float | None = None
    mape: float | None = None
    bias: float | None = None
    p90_ape: float | None = None


def errors_of(found: Sequence[float]) -> Errors:
    """Errors of rows in a few numbers."""
    if not len(found):
        return Errors(0)
    errors, size = np.array(found), np.abs(found)
    p90 = float(np.quantile(size, 0.9))
    return Errors(len(found), float(np.median(size)), float(size.mean()), float(errors.mean()), p90)


@dataclass(frozen=True)
class Score:
    """Errors of a group of rows: relative, absolute where the name says ape. None where there is no row.

    Attributes:
        n: rows that the other figures are over.
        n_unsupported: rows without a prediction.
        n_defect: rows with a prediction and a known defect.
        coverage_90: share of rows whose measured time lies in its 90 % interval.
    """

    n: int
    n_unsupported: int
    n_defect: int
    median_ape: float | None
    mape: float | None
    bias: float | None
    p90_ape: float | None
    coverage_90: float | None


@dataclass(frozen=True)
class SourceScore:
    """How sources fare, each counting once. None where there is no source.

    Attributes:
        n: sources with a row to score.
        mean_median_ape: mean over sources of the median absolute error of their rows.
        mean_coverage_90: mean over sources of the share of rows inside their interval.
        n_large, n_large_low: sources of `LARGE` rows or more, and those of them with less than `LOW` inside.
    """

    n: int
    mean_median_ape: float | None
    mean_coverage_90: float | None
    n_large: int
    n_large_low: int


@dataclass(frozen=True)
class Validation:
    """Outcome of all rows.

    Attributes:
        overall, by_source, by_model, sources: over rows without a known defect; rows without a prediction have no model.
        overall_with_defects: over all rows that have a prediction.
        overall_baseline: over the rows of `overall`, what the other groups' typical utilisation says; None where no group was
            left out.
        rows: in the order of the table.
    """

    overall: Score
    overall_with_defects: Score
    overall_baseline: Score | None
    by_source: dict[str, Score]
    by_model: dict[str, Score]
    sources: SourceScore
    rows: tuple[RowResult, ...]


def validation_of(rows: Sequence[RowResult]) -> Validation:
    """The outcome that these rows amount to."""
    has_baseline = any(row.baseline_error is not None for row in rows)
    by_source = _scores(rows, lambda row: row.source)
    return Validation(
        overall=score(rows),
        overall_with_defects=score(rows, with_defects=True),
        overall_baseline=score(rows, baseline=True) if has_baseline else None,
        by_source=by_source,
        by_model=_scores([row for row in rows if row.model], lambda row: row.model),
        sources=source_score(by_source.values()),
        rows=tuple(rows),
    )


def _scores(rows: Sequence[RowResult], name_of: Callable[[RowResult], str]) -> dict[str, Score]:
    """Figures over the rows of every name, in the order in which names appear."""
    groups: dict[str, list[RowResult]] = {}
    for row in rows:
        groups.setdefault(name_of(row), []).append(row)
    return {name: score(own) for name, own in groups.items()}


def source_score(scores: Iterable[Score]) -> SourceScore:
    """Figures over the scores of sources."""
    every = list(scores)
    medians = [one.median_ape for one in every if one.median_ape is not None]
    inside = [one.coverage_90 for one in every if one.coverage_90 is not None]
    large = [one for one in every if one.n >= LARGE and one.coverage_90 is not None]
    return SourceScore(
        n=len(medians),
        mean_median_ape=float(np.mean(medians)) if medians else None,
        mean_coverage_90=float(np.mean(inside)) if inside else None,
        n_large=len(large),
        n_large_low=sum((one.coverage_90 or 0.0) < LOW for one in large),
    )


def score(rows: Iterable[RowResult], *, with_defects: bool = False, baseline: bool = False) -> Score:
    """Figures over rows; `baseline`: of the baseline's errors instead, which has no interval."""
    every = list(rows)
    predicted = [row for row in every if row.error is not None]
    scored = [row for row in predicted if with_defects or not row.defect]
    found = [row.baseline_error if baseline else row.error for row in scored]
    errors = errors_of([error for error in found if error is not None])
    inside = [row.inside for row in scored if row.inside is not None and not baseline]
    return Score(
        n=errors.n,
        n_unsupported=len(every) - len(predicted),
        n_defect=sum(bool(row.defect) for row in predicted),
        median_ape=errors.median_ape,
        mape=errors.mape,
        bias=errors.bias,
        p90_ape=errors.p90_ape,
        coverage_90=float(np.mean(inside)) if inside else None,
    )

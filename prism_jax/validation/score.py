"""Scores predictions against measurements: errors of many rows in a few numbers, by source and overall, with and without defects.

Groups of rows that are left out together are a source, a device, a model, a framework, a number of devices. The trivial
prediction is that a job reaches the utilisation that jobs of the other groups typically reach on such devices.
Typical is the median over sources of the median of their rows, so that no large source decides alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np
from scipy.special import ndtr, ndtri

from ..calibration.evidence import CLASSES, class_of
from ..calibration.open_fields import Odds
from ..core.arrays import Floats
from ..core.errors import DataError
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base.workload import Workload


@dataclass(frozen=True)
class MeasuredRow:
    """One measured configuration.

    Attributes:
        id, source: of the row and of the publication or system it was measured on.
        measured_s: seconds per step; None where unknown.
        measured_range: shortest and longest step in seconds, where a source gives a range.
        unsupported: why model, cluster and plan are missing; empty if they are not.
        defect: what is known to be wrong with the row, in words; empty if nothing is.
        framework: training software, a name in `framework.FRAMEWORKS`; empty if unknown.
        open_plan: fields of the plan that nothing states, with the odds of what they may be; the plan holds the likeliest.
        assumed: what the row does not state and is taken for; empty for a row that states its job.
    """

    id: str
    source: str
    measured_s: float | None
    measured_range: tuple[float, float] | None = None
    model: Workload | None = None
    cluster: Cluster | None = None
    plan: ParallelPlan | None = None
    unsupported: str = ""
    defect: str = ""
    framework: str = ""
    open_plan: tuple[tuple[str, Odds], ...] = ()
    assumed: tuple[object, ...] = ()

    @property
    def job(self) -> tuple[Workload, Cluster, ParallelPlan]:
        """Model, cluster and plan of a supported row.

        Raises:
            DataError: the row is unsupported.
        """
        if self.model is None or self.cluster is None or self.plan is None:
            raise DataError(f"row {self.id} cannot be simulated: {self.unsupported}")
        return self.model, self.cluster, self.plan


@dataclass(frozen=True)
class RowResult:
    """One row's outcome; what follows `measured_s` is None or empty where the row is unsupported.

    Attributes:
        predicted_s: p50 of the predicted step, or the step without variability, seconds.
        error: predicted / measured - 1.
        low_s, high_s: bounds of the central 90% of what would be measured, seconds.
        inside: whether the measured time lies between them.
        measured_range, in_range: where the source gives a range, and whether the prediction lies in it.
        group: the group that was left out when the calibration of this row was fitted; empty if none was.
        device, model, framework: names.
        n_devices: of the job.
        mfu: model-FLOP utilisation that was measured, 0-1.
        baseline_error: the same as `error` of a prediction from the other groups' typical utilisation alone.
        parts_s: seconds of the noise-free step by cause; see `validation.costed.parts_of`.
        defect, unsupported: in words; empty if there is nothing to say.
        assumed: what the row does not state and was taken for, one text each.
        software: what it states of its kernels, field by field.
        reasons: why its interval is wider than where much is known, and by how much each of `evidence.REASONS` holds, 0-1; None
            where the calibration has no law of it.
        widened: factor by which what the calibration leaves open is wider for it.
        open_sd: log standard deviation of what the row leaves unsaid.
    """

    id: str
    source: str
    measured_s: float | None
    predicted_s: float | None = None
    error: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    inside: bool | None = None
    measured_range: tuple[float, float] | None = None
    in_range: bool | None = None
    group: str = ""
    device: str = ""
    model: str = ""
    framework: str = ""
    n_devices: int | None = None
    mfu: float | None = None
    baseline_error: float | None = None
    parts_s: Mapping[str, float] = field(default_factory=dict)
    defect: str = ""
    unsupported: str = ""
    assumed: tuple[str, ...] = ()
    software: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, float] | None = None
    widened: float = 1.0
    open_sd: float = 0.0

    @property
    def evidence(self) -> str:
        """Known, near or far; empty where no law says it."""
        return "" if self.reasons is None else class_of(self.reasons)

    @property
    def dominant(self) -> str:
        """Part that takes longest; empty if nothing was predicted."""
        return max(self.parts_s, key=lambda name: self.parts_s[name], default="")

    @property
    def reason(self) -> str:
        """Reason for the error in a few words: a defect, why there is no prediction, else the largest part."""
        if self.unsupported or self.defect:
            return self.unsupported or self.defect
        whole = sum(self.parts_s.values())
        return f"{self.dominant} {self.parts_s[self.dominant] / whole:.0%}" if whole else ""


GROUPS: dict[str, Callable[[MeasuredRow], str]] = {
    "source": lambda row: row.source,
    "gpu": lambda row: row.job[1].device.like or row.job[1].device.name,  # variants of a device are no other device
    "model": lambda row: row.job[0].name,
    "framework": lambda row: row.framework or "not stated",
    "scale": lambda row: f"{row.job[2].n_devices} devices",
}


def group_of(row: MeasuredRow, by: str) -> str:
    """Name of the group of a supported row; `by` is a key of `GROUPS`."""
    return GROUPS[by](row)


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


LARGE, LOW = 8, 0.6  # rows of a source whose coverage says something; a share inside 90% intervals that is far too low


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


OUTSIDE_PROB = 0.1  # of a time outside of its interval, on either side half of it


@dataclass(frozen=True)
class Sharpness:
    """Widths of intervals, and their cost: of step times' logarithms. None where there is no row.

    Attributes:
        width: median of high / low.
        interval_score: mean of the width plus 20 times what a time lies outside (Gneiting and Raftery, JASA 102, 2007).
        crps: mean of the continuous ranked probability score of the normal law with these bounds.
    """

    width: float | None = None
    interval_score: float | None = None
    crps: float | None = None


def sharpness_of(rows: Iterable[RowResult]) -> Sharpness:
    """Sharpness over rows with a measured time and an interval."""
    every = [(row.low_s, row.high_s, row.measured_s) for row in rows if row.low_s and row.high_s and row.measured_s]
    if not every:
        return Sharpness()
    low, high, at = np.log(np.array(every, dtype=float)).T
    return Sharpness(
        float(np.exp(np.median(high - low))), float(interval_scores(low, high, at).mean()), _crps(low, high, at)
    )


def interval_scores(low: Floats, high: Floats, at: Floats) -> Floats:
    """[row] width plus 20 times what lies outside of an interval of 90%."""
    return high - low + 2.0 / OUTSIDE_PROB * (np.maximum(low - at, 0.0) + np.maximum(at - high, 0.0))


def _crps(low: Floats, high: Floats, at: Floats) -> float:
    sd = np.maximum((high - low) / (-2.0 * ndtri(OUTSIDE_PROB / 2.0)), 1e-12)
    z = (at - (low + high) / 2.0) / sd
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    return float((sd * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi))).mean())


@dataclass(frozen=True)
class Score:
    """Errors of a group of rows: relative, absolute where the name says ape. None where there is no row.

    Attributes:
        n: rows that the other figures are over.
        n_unsupported: rows without a prediction.
        n_defect: rows with a prediction and a known defect.
        coverage_90: share of rows whose measured time lies in its 90% interval.
        sharpness: of these intervals.
    """

    n: int
    n_unsupported: int
    n_defect: int
    median_ape: float | None
    mape: float | None
    bias: float | None
    p90_ape: float | None
    coverage_90: float | None
    sharpness: Sharpness = Sharpness()


@dataclass(frozen=True)
class SourceScore:
    """Score of sources, each counting once. None where there is no source.

    Attributes:
        n: sources with a row to score.
        mean_median_ape: mean over sources of the median absolute error of their rows.
        mean_coverage_90: mean over sources of the share of rows inside their interval.
        n_large, n_large_low: sources of `LARGE` rows or more, and those of them with less than `LOW` inside.
        mean_interval_score: mean over sources of the mean interval score of their rows.
        width_follows_error: rank correlation over sources of the median width and the median absolute error.
    """

    n: int
    mean_median_ape: float | None
    mean_coverage_90: float | None
    n_large: int
    n_large_low: int
    mean_interval_score: float | None = None
    width_follows_error: float | None = None


@dataclass(frozen=True)
class ClassScore:
    """Rows that as much is known of, and their sources, each counting once."""

    rows: Score
    sources: SourceScore


@dataclass(frozen=True)
class Validation:
    """Outcome of all rows.

    Attributes:
        overall, by_source, by_model, sources: over rows without a known defect; rows without a prediction have no model.
        overall_with_defects: over all rows that have a prediction.
        overall_baseline: over the rows of `overall`, what the other groups' typical utilisation says; None where no group was
            left out.
        rows: in the order of the table.
        by_class: known, near, far: by the evidence near a row.
    """

    overall: Score
    overall_with_defects: Score
    overall_baseline: Score | None
    by_source: dict[str, Score]
    by_model: dict[str, Score]
    sources: SourceScore
    rows: tuple[RowResult, ...]
    by_class: dict[str, ClassScore]


def validation_of(rows: Sequence[RowResult]) -> Validation:
    """The outcome that these rows amount to."""
    has_baseline = any(row.baseline_error is not None for row in rows)
    by_source = _by_source(rows)
    by_class: dict[str, ClassScore] = {}
    for name in CLASSES:
        own = [row for row in rows if row.evidence == name]
        if any(not row.defect for row in own):
            by_class[name] = ClassScore(score(own), source_score(_by_source(own).values()))
    return Validation(
        overall=score(rows),
        overall_with_defects=score(rows, with_defects=True),
        overall_baseline=score(rows, baseline=True) if has_baseline else None,
        by_source=by_source,
        by_model=_scores([row for row in rows if row.model], lambda row: row.model),
        sources=source_score(by_source.values()),
        rows=tuple(rows),
        by_class=by_class,
    )


def _by_source(rows: Sequence[RowResult]) -> dict[str, Score]:
    return _scores(rows, lambda row: row.source)


def _scores(rows: Sequence[RowResult], name_of: Callable[[RowResult], str]) -> dict[str, Score]:
    """Figures over the rows of every name, in the order in which names appear."""
    groups: dict[str, list[RowResult]] = {}
    for row in rows:
        groups.setdefault(name_of(row), []).append(row)
    return {name: score(own) for name, own in groups.items()}


def source_score(scores: Iterable[Score]) -> SourceScore:
    """Figures over the scores of sources."""
    every = list(scores)
    large = [one for one in every if one.n >= LARGE and one.coverage_90 is not None]
    return SourceScore(
        n=sum(one.median_ape is not None for one in every),
        mean_median_ape=_mean([one.median_ape for one in every]),
        mean_coverage_90=_mean([one.coverage_90 for one in every]),
        n_large=len(large),
        n_large_low=sum((one.coverage_90 or 0.0) < LOW for one in large),
        mean_interval_score=_mean([one.sharpness.interval_score for one in every]),
        width_follows_error=_rank_correlation(
            [
                (one.sharpness.width, one.median_ape)
                for one in every
                if one.sharpness.width and one.median_ape is not None
            ]
        ),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's; None of fewer than three, or where one of both is always the same."""
    if len(pairs) < 3:
        return None
    sides = [np.searchsorted(np.sort(own), own, side) for own in np.array(pairs).T for side in ("left", "right")]
    ranks = np.array([sides[0] + sides[1], sides[2] + sides[3]])  # equal ones share theirs
    return float(np.corrcoef(ranks)[0, 1]) if (ranks.std(axis=1) > 0.0).all() else None


def score(rows: Iterable[RowResult], *, with_defects: bool = False, baseline: bool = False) -> Score:
    """Figures over rows; `baseline`: of the baseline's errors instead, which has no interval."""
    every = list(rows)
    predicted = [row for row in every if row.error is not None]
    scored = [row for row in predicted if with_defects or not row.defect]
    found = [row.baseline_error if baseline else row.error for row in scored]
    errors = errors_of([error for error in found if error is not None])
    inside = [] if baseline else [row.inside for row in scored]
    return Score(
        n=errors.n,
        n_unsupported=len(every) - len(predicted),
        n_defect=sum(bool(row.defect) for row in predicted),
        median_ape=errors.median_ape,
        mape=errors.mape,
        bias=errors.bias,
        p90_ape=errors.p90_ape,
        coverage_90=_mean(inside),
        sharpness=Sharpness() if baseline else sharpness_of(scored),
    )

"""Predicted against measured step times, row by row, by source and overall.

A row is a (model, cluster, plan) with a measured step time. The prediction is the typical step (p50) under the device's default
variability, or the step without any variability. Errors are relative: predicted / measured - 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import jax
import numpy as np

from .errors import PrismError
from .job import Job
from .plan import ParallelPlan
from .simulate.inputs import deterministic
from .simulate.predict import predict
from .simulate.program import lower
from .system.hardware import Cluster
from .variability.catalog import default_for, preset
from .workload.transformer import TransformerSpec

N_SAMPLES = 256  # the error of a p50 from these is below 0.05 %


class MeasuredRow(Protocol):
    """What validation needs of a row.

    Attributes:
        id, source: of the row and of the publication or system it was measured on.
        measured_s: step time in seconds, None where unknown.
        measured_range: shortest and longest step time in seconds, where a source gives a range.
        unsupported: why model, cluster and plan are missing; empty if they are not.
        job: model, cluster and plan.
    """

    @property
    def id(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def measured_s(self) -> float | None: ...
    @property
    def measured_range(self) -> tuple[float, float] | None: ...
    @property
    def unsupported(self) -> str: ...
    @property
    def job(self) -> tuple[TransformerSpec, Cluster, ParallelPlan]: ...


@dataclass(frozen=True)
class RowError:
    """One row's outcome; `predicted_s` and `error` are None where the row is unsupported."""

    id: str
    source: str
    measured_s: float | None
    predicted_s: float | None = None
    error: float | None = None
    measured_range: tuple[float, float] | None = None
    in_range: bool | None = None
    unsupported: str = ""


@dataclass(frozen=True)
class Score:
    """Errors of a group of rows: relative, absolute where the name says ape."""

    n: int
    n_unsupported: int
    mape: float | None
    median_ape: float | None
    bias: float | None
    p90_ape: float | None


@dataclass(frozen=True)
class Validation:
    """Outcome of all rows."""

    overall: Score
    by_source: dict[str, Score]
    rows: tuple[RowError, ...]


def validate_steps(
    rows: Sequence[MeasuredRow],
    *,
    deterministic_only: bool = False,
    seed: int = 0,
    progress: Callable[[int], None] = lambda done: None,
) -> Validation:
    """Predicts every supported row and scores it.

    Args:
        rows: measured rows.
        deterministic_only: leave variability out, so that the share of waiting for the slowest shows.
        seed: of the predictions.
        progress: called with the number of rows done.
    """
    results = []
    for done, row in enumerate(rows, start=1):
        results.append(_validate(row, deterministic_only, seed))
        progress(done)
    sources = dict.fromkeys(r.source for r in results)
    by_source = {name: score(r for r in results if r.source == name) for name in sources}
    return Validation(score(results), by_source, tuple(results))


def score(rows: Iterable[RowError]) -> Score:
    """Mean, median and 90th percentile of the absolute error, and the mean signed error (bias)."""
    every = list(rows)
    errors = np.array([r.error for r in every if r.error is not None])
    if errors.size == 0:
        return Score(0, len(every), None, None, None, None)
    absolute = np.abs(errors)
    return Score(
        n=errors.size,
        n_unsupported=len(every) - errors.size,
        mape=float(absolute.mean()),
        median_ape=float(np.median(absolute)),
        bias=float(errors.mean()),
        p90_ape=float(np.quantile(absolute, 0.9)),
    )


def _validate(row: MeasuredRow, deterministic_only: bool, seed: int) -> RowError:
    unsupported = row.unsupported or ("" if row.measured_s else "no measured time")
    if unsupported:
        return RowError(row.id, row.source, row.measured_s, unsupported=unsupported)
    try:
        predicted_s = _typical_s(row, deterministic_only, seed)
    except PrismError as error:
        return RowError(row.id, row.source, row.measured_s, unsupported=f"cannot be simulated: {error}")
    assert row.measured_s is not None
    span = row.measured_range
    return RowError(
        id=row.id,
        source=row.source,
        measured_s=row.measured_s,
        predicted_s=predicted_s,
        error=predicted_s / row.measured_s - 1.0,
        measured_range=span,
        in_range=None if span is None else span[0] <= predicted_s <= span[1],
    )


def _typical_s(row: MeasuredRow, deterministic_only: bool, seed: int) -> float:
    model, cluster, plan = row.job
    tree = preset(default_for(cluster.device))
    job = Job(model=model, cluster=cluster, plan=plan, variability=tree, name=row.id)
    if deterministic_only:
        return deterministic(lower(job, pad=True))
    return predict(job, key=jax.random.key(seed), n_samples=N_SAMPLES, pad=True).quantile(0.5)

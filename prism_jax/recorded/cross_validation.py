"""Predictions of recorded jobs, scored on steps that were not used for them, and compared with simpler predictions.

A split takes some recorded steps for fitting and keeps the others; it may also fit on some of the data-parallel replicas only
and predict the steps of the whole job. The error of a quantile compares like with like: the p95 of n measured steps with the
mean p95 of n drawn steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.errors import DataError
from ..trace.dependencies import durations
from ..trace.pipeline import dependencies
from ..trace.step_log import StepLog
from ..trace.trace import Trace
from .edits import with_micro_batches
from .prediction import LEVEL, TracePrediction, ks_distance, resampled
from .recorded_job import RecordedJob, fit_job
from .replay import replay, replay_program
from .report import HeldOutScore, MeasuredQuantiles, NaiveScore, Quantiles, SplitScore
from .unseen_steps import N_REFIT, agreement, match_moments, predict_job

MAX_DRAWN = 20_000_000  # durations of independent pools at a time: 80 MB


@dataclass(frozen=True)
class StepSplit:
    """Indices of recorded steps for fitting and for scoring, and of the replicas that are fitted on."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    replicas: NDArray[np.int64] | None


def fit_and_predict(
    recorded: Trace | StepLog,
    *,
    seed: int,
    n_draw: int,
    n_test: int,
    n_replica: int | None = None,
    n_micro_batch: int | None = None,
) -> tuple[TracePrediction, RecordedJob | None]:
    """Distribution of unrecorded steps from all that `recorded` holds, and the fitted job (None for a log, which has no ops).

    Args:
        recorded: trace or log.
        seed: same seed, same answer.
        n_draw: steps to draw, at least; several refits share them, each has at least `n_test`.
        n_test: steps that will be compared with.
        n_replica: data-parallel replicas; those of the job by default.
        n_micro_batch: per replica and step; as recorded by default.
    """
    n_draw = max(n_draw, N_REFIT * max(n_test, 2))
    if isinstance(recorded, StepLog):
        return _resampled(recorded, seed, n_draw), None
    job = fit_job(recorded)
    as_recorded = n_micro_batch is None and (n_replica or recorded.job.dp) == recorded.n_replica
    if as_recorded and not recorded.has_micro_batches and recorded.kernels is None:  # nothing can be recombined
        return _resampled(recorded, seed, n_draw), job
    if as_recorded:  # one set of draws serves both
        drawn_s = predict_job(job, key=seed, n_draw=n_draw, n_replica=n_replica).step_s
        job = replace(job, agreement=agreement(job, drawn_s))
        return TracePrediction(job.agreement.applied(drawn_s)), job
    job = match_moments(job)
    asked = job if n_micro_batch is None else with_micro_batches(job, n_micro_batch)
    return predict_job(asked, key=seed, n_draw=n_draw, n_replica=n_replica), job


def splits(
    recorded: Trace | StepLog, *, n_split: int, train_fraction: float, fit_replicas: int | None, seed: int
) -> Iterator[StepSplit]:
    """Random splits of the recorded steps; the same for the same seed.

    Raises:
        DataError: too few steps for the fraction, or more replicas than were recorded.
    """
    n_step = len(recorded.step_s)
    n_train = round(n_step * train_fraction)
    whole = train_fraction == 1.0
    if n_train < 2 or (not whole and n_step - n_train < 2):
        raise DataError(
            f"{recorded.source}: --train-fraction {train_fraction:g} leaves {n_train} of {n_step} recorded steps to fit on and "
            f"{n_step - n_train} to check with, but both take at least 2. Choose another, or 1 for no check."
        )
    n_replica = recorded.n_replica if isinstance(recorded, Trace) else 1
    if fit_replicas is not None and not 1 <= fit_replicas <= n_replica:
        raise DataError(
            f"{recorded.source}: --fit-replicas {fit_replicas}, but {n_replica} dp replicas were recorded. "
            f"Choose 1 to {n_replica}."
        )
    for index in range(n_split):
        rng = np.random.default_rng((seed, index))
        order = rng.permutation(n_step)
        train = np.sort(order[:n_train])
        replicas = np.sort(rng.permutation(n_replica)[:fit_replicas]) if fit_replicas else None
        yield StepSplit(train, train if whole else np.sort(order[n_train:]), replicas)


def score_split(
    recorded: Trace | StepLog, split: StepSplit, *, seed: int, n_draw: int
) -> tuple[SplitScore, TracePrediction]:
    """Fit on one part of `recorded`, predict, and compare with the other part."""
    step_s = recorded.step_s
    measured_s, n_test = step_s[split.test], len(split.test)
    known = recorded.choose(split.train)
    if split.replicas is not None and isinstance(known, Trace):
        known = known.choose(replicas=split.replicas)
    prediction, _ = fit_and_predict(known, seed=seed, n_draw=n_draw, n_test=n_test)
    measured = MeasuredQuantiles(*(float(np.quantile(measured_s, p)) for p in (0.5, 0.95)))
    predicted = Quantiles.of(lambda p: prediction.expected(p, n_test))
    low, high = prediction.expected_interval(0.95, n_test, LEVEL)
    reused, reused_s = _reused(known, split)
    naive = {reused: _naive(reused_s, measured_s)}
    if isinstance(known, Trace):
        naive["independent pools"] = _naive(independent_pools(known, seed=seed, n_draw=n_draw), measured_s)
    score = HeldOutScore(
        p95_covered=low <= measured.p95 <= high,
        p50_error=predicted.p50 / measured.p50 - 1.0,
        p95_error=predicted.p95 / measured.p95 - 1.0,
        ks_distance=ks_distance(prediction.step_s, measured_s),
        ks_floor=naive[reused].ks_distance,
        measured_s=measured,
        predicted_s=predicted,
        long_run_s=Quantiles.of(prediction.quantile),
        p95_interval_s=(low, high),
        naive=naive,
    )
    return SplitScore(len(split.train), n_test, score), prediction


def independent_pools(trace: Trace, *, seed: int, n_draw: int) -> Floats:
    """[draw] step times when every op is drawn from the pool of its type and stage, independently: the published way.

    Transfers are counted without waiting, host gaps are left out. Source: PRISM, arXiv 2510.15596.
    """
    needs = dependencies(trace)
    run_s = durations(trace, needs).run_s.astype(np.float32)
    program = replay_program(trace, needs, trace.job.dp)
    rng = np.random.default_rng((seed, 1))
    pool: dict[tuple[str, int], list[int]] = {}
    for index, op in enumerate(trace.ops):
        pool.setdefault((op.op_type, op.stage), []).append(index)
    n_block = -(-len(trace.ops) * trace.job.dp * n_draw // MAX_DRAWN)
    drawn = np.empty((len(trace.ops), trace.job.dp, -(-n_draw // n_block)), dtype=np.float32)
    step_s = []
    for _ in range(n_block):
        for ops in pool.values():
            drawn[ops] = rng.choice(run_s[ops].ravel(), size=(len(ops), *drawn.shape[1:]))
        step_s.append(replay(program, drawn))
    return np.concatenate(step_s)[:n_draw]


def slowest_recorded(trace: Trace) -> Floats:
    """[step] the recorded steps of the replicas that were recorded, as if they were the whole job."""
    job = fit_job(replace(trace, kernels=None))
    return replay(replay_program(trace, job.waits.needs), job.run_s, job.gap_s)


def _reused(known: Trace | StepLog, split: StepSplit) -> tuple[str, Floats]:
    """The recorded step times that were fitted on, and what to call them."""
    if isinstance(known, Trace) and split.replicas is not None:
        return f"slowest of {len(split.replicas)} replicas", slowest_recorded(known)
    return "recorded steps", known.step_s


def _naive(values_s: Floats, measured_s: Floats) -> NaiveScore:
    p95_error = float(np.quantile(values_s, 0.95) / np.quantile(measured_s, 0.95) - 1.0)
    return NaiveScore(p95_error, ks_distance(values_s, measured_s))


def _resampled(recorded: Trace | StepLog, seed: int, n_draw: int) -> TracePrediction:
    """Whole recorded steps, redrawn."""
    return TracePrediction(resampled(recorded.step_s, n_refit=N_REFIT, per_refit=-(-n_draw // N_REFIT), seed=seed))

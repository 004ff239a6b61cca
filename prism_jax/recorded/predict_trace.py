"""The distribution of the steps that were not recorded; what `prism-jax trace predict` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np

from ..core.arrays import Floats
from ..core.errors import DataError
from ..core.processes import Progress, silent
from ..core.use_case import Option, OptionGroup, noted, use_case
from ..trace.level_changes import levels_note
from ..trace.step_log import StepLog, without_warm_up
from ..trace.trace import Trace
from .prediction import LEVEL, TracePrediction, doubts, mean_of_splits
from .prediction_report import (
    CheckFacts,
    EvidenceFacts,
    Intervals3,
    PredictedCurves,
    PredictedJobChange,
    PredictedSteps,
    ShapeFacts,
    TracePredictionReport,
)
from .recorded_job import RecordedJob
from .report import QUANTILES, Quantiles, SplitScore
from .trace_facts import LogReading, Meta, StepDraws, TraceFile, recorded, trace_facts, with_kernels

FEWEST_TO_SPLIT = 4  # recorded steps, unless a share is asked for


@dataclass(frozen=True)
class Check(OptionGroup):
    """Check of a prediction on recorded steps that are held out.

    Attributes:
        train_fraction: share of the steps that the check fits on; by default 0.5, 1 with --fit-replicas or where steps are few.
        fit_replicas: check by fitting on this many random dp replicas and predicting the whole job.
        n_split: number of random splits for the check.
    """

    train_fraction: Annotated[float | None, Option(metavar="SHARE", least=0.01, most=1.0)] = None
    fit_replicas: Annotated[int | None, Option("--fit-replicas", "N", least=1)] = None
    n_split: Annotated[int, Option("--splits", "N", key="splits", least=1, most=1000)] = 1


@use_case()
def predict_trace(
    source: TraceFile,
    *,
    meta: Meta = None,
    check: Check = Check(),
    n_replica: Annotated[int | None, Option("--replicas", "N", key=None, least=1, most=100_000)] = None,
    n_micro_batch: Annotated[int | None, Option("--micro-batches", "N", key=None, least=1, most=10_000)] = None,
    kernels: Annotated[bool, Option("--kernels")] = False,
    draws: StepDraws = StepDraws(),
    log: LogReading = LogReading(),
    progress: Progress = silent,
) -> TracePredictionReport:
    """Predict the distribution of the steps that were not recorded, and check that on recorded ones.

    Args:
        source: a Trace or StepLog; or a file, folder or pattern that `open_trace` reads.
        meta: degrees of the job (YAML); by default the meta-*.yaml next to the trace.
        check: recorded steps on which the prediction is checked.
        n_replica: predict the job with another number of dp replicas.
        n_micro_batch: predict the job with another number of micro-batches per step.
        kernels: draw the kernels inside every operation anew, from all recorded ones of their kind (PyTorch profiles).
        draws: steps to draw, and first steps to leave out.
        log: facts that a log does not state itself: unit, meaning of columns, work of a step, pattern.
        progress: told what is being done.

    Raises:
        DataError, ConfigError: the recording cannot be read, or is a log where ops are needed.

    Example:
        >>> predict_trace("local_cluster", seed=1).steps_s.p95  # doctest: +SKIP
    """
    n_draw, seed = draws.n_draw, draws.seed
    opened = with_kernels(source, meta, log.stated) if kernels else recorded(source, meta, log.stated)
    found, n_left_out = without_warm_up(opened, draws.skip)
    asked = PredictedJobChange(n_replica, n_micro_batch)
    _check_asked(found, asked, check)
    fraction, more_notes = _fraction(found, check.train_fraction, check.fit_replicas)
    changed = levels_note(found.step_s, found.steps)
    more_notes += [changed] if changed else []
    from .cross_validation import fit_and_predict, splits  # here, so that mistakes above do not wait for them
    from .replay import replay_recorded

    checked = fraction < 1.0 or check.fit_replicas is not None
    chosen = splits(found, n_split=check.n_split, train_fraction=fraction, fit_replicas=check.fit_replicas, seed=seed)
    chosen = list(chosen) if checked else []  # before the work, since it may be refused
    progress(0.0, "drawing unrecorded steps")
    prediction, job = fit_and_predict(found, seed=seed, n_draw=n_draw, n_test=len(found.step_s), **asdict(asked))
    replay = None if job is None else replay_recorded(job.trace)
    if job is not None and job.kernels is not None:
        n_pool, n_run = job.kernels.n_pool, len(job.kernels.op)
        more_notes.append(f"kernels of {n_pool:,} kinds are drawn anew in {n_run:,} operations of a replica")
    scores, held_out = _scores(found, chosen, seed, n_draw, progress)
    return TracePredictionReport(
        info=trace_facts(found, n_left_out, more_notes),
        asked=asked,
        fit_replicas=check.fit_replicas,
        n_train=scores[0].n_train if scores else len(found.step_s),
        n_test=scores[0].n_test if scores else 0,
        steps_s=prediction_facts(prediction),
        record=noted(train_fraction=fraction),
        doubts=doubts(prediction, found.step_s, as_recorded=asked == PredictedJobChange()),
        evidence=None if job is None else evidence_facts(job),
        replay=replay,
        check=check_facts(scores) if scores else None,
        curves=PredictedCurves.of(prediction, found.step_s, held_out),
    )


def _scores(
    found: Trace | StepLog, chosen: Sequence[Any], seed: int, n_draw: int, progress: Progress
) -> tuple[list[Any], tuple[TracePrediction, Floats] | None]:
    """Scores of all splits, and the prediction of the first one with the steps that it did not see."""
    from .cross_validation import score_split

    scores, shown = [], None
    for index, split in enumerate(chosen):
        progress(0.0, f"checking, split {index + 1} of {len(chosen)}")
        score, drawn = score_split(found, split, seed=seed + index, n_draw=n_draw)
        scores.append(score)
        shown = shown or (drawn, found.step_s[split.test])
    return scores, shown


def _check_asked(found: Trace | StepLog, asked: PredictedJobChange, check: Check) -> None:
    if not isinstance(found, Trace) and (check.fit_replicas or asked.n_replica or asked.n_micro_batch):
        raise DataError(
            f"{found.source}: a log of step times without ops has no replicas and no micro-batches. "
            "Leave out --replicas, --micro-batches and --fit-replicas."
        )


def _fraction(found: Trace | StepLog, asked: float | None, fit_replicas: int | None) -> tuple[float, list[str]]:
    """Share of the steps that the check fits on, 1 for no check, and why there is none if nobody asked for that."""
    if asked is not None or fit_replicas:
        return (1.0 if asked is None else asked), []
    n_step = len(found.step_s)
    if n_step < FEWEST_TO_SPLIT:
        return 1.0, [
            f"{n_step} recorded {'step is' if n_step == 1 else 'steps are'} too few to hold some out for a check"
        ]
    return 0.5, []


LEVELS = ("position", "step", "rank", "micro_batch", "own")


def evidence_facts(job: RecordedJob) -> EvidenceFacts:
    """Facts about the evidence: which shared factors were found, and the waits that no rule states."""
    found = job.effects.evidence if job.effects else None
    return EvidenceFacts(
        variance_shares={} if found is None else {name: getattr(found, name) for name in LEVELS},
        p_values={} if found is None else {"step": found.step_p, "rank": found.rank_p},
        strata={} if found is None else {"replica": found.strata.replica, "step": found.strata.step},
        shape=ShapeFacts() if found is None else ShapeFacts(found.shape.name, dict(found.shape.scores)),
        has_micro_batches=job.trace.has_micro_batches,
        agreement=job.agreement,
        observed_waits=tuple(job.waits.found),
        unexplained_waits=int(job.waits.unexplained.sum()),
    )


def prediction_facts(prediction: TracePrediction) -> PredictedSteps:
    """The long-run distribution: quantiles, their interval from the few recorded steps, their Monte Carlo error."""
    return PredictedSteps(
        **{name: prediction.quantile(p) for name, p in QUANTILES.items()},
        interval=Intervals3(**{name: prediction.interval(p, LEVEL) for name, p in QUANTILES.items()}),
        mc_error=Quantiles.of(prediction.mc_error),
        level=LEVEL,
    )


def check_facts(scores: Sequence[SplitScore]) -> CheckFacts:
    """Averages over splits, and the splits themselves if there are several."""
    mean = mean_of_splits(scores)
    if len(scores) == 1:
        return CheckFacts(mean)
    errors = np.array([split.score.p95_error for split in scores])
    return CheckFacts(
        score=mean,
        p95_error_median=float(np.median(errors)),
        p95_abs_error_median=float(np.median(np.abs(errors))),
        ks_distance_median=float(np.median([split.score.ks_distance for split in scores])),
        splits=tuple(scores),
    )

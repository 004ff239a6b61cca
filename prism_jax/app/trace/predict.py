"""The distribution of the steps that were not recorded; what `prism-jax trace predict` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._typing import Floats
from ...errors import DataError
from ...io.write import run_record
from ...progress import Progress, silent
from ...recorded.doubts import doubts
from ...recorded.prediction import TracePrediction
from ...recorded.trace.step_log import StepLog
from ...recorded.trace.trace import Trace
from ...recorded.trace.warm_up import without_warm_up
from ...report.types.record import RunRecord
from ...report.types.trace import Asked, TracePredictionReport
from ...start_jax import keep_programs
from .facts import check_facts, evidence_facts, prediction_facts, trace_facts
from .source import TraceSource, named, recorded

if TYPE_CHECKING:
    from ...plot.figure import Figure

FEWEST_TO_SPLIT = 4  # recorded steps, unless a share is asked for


@dataclass(frozen=True)
class Check:
    """How to check a prediction on recorded steps that are held out.

    Attributes:
        train_fraction: share of the steps to fit on; None: half, all with `fit_replicas`, and all where steps are few.
        fit_replicas: fit on so many random dp replicas and predict the whole job.
        n_split: random splits.
    """

    train_fraction: float | None = None
    fit_replicas: int | None = None
    n_split: int = 1


@dataclass(frozen=True)
class TracePredictionRun:
    """A prediction with what its report is made of.

    Attributes:
        recorded_s: [step] recorded steps.
        held_out: prediction of the first split, and the steps that it did not see; None without a check.
    """

    report: TracePredictionReport
    prediction: TracePrediction
    recorded_s: Floats
    held_out: tuple[TracePrediction, Floats] | None

    def figure(self) -> Figure:
        """Recorded and predicted steps, and the check."""
        from ...plot import plot_trace_prediction  # here, so that predictions without a picture do not pay for it

        title = f"{self.report.info.title}: unrecorded steps"
        return plot_trace_prediction(
            self.prediction, self.recorded_s, title, self.held_out, self.report.asked.described()
        )


def predict_trace(source: TraceSource, **options: Any) -> TracePredictionReport:
    """The distribution of the steps that were not recorded; arguments as those of `run_trace_prediction`.

    Example:
        >>> predict_trace("local_cluster", seed=1).steps_s.p95  # doctest: +SKIP
    """
    return run_trace_prediction(source, **options).report


def run_trace_prediction(
    source: TraceSource,
    *,
    meta: str | Path | None = None,
    check: Check = Check(),
    n_replica: int | None = None,
    n_micro_batch: int | None = None,
    n_draw: int = 4000,
    skip: int | None = None,
    unit: str | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> TracePredictionRun:
    """Predicts the steps that were not recorded, and checks that on recorded ones.

    Args:
        source: a Trace or StepLog; or a file, folder or pattern that `open_trace` reads.
        meta: degrees of the job (YAML); by default the meta-*.yaml beside the trace.
        check: how to check the prediction.
        n_replica, n_micro_batch: of the job to predict, where it is not the recorded one.
        n_draw: steps to draw.
        skip: first steps to leave out; None: those that are warm-up (`recorded/trace/warm_up.py`).
        unit: of step times whose name does not say it: s, ms, us or ns.
        seed: same seed, same answer.
        progress: told what is being done.

    Raises:
        DataError, ConfigError: the recording cannot be read, or is a log where ops are needed.
    """
    found, n_left_out = without_warm_up(recorded(source, meta, unit), skip)
    asked = Asked(n_replica, n_micro_batch)
    _check_asked(found, asked, check)
    fraction, more_notes = _fraction(found, check.train_fraction, check.fit_replicas)
    from ...recorded.cross_validation import fit_and_predict, splits  # need JAX, which mistakes above do not wait for
    from ...recorded.replay_recorded import replay_recorded

    checked = fraction < 1.0 or check.fit_replicas is not None
    chosen = splits(found, n_split=check.n_split, train_fraction=fraction, fit_replicas=check.fit_replicas, seed=seed)
    chosen = list(chosen) if checked else []  # before the work, since it may be refused
    progress(0.0, "compiling and drawing unrecorded steps")
    keep_programs()
    prediction, job = fit_and_predict(found, seed=seed, n_draw=n_draw, n_test=len(found.step_s), **asdict(asked))
    replay = None if job is None else replay_recorded(job.trace)
    scores, held_out = _scores(found, chosen, seed, n_draw, progress)
    options = {
        "train_fraction": fraction,
        "fit_replicas": check.fit_replicas,
        "splits": check.n_split,
        "draws": n_draw,
        "skip": skip,
        "unit": unit,
    }
    report = TracePredictionReport(
        info=trace_facts(found, n_left_out, more_notes),
        asked=asked,
        fit_replicas=check.fit_replicas,
        n_train=scores[0].n_train if scores else len(found.step_s),
        n_test=scores[0].n_test if scores else 0,
        steps_s=prediction_facts(prediction),
        record=RunRecord(**run_record({"file": named(source), "meta": meta, **options}, seed)),
        doubts=doubts(prediction, found.step_s, as_recorded=asked == Asked()),
        evidence=None if job is None else evidence_facts(job),
        replay=replay,
        check=check_facts(scores) if scores else None,
    )
    return TracePredictionRun(report, prediction, found.step_s, held_out)


def _scores(
    found: Trace | StepLog, chosen: Sequence[Any], seed: int, n_draw: int, progress: Progress
) -> tuple[list[Any], tuple[TracePrediction, Floats] | None]:
    """Scores of all splits, and the prediction of the first one with the steps that it did not see."""
    from ...recorded.cross_validation import score_split

    scores, shown = [], None
    for index, split in enumerate(chosen):
        progress(0.0, f"checking, split {index + 1} of {len(chosen)}")
        score, drawn = score_split(found, split, seed=seed + index, n_draw=n_draw)
        scores.append(score)
        shown = shown or (drawn, found.step_s[split.test])
    return scores, shown


def _check_asked(found: Trace | StepLog, asked: Asked, check: Check) -> None:
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

"""`prism-jax trace predict FILE`: the distribution of the steps that were not recorded, checked on recorded steps held out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...options import Json, Plot, Seed
from ...result import leave
from .file import Meta, TraceFile, recorded

if TYPE_CHECKING:
    from ...._typing import Floats
    from ....recorded.prediction import TracePrediction
    from ....recorded.trace.step_log import StepLog
    from ....recorded.trace.trace import Trace

TrainFraction = Annotated[
    float | None,
    typer.Option(
        "--train-fraction",
        min=0.01,
        max=1.0,
        help="Share of the steps that the check fits on. [default: 0.5; 1 with --fit-replicas]",
    ),
]
FitReplicas = Annotated[
    int | None,
    typer.Option(
        "--fit-replicas", min=1, help="Check by fitting on so many random dp replicas and predicting the whole job."
    ),
]
Splits = Annotated[int, typer.Option("--splits", min=1, max=1000, help="Random splits to check with.")]
Replicas = Annotated[
    int | None,
    typer.Option("--replicas", min=1, max=100_000, help="Predict the job with another number of dp replicas."),
]
MicroBatches = Annotated[
    int | None,
    typer.Option(
        "--micro-batches", min=1, max=10_000, help="Predict the job with another number of micro-batches per step."
    ),
]
Draws = Annotated[int, typer.Option("--draws", min=100, max=1_000_000, help="Steps to draw.")]

FEWEST_TO_SPLIT = 4  # recorded steps, unless a share is asked for


def predict(
    file: TraceFile,
    meta: Meta = None,
    train_fraction: TrainFraction = None,
    fit_replicas: FitReplicas = None,
    splits: Splits = 1,
    replicas: Replicas = None,
    micro_batches: MicroBatches = None,
    draws: Draws = 4000,
    seed: Seed = 0,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Predict the distribution of the steps that were not recorded."""
    from ...pictures import check_picture

    check_picture(plot)
    found = recorded(file, meta)
    asked = {"n_replica": replicas, "n_micro_batch": micro_batches}
    _check_asked(found, asked, fit_replicas)
    fraction, note = _fraction(found, train_fraction, fit_replicas)
    from ....start_jax import start_jax

    start_jax()
    from ....io.write import run_record
    from ....report.trace_lines import predict_lines
    from ....report.trace_summary import info_dict

    info = info_dict(found)
    info["notes"] += note
    summary, prediction, held_out = _run(found, fraction, fit_replicas, splits, draws, seed, asked)
    options = {"train_fraction": fraction, "fit_replicas": fit_replicas, "splits": splits, "draws": draws}
    record = run_record({"file": file, "meta": meta, **options}, seed)

    def figure() -> Any:
        from ....plot import plot_trace_prediction

        name = info["job"]["name"] if "job" in info else info["name"]
        return plot_trace_prediction(prediction, found.step_s, f"{name}: unrecorded steps", held_out)

    leave({**info, **summary, **record}, lambda: predict_lines(info, summary), json, plot, figure)


def _check_asked(found: Trace | StepLog, asked: dict[str, int | None], fit_replicas: int | None) -> None:
    from ....errors import DataError
    from ....recorded.trace.trace import Trace

    if not isinstance(found, Trace) and (fit_replicas or any(asked.values())):
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


def _run(
    found: Trace | StepLog,
    fraction: float,
    fit_replicas: int | None,
    n_split: int,
    draws: int,
    seed: int,
    asked: dict[str, int | None],
) -> tuple[dict[str, Any], TracePrediction, tuple[TracePrediction, Floats] | None]:
    """The summary, the prediction from all steps, and that of the first split with the steps it did not see."""
    from ....recorded.cross_validation import fit_and_predict, score_split, splits
    from ....recorded.replay_recorded import replay_recorded
    from ....report.trace_summary import evidence_dict, prediction_dict, scores_dict
    from ...spinner import spinner

    checked = fraction < 1.0 or fit_replicas is not None
    chosen = splits(found, n_split=n_split, train_fraction=fraction, fit_replicas=fit_replicas, seed=seed)
    chosen = list(chosen) if checked else []  # before the work, since it may be refused
    with spinner("compiling and drawing unrecorded steps") as tell:
        prediction, job = fit_and_predict(found, seed=seed, n_draw=draws, n_test=len(found.step_s), **asked)
        summary: dict[str, Any] = {
            "asked": asked,
            "fit_replicas": fit_replicas,
            "n_train": len(found.step_s),
            "n_test": 0,
        }
        summary["steps_s"] = prediction_dict(prediction)
        if job is not None:
            summary["evidence"] = evidence_dict(job)
            summary["replay"] = replay_recorded(job.trace)
        scores, shown = [], None
        for index, split in enumerate(chosen):
            tell(f"checking, split {index + 1} of {n_split}")
            score, drawn = score_split(found, split, seed=seed + index, n_draw=draws)
            scores.append(score)
            shown = shown or (drawn, found.step_s[split.test])
    return {**summary, **(scores_dict(scores) if scores else {})}, prediction, shown

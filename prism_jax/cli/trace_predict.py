"""`prism-jax trace predict FILE`: the distribution of the steps that were not recorded, checked on recorded steps held out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json
from .output import print_json
from .talk import say
from .trace_file import Meta, Seed, TraceFile, recorded

if TYPE_CHECKING:
    from .._typing import Floats
    from ..trace.prediction import TracePrediction
    from ..trace.step_log import StepLog
    from ..trace.trace import Trace

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
Plot = Annotated[str | None, typer.Option("--plot", metavar="FILE", help="Write a picture (.png, .pdf, .svg).")]


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
    from .pictures import check_picture

    check_picture(plot)
    found = recorded(file, meta)
    fraction = train_fraction if train_fraction is not None else 1.0 if fit_replicas else 0.5
    from .start_jax import start_jax

    start_jax()
    from ..io.write import run_record
    from ..report.trace_lines import predict_lines
    from ..report.trace_summary import info_dict

    info = info_dict(found)
    summary, prediction, held_out = _run(
        found, fraction, fit_replicas, splits, draws, seed, {"n_replica": replicas, "n_micro_batch": micro_batches}
    )
    options = {"train_fraction": fraction, "fit_replicas": fit_replicas, "splits": splits, "draws": draws}
    if json:
        record = run_record({"file": file, "meta": meta, **options}, seed)
        print_json({**info, **summary, **record})
    else:
        print("\n".join(predict_lines(info, summary)))
    if plot is not None:
        from ..plot import plot_trace_prediction
        from .pictures import write_picture

        name = info["job"]["name"] if "job" in info else info["name"]
        write_picture(plot, plot_trace_prediction(prediction, found.step_s, f"{name}: unrecorded steps", held_out))
        say(f"wrote {plot}")


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
    from ..errors import DataError
    from ..held_out import fit_and_predict, score_split, splits
    from ..report.trace_summary import evidence_dict, prediction_dict, scores_dict
    from ..simulate.replay_recorded import replay_recorded
    from ..trace.trace import Trace

    if not isinstance(found, Trace) and (fit_replicas or any(asked.values())):
        raise DataError(
            f"{found.source}: a log of step times without ops has no replicas and no micro-batches. "
            "Leave out --replicas, --micro-batches and --fit-replicas."
        )
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
    if fraction == 1.0 and fit_replicas is None:
        return summary, prediction, None
    chosen = list(splits(found, n_split=n_split, train_fraction=fraction, fit_replicas=fit_replicas, seed=seed))
    scored = [score_split(found, split, seed=seed + index, n_draw=draws) for index, split in enumerate(chosen)]
    shown = scored[0][1], found.step_s[chosen[0].test]
    return {**summary, **scores_dict([score for score, _ in scored])}, prediction, shown

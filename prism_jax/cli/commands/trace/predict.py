"""`prism-jax trace predict FILE`: the distribution of the steps that were not recorded, checked on recorded steps held out."""

from __future__ import annotations

from typing import Annotated

import typer

from .... import app
from ...options import Json, Plot, Seed
from ...pictures import check_picture
from ...progress import working
from ...result import emit
from .options import Meta, Skip, TraceFile, Unit

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
        "--fit-replicas", min=1, help="Check by fitting on this many random dp replicas and predicting the whole job."
    ),
]
Splits = Annotated[int, typer.Option("--splits", min=1, max=1000, help="Number of random splits for the check.")]
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
Draws = Annotated[int, typer.Option("--draws", min=100, max=1_000_000, help="Number of steps to draw.")]


def predict(
    file: TraceFile,
    meta: Meta = None,
    train_fraction: TrainFraction = None,
    fit_replicas: FitReplicas = None,
    splits: Splits = 1,
    replicas: Replicas = None,
    micro_batches: MicroBatches = None,
    draws: Draws = 4000,
    skip: Skip = None,
    unit: Unit = None,
    seed: Seed = 0,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Predict the distribution of the steps that were not recorded."""
    check_picture(plot)
    with working() as progress:
        run = app.run_trace_prediction(
            file,
            meta=meta,
            check=app.Check(train_fraction, fit_replicas, splits),
            n_replica=replicas,
            n_micro_batch=micro_batches,
            n_draw=draws,
            skip=skip,
            unit=unit,
            seed=seed,
            progress=progress,
        )
    emit(run.report, json, plot=plot, figure=run.figure)

"""`prism-jax scale JOB --gpus 8:65536`: throughput, power, energy and money over the number of GPUs."""

from __future__ import annotations

from typing import Annotated

import typer

from .... import app
from ...objective_option import ObjectiveName
from ...options import Fits, Force, JobFile, Json, Overrides, Plot, Seed
from ...pictures import check_picture
from ...progress import working
from ...result import emit
from .sweep import Price, Resume, Samples, Workers

Sizes = Annotated[str, typer.Option("--gpus", metavar="N,N|N:N", help="Numbers of GPUs; 8:65536: all doublings.")]
ModeName = Annotated[
    str, typer.Option("--mode", metavar="NAME", help="weak: the batch grows with the GPUs; strong: it stays.")
]
Vary = Annotated[
    list[str] | None,
    typer.Option("--vary", metavar="FIELD=V1,V2", help="Each size takes the best of these; may be repeated."),
]
PowerLimit = Annotated[
    float | None, typer.Option("--power-limit", metavar="WATTS", help="Power limit of every GPU: clocks follow it.")
]
TargetText = Annotated[
    str | None, typer.Option("--target", metavar="BOUND", help='"p95<=8s", "tokens_per_s>=5e6": the smallest size.')
]
Threshold = Annotated[float, typer.Option("--threshold", help="Marginal return below which more GPUs do not pay.")]


def scale(
    job: JobFile,
    gpus: Sizes,
    mode: ModeName = "weak",
    overrides: Overrides = None,
    vary: Vary = None,
    objective: ObjectiveName = "mean",
    price: Price = None,
    power_limit: PowerLimit = None,
    target: TargetText = None,
    threshold: Threshold = 0.8,
    fit: Fits = None,
    force: Force = False,
    samples: Samples = None,
    seed: Seed = 0,
    resume: Resume = None,
    workers: Workers = 1,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Predict a job on several numbers of GPUs, and where more stops paying."""
    check_picture(plot)
    with working("predicting") as progress:
        run = app.run_scaling(
            job,
            gpus,
            mode=mode,
            overrides=overrides or (),
            vary=vary or (),
            objective=objective,
            price_per_gpu_hour=price,
            power_limit_watts=power_limit,
            target=target,
            threshold=threshold,
            fits=fit or (),
            force=force,
            n_samples=samples,
            seed=seed,
            resume=resume,
            n_workers=workers,
            progress=progress,
        )
    emit(run.report, json, plot=plot, figure=run.figure)

"""`prism-jax predict JOB`: the distribution of the step time, why, and a picture; exit code 1 if the job does not fit."""

from __future__ import annotations

from typing import Annotated

import typer

from ... import app
from ..memory_verdict import exit_unless_it_fits
from ..options import (
    Cluster,
    Fits,
    Force,
    IgnoreMemory,
    JobFile,
    Json,
    Kernels,
    Overrides,
    Plot,
    Seed,
    VariabilityName,
    with_presets,
)
from ..pictures import check_picture, check_timeline
from ..progress import working
from ..result import emit
from ..verbosity import say

Samples = Annotated[
    int | None,
    typer.Option("--samples", min=1, max=10_000_000, help="Replica columns (symmetric) or steps (brute-force)."),
]
Method = Annotated[
    str, typer.Option("--method", help="symmetric, or brute-force (simulates every GPU of every replica).")
]
Slowdowns = Annotated[
    str | None,
    typer.Option(
        "--slowdowns",
        metavar="CSV",
        help="Measured slowdowns: gpu or host (names are nodes in the order of the file), slowdown (1.05 = 5 % slower).",
    ),
]
Trace = Annotated[
    str | None,
    typer.Option(
        "--trace", metavar="FILE", help="Write a Perfetto timeline of a median and a p99 step (.json, .json.gz)."
    ),
]

Level = Annotated[
    bool,
    typer.Option(
        "--level/--no-level",
        help="Let a fit to the log of this very job (`fit steps`, one configuration) set the level of its step time.",
    ),
]


Price = Annotated[float | None, typer.Option("--price", help="Price per GPU-hour, for money per million tokens.")]
Fast = Annotated[
    bool, typer.Option("--fast", help="The distribution alone: no parts of the step, no owners of its tail.")
]


def predict(
    job: JobFile,
    overrides: Overrides = None,
    cluster: Cluster = None,
    variability: VariabilityName = None,
    kernels: Kernels = None,
    samples: Samples = None,
    seed: Seed = 0,
    method: Method = "symmetric",
    slowdowns: Slowdowns = None,
    fit: Fits = None,
    force: Force = False,
    level: Level = True,
    fast: Fast = False,
    price: Price = None,
    plot: Plot = None,
    trace: Trace = None,
    ignore_memory: IgnoreMemory = False,
    json: Json = False,
) -> None:
    """Predict the distribution of the step time of a job."""
    check_picture(plot)
    check_timeline("--trace", trace)
    with working() as progress:
        run = app.run_prediction(
            job,
            overrides=with_presets(overrides, cluster, variability, kernels),
            fits=fit or (),
            force=force,
            use_level=level,
            slowdowns=slowdowns,
            method=method,
            n_samples=samples,
            explained=not fast,
            price_per_gpu_hour=price,
            seed=seed,
            progress=progress,
        )

    def write_timeline() -> None:
        if trace is not None:
            run.write_timeline(trace)
            say(f"wrote {trace}")

    emit(run.report, json, plot=plot, figure=run.figure, files=write_timeline)
    needed = run.report.memory_bytes_per_gpu
    exit_unless_it_fits(run.report.fits, needed.headroom, needed.stage, ignore_memory)

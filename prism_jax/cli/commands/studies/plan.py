"""`prism-jax plan JOB --fleet 512xh200 --fleet 384xb200`: tokens, days and money of fleets, and which is better."""

from __future__ import annotations

from typing import Annotated

import typer

from .... import app
from ....study.fleets.prices import prices_of
from ...objective_option import ObjectiveName
from ...options import Fits, Force, JobFile, Json, Overrides, Seed
from ...progress import working
from ...result import emit
from ..job import ReliabilitySource, Tokens, count_of
from .compare import Prices
from .sweep import Samples

Fleets = Annotated[
    list[str],
    typer.Option("--fleet", metavar="COUNTxNAME", help="Devices or a preset cluster, 512xh200; may be repeated."),
]
Days = Annotated[float | None, typer.Option("--days", help="How long the fleet is there; 30 by default.")]
Space = Annotated[
    str | None, typer.Option("--space", metavar="FILE", help="Values per knob of the plan, as in `prism-jax search`.")
]


def plan(
    job: JobFile,
    fleet: Fleets,
    days: Days = None,
    tokens: Tokens = None,
    overrides: Overrides = None,
    space: Space = None,
    objective: ObjectiveName = "mean",
    price: Prices = None,
    reliability: ReliabilitySource = None,
    fit: Fits = None,
    force: Force = False,
    samples: Samples = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Plan capacity: what fleets make of a job in tokens, days and money."""
    with working("searching") as progress:
        report = app.run_capacity(
            job,
            fleet,
            days=days,
            tokens=None if tokens is None else count_of(tokens),
            overrides=overrides or (),
            space=space,
            objective=objective,
            price_per_gpu_hour=prices_of(price or ()),
            reliability=reliability,
            fits=fit or (),
            force=force,
            n_samples=samples,
            seed=seed,
            progress=progress,
        )
    emit(report, json)

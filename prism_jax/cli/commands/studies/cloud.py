"""`prism-jax cloud JOB`: which instances to rent, how many, spot or not, for a deadline and a budget."""

from __future__ import annotations

from typing import Annotated

import typer

from .... import app
from ...options import Fits, JobFile, Json, Overrides, Plot, Seed
from ...pictures import check_picture
from ...progress import working
from ...result import emit
from ..job import Interval, ReliabilitySource, Steps, Tokens, count_of, seconds_of

AUTO = "auto"

Deadline = Annotated[
    str | None, typer.Option("--deadline", metavar="TIME", help="From the start of the job: 10d, 200h.")
]
Prob = Annotated[float, typer.Option("--prob", help="With which deadline and budget are to be kept.")]
Budget = Annotated[float | None, typer.Option("--budget", metavar="USD", help="For the whole job.")]
Regions = Annotated[
    list[str] | None,
    typer.Option("--regions", metavar="NAMES", help="Regions, zones or clouds, with commas; may be repeated."),
]
Spot = Annotated[str, typer.Option("--spot", metavar="auto|never|only", help="Whether spot may be, or must be, used.")]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="on_demand, spot, spot_with_fallback, mixture; may be repeated; all by default.",
    ),
]
Catalogs = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog",
        metavar="FILE",
        help="CSV of instances and prices instead of what ships; may be repeated: later rows replace earlier ones.",
    ),
]
WithShipped = Annotated[
    bool, typer.Option("--with-shipped", help="The prices that ship count, too, where --catalog says nothing.")
]
Availability = Annotated[
    str,
    typer.Option("--availability", metavar="NAME|FIT", help="Law of spot capacity: a name, or a fit of revocations."),
]
Restart = Annotated[
    str | None,
    typer.Option("--restart", metavar="TIME", help="From nodes at hand to the load of the checkpoint, 5min."),
]
MostGpus = Annotated[
    int | None, typer.Option("--most-gpus", help="That may be rented; those of the job, at least 128, by default.")
]
Mix = Annotated[
    bool, typer.Option("--mix", help="Two kinds of instances may meet in the gradient exchange (on demand).")
]
Resume = Annotated[
    str | None,
    typer.Option("--resume", metavar="STATE", help="JSON of what a running job has done and spent: re-plan the rest."),
]
Worlds = Annotated[int, typer.Option("--worlds", help="Simulated worlds.")]


def cloud(
    job: JobFile,
    overrides: Overrides = None,
    steps: Steps = None,
    tokens: Tokens = None,
    deadline: Deadline = None,
    prob: Prob = 0.95,
    budget: Budget = None,
    regions: Regions = None,
    spot: Spot = AUTO,
    policy: Policies = None,
    catalog: Catalogs = None,
    with_shipped: WithShipped = False,
    availability: Availability = "weibull",
    reliability: ReliabilitySource = None,
    checkpoint: Interval = AUTO,
    restart: Restart = None,
    most_gpus: MostGpus = None,
    mix: Mix = False,
    resume: Resume = None,
    fit: Fits = None,
    worlds: Worlds = 10_000,
    seed: Seed = 0,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Choose which instances to rent, how many, and spot or not, for a deadline and a budget."""
    check_picture(plot)
    with working() as progress:
        run = app.run_cloud(
            job,
            n_steps=steps,
            n_tokens=None if tokens is None else count_of(tokens),
            overrides=overrides or (),
            deadline_s=seconds_of("--deadline", deadline),
            budget_usd=budget,
            prob=prob,
            regions=regions or (),
            spot=spot,
            policies=policy or (),
            catalogues=catalog or (),
            only_catalogues=not with_shipped,
            availability=availability,
            reliability=reliability,
            interval_s=None if checkpoint == AUTO else seconds_of("--checkpoint", checkpoint),
            restart_s=seconds_of("--restart", restart),
            most_gpus=most_gpus,
            mix=mix,
            resume=resume,
            fits=fit or (),
            n_worlds=worlds,
            seed=seed,
            progress=progress,
        )
    emit(run.report, json, plot=plot, figure=run.figure)

"""`prism-jax compare A B [C ...]`: jobs on the same draws, and how probable it is that one beats another."""

from __future__ import annotations

from typing import Annotated

import typer

from .... import app
from ....study.fleets.prices import prices_of
from ...objective_option import ObjectiveName
from ...options import Fits, Force, Json, Overrides, Plot, Seed
from ...output import print_lines
from ...pictures import check_picture
from ...progress import working
from ...result import emit
from .sweep import Markdown, Samples

Jobs = Annotated[
    list[str],
    typer.Argument(metavar="JOB...", help="YAML or TOML files, or names of shipped jobs (`prism-jax show examples`)."),
]
Prices = Annotated[
    list[str] | None,
    typer.Option(
        "--price", metavar="[DEVICE=]PRICE", help="Price per GPU-hour, of all or of one device; may be repeated."
    ),
]


def compare(
    jobs: Jobs,
    overrides: Overrides = None,
    objective: ObjectiveName = "p95",
    price: Prices = None,
    fit: Fits = None,
    force: Force = False,
    samples: Samples = None,
    seed: Seed = 0,
    plot: Plot = None,
    markdown: Markdown = False,
    json: Json = False,
) -> None:
    """Compare jobs: times, rates and money, and the probability that one beats another."""
    check_picture(plot)
    with working("predicting") as progress:
        run = app.run_comparison(
            jobs,
            overrides=overrides or (),
            objective=objective,
            price_per_gpu_hour=prices_of(price or ()),
            fits=fit or (),
            force=force,
            n_samples=samples,
            seed=seed,
            progress=progress,
        )

    def print_markdown() -> None:
        from ....report.text.studies.comparison import markdown as tables

        print_lines(tables(run.report))

    emit(run.report, json, text=print_markdown if markdown else None, plot=plot, figure=run.figure)

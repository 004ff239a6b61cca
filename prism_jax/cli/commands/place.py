"""`prism-jax place JOB --slowdowns nodes.csv`: which measured node sits where, and what that is worth."""

from __future__ import annotations

from typing import Annotated

import typer

from ... import app
from ..objective_option import ObjectiveName
from ..options import JobFile, Json, Overrides, Plot, Seed
from ..pictures import check_picture
from ..progress import working
from ..result import emit

Slowdowns = Annotated[
    str,
    typer.Option(
        "--slowdowns",
        metavar="CSV",
        help="Measured slowdowns of every node: node or gpu, slowdown (1.05 = 5 % slower) or gemm, attention, memory.",
    ),
]
Spares = Annotated[
    int,
    typer.Option(
        "--spares", min=0, help="Number of nodes to leave out; the table must list that many more than the job needs."
    ),
]
Splits = Annotated[
    bool,
    typer.Option(
        "--splits", help="Also choose layers per stage and micro-batches per replica, uneven where that is faster."
    ),
]


def place(
    job: JobFile,
    slowdowns: Slowdowns,
    overrides: Overrides = None,
    objective: ObjectiveName = "p95",
    spares: Spares = 0,
    splits: Splits = False,
    seed: Seed = 0,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Place measured nodes so that the tail of the step time is smallest."""
    check_picture(plot)
    with working() as progress:
        run = app.run_placement(
            job,
            slowdowns,
            overrides=overrides or (),
            objective=objective,
            spares=spares,
            splits=splits,
            seed=seed,
            progress=progress,
        )
    emit(run.report, json, plot=plot, figure=run.figure)

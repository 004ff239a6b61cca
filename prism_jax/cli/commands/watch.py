"""`prism-jax watch LOG`: slow phases of a step log, and whether to act."""

from __future__ import annotations

from typing import Annotated

import typer

from ... import app
from ...errors import UnitError
from ...units import parse
from ..options import Json, Plot
from ..pictures import check_picture
from ..progress import working
from ..result import emit
from .trace.options import Meta, Skip, TraceFile, Unit

RestartCost = Annotated[
    str,
    typer.Option(
        "--restart-cost",
        metavar="TIME",
        help="What a restart takes, from the last step before it to the first after it.",
    ),
]
Smallest = Annotated[
    float, typer.Option("--smallest", metavar="SHARE", help="Smallest change to look for, a share of the step.")
]
Learn = Annotated[
    int, typer.Option("--learn", metavar="N", help="First steps, from which the usual time and its spread are learnt.")
]
Remaining = Annotated[
    int | None,
    typer.Option("--remaining", metavar="N", help="Steps to come: tell how long they take (p5, p50, p95)."),
]


def watch(
    file: TraceFile,
    meta: Meta = None,
    restart_cost: RestartCost = "10min",
    smallest: Smallest = 0.03,
    learn: Learn = 20,
    skip: Skip = None,
    unit: Unit = None,
    remaining: Remaining = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Find slow phases in a step log: onset, size, rank, whether to act or to wait; and what is left to run."""
    check_picture(plot)
    try:
        restart_cost_s = parse(restart_cost, "time")
    except UnitError as error:
        raise UnitError(f"--restart-cost: {error}") from None
    with working():
        run = app.run_watch(
            file,
            meta=meta,
            restart_cost_s=restart_cost_s,
            smallest=smallest,
            n_learn=learn,
            skip=skip,
            unit=unit,
            remaining=remaining,
        )
    emit(run.report, json, plot=plot, figure=run.figure)

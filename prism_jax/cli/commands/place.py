"""`prism-jax place JOB --slowdowns nodes.csv`: which measured node sits where, and what that is worth."""

from __future__ import annotations

from typing import Annotated

import typer

from ... import app
from ..._core.files import check_target
from ...errors import DataError
from ..objective_option import ObjectiveName
from ..options import JobFile, Json, Overrides, Plot, Seed
from ..pictures import check_picture
from ..progress import working
from ..result import emit
from ..verbosity import say

Slowdowns = Annotated[
    str,
    typer.Option(
        "--slowdowns",
        metavar="CSV",
        help="Measured slowdowns of every node: host (a name or a number), with gpu or without; slowdown (1.05 = 5 % slower) "
        "or gemm, attention, memory.",
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

Hostfile = Annotated[
    str | None,
    typer.Option("--hostfile", metavar="FILE", help="Write the hosts in the order of ranks, for mpirun or DeepSpeed."),
]
Rankfile = Annotated[
    str | None, typer.Option("--rankfile", metavar="FILE", help="Write the host of every rank, for Open MPI.")
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
    hostfile: Hostfile = None,
    rankfile: Rankfile = None,
    json: Json = False,
) -> None:
    """Place measured nodes so that the tail of the step time is smallest."""
    check_picture(plot)
    wanted = [path for path in (hostfile, rankfile) if path is not None]
    for path in wanted:
        check_target(path)
    if len(wanted) > 1 and wanted[0] == wanted[1]:
        raise DataError(f"--hostfile and --rankfile: both are {hostfile}. Name two files.")
    with working() as progress:
        run = app.run_placement(
            job,
            slowdowns,
            overrides=overrides or (),
            objective=objective,
            spares=spares,
            splits=splits,
            named=bool(wanted),
            seed=seed,
            progress=progress,
        )

    def write() -> None:
        for path, writes in ((hostfile, run.write_hostfile), (rankfile, run.write_rankfile)):
            if path is not None:
                writes(path)
                say(f"wrote {path}")

    emit(run.report, json, plot=plot, figure=run.figure, files=write)

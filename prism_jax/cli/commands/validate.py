"""`prism-jax validate steps FILE` and `prism-jax validate memory FILE`: predictions against measurements."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ... import app
from ...report.text.memory_validation import table
from ...report.text.steps_validation import n_unlisted, tables
from ..options import Json, Plot, Seed
from ..output import print_table
from ..pictures import check_picture
from ..progress import counting
from ..result import emit
from ..verbosity import say, with_verbosity

validate_app = typer.Typer(name="validate", help="Compare predictions with measurements.", no_args_is_help=True)

StepsTables = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="CSV of measured runs: columns step_time_s and job (a job file) or fields such as plan.tp (docs/job_table.md); "
        "also as .gz.",
    ),
]
LeaveOut = Annotated[
    str | None,
    typer.Option(
        "--leave-out",
        metavar="source|gpu|model|framework|scale",
        help="Score blindly: predict the rows of every such group by a calibration fitted to the other rows.",
    ),
]
Fit = Annotated[
    str | None, typer.Option("--fit", metavar="NC", help="Predict with a calibration saved by `prism-jax calibrate`.")
]
Deterministic = Annotated[bool, typer.Option("--deterministic", help="Leave variability out of the prediction.")]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, max=256, help="Processes that predict; all processors if not given.", show_default=False
    ),
]
MemoryTable = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="CSV of jobs as for `validate steps`, with columns fits (true or false) or peak_memory_bytes; also as .gz.",
    ),
]


@validate_app.command("steps")
@with_verbosity
def steps(
    files: StepsTables,
    leave_out: LeaveOut = None,
    fit: Fit = None,
    deterministic: Deterministic = False,
    seed: Seed = 0,
    workers: Workers = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Turn rows into jobs, predict their typical step (p50), and print the error per row, by source and overall."""
    check_picture(plot)
    with counting() as progress:
        run = app.run_steps_validation(
            *files,
            leave_out=leave_out,
            fit=fit,
            deterministic=deterministic,
            seed=seed,
            n_workers=workers or os.cpu_count() or 1,
            progress=progress,
        )
    report = run.report
    note = app.shipped_rows_note(report)
    if note:
        say(note)

    def print_tables() -> None:
        for each in tables(report):
            print_table(each)

    emit(report, json, text=print_tables, plot=plot, figure=run.figure)
    if not json and n_unlisted(report):
        say(f"{n_unlisted(report)} more rows; --json has them all")


@validate_app.command("memory")
@with_verbosity
def memory(file: MemoryTable, json: Json = False) -> None:
    """Predict which layouts run out of memory and how much the others need, and compare with what was measured."""
    report = app.validate_memory(file)
    emit(report, json, text=lambda: print_table(table(report)))

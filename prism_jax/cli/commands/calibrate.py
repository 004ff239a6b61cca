"""`prism-jax calibrate [RUNS] [--log JOB=LOG]`: the shipped calibration updated by measured runs of one's own cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from ... import app
from ...errors import DataError
from ..options import Json, Seed
from ..progress import working
from ..result import emit
from ..verbosity import say
from .trace.options import Skip, Unit

Runs = Annotated[
    str | None,
    typer.Argument(
        metavar="RUNS",
        help="CSV of measured runs: columns step_time_s and job (a job file) or fields such as plan.tp (docs/job_table.md).",
    ),
]
Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="JOB=LOG",
        help="A job file and its training log (formats: `prism-jax show traces`); may be repeated.",
    ),
]
Out = Annotated[
    str | None,
    typer.Option("--out", "-o", metavar="FILE", help="Save the calibration (.npz); `predict --fit` uses it."),
]
Framework = Annotated[
    str, typer.Option("--framework", metavar="NAME", help="Training framework of the runs that do not specify one.")
]
Suggest = Annotated[
    int | None,
    typer.Option(
        "--suggest",
        min=1,
        max=100,
        metavar="N",
        help="Only list the N jobs of the table to measure first; needs no measured times.",
    ),
]


def calibrate(
    runs: Runs = None,
    log: Log = None,
    skip: Skip = None,
    unit: Unit = None,
    out: Out = None,
    framework: Framework = "",
    suggest: Suggest = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Calibrate the cost model with a few measured runs, and show how the error falls with their number."""
    if suggest is not None:
        if runs is None:
            raise DataError("--suggest: name the table of jobs: prism-jax calibrate jobs.csv --suggest 3")
        if out is not None or framework or log:
            raise DataError(
                "--suggest: can be combined with --json only, since nothing is fitted. Remove the other options."
            )
        with working():
            emit(app.suggest_runs(runs, suggest), json)
        return
    with working() as progress:
        run = app.run_calibration(
            runs,
            logs=[_job_log(text) for text in log or []],
            skip=skip,
            unit=unit,
            framework=framework,
            out=out,
            seed=seed,
            progress=progress,
        )
    emit(run.report, json)
    if run.kept is not None:
        say(f"wrote {run.kept}")


def _job_log(text: str) -> app.JobLog:
    job, equals, log = text.partition("=")
    if not (equals and job.strip() and log.strip()):
        raise DataError(f"--log {text}: write JOB=LOG, such as --log job.yaml=train.log")
    return app.JobLog(job.strip(), log.strip())

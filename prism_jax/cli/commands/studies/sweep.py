"""`prism-jax sweep JOB`: a grid of jobs, each predicted, compared with the best."""

from __future__ import annotations

from typing import Annotated

import typer

from .... import app
from ...._core.files import check_target
from ....io.write import write_text
from ...objective_option import ObjectiveName
from ...options import Fits, Force, JobFile, Json, Plot, Seed
from ...output import print_lines
from ...pictures import check_picture
from ...progress import working
from ...result import emit
from ...verbosity import say
from ..predict import Price

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="FIELD=V1,V2", help="Values of one field of the job, e.g. plan.tp=1,2,4; may be repeated."
    ),
]
Sizes = Annotated[
    str | None,
    typer.Option("--gpus", metavar="N,N|N:N", help="Numbers of GPUs; 8:1024: all doublings. dp fills the cluster."),
]
Samples = Annotated[
    int | None, typer.Option("--samples", min=64, max=1 << 20, help="Replica columns per job; 2048 by default.")
]
Resume = Annotated[
    str | None, typer.Option("--resume", metavar="FILE", help="Checkpoint the study to FILE and resume from it.")
]
Workers = Annotated[int, typer.Option("--workers", min=1, max=256, help="Processes; the table is the same.")]
Csv = Annotated[str | None, typer.Option("--csv", metavar="FILE", help="Write the table with all figures to FILE.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")]


def sweep(
    job: JobFile,
    settings: Settings = None,
    gpus: Sizes = None,
    objective: ObjectiveName = "p95",
    price: Price = None,
    fit: Fits = None,
    force: Force = False,
    samples: Samples = None,
    seed: Seed = 0,
    resume: Resume = None,
    workers: Workers = 1,
    csv: Csv = None,
    plot: Plot = None,
    markdown: Markdown = False,
    json: Json = False,
) -> None:
    """Predict a grid of jobs and compare them."""
    check_picture(plot)
    if csv:
        check_target(csv)
    with working("predicting") as progress:
        run = app.run_sweep(
            job,
            settings or (),
            gpus=gpus,
            objective=objective,
            price_per_gpu_hour=price,
            fits=fit or (),
            force=force,
            n_samples=samples,
            seed=seed,
            resume=resume,
            n_workers=workers,
            progress=progress,
        )

    def write_table() -> None:
        if csv:
            write_text(csv, run.table.to_csv())
            say(f"wrote {csv}")

    def print_markdown() -> None:
        from ....report.text.studies.sweep import markdown as table

        print_lines(table(run.report))

    emit(run.report, json, text=print_markdown if markdown else None, plot=plot, figure=run.figure, files=write_table)

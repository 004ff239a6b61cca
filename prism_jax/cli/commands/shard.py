"""`prism-jax shard JOB`: which embedding table goes where, and what that is worth."""

from __future__ import annotations

from typing import Annotated

import typer

from ... import app
from ..._core.files import check_target
from ..objective_option import ObjectiveName
from ..options import JobFile, Json, Overrides, Plot, Seed
from ..pictures import check_picture
from ..progress import working
from ..result import emit
from ..verbosity import say

Spread = Annotated[
    float | None,
    typer.Option(
        "--spread",
        metavar="SHARE",
        help="Standard deviation over mean of the look-ups into a table from step to step; by default what the tables state.",
    ),
]
Whole = Annotated[
    bool, typer.Option("--whole", help="Keep tables whole: no parts by rows or columns, and no copies on every GPU.")
]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the job with the chosen assignment to FILE, as YAML."),
]


def shard(
    job: JobFile,
    overrides: Overrides = None,
    objective: ObjectiveName = "p95",
    spread: Spread = None,
    whole: Whole = False,
    seed: Seed = 0,
    output: Output = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Choose which embedding table goes where so that the step is shortest."""
    check_picture(plot)
    if output:
        check_target(output)
    with working() as progress:
        run = app.run_sharding(
            job,
            overrides=overrides or (),
            objective=objective,
            spread=spread,
            whole=whole,
            seed=seed,
            progress=progress,
        )

    def write() -> None:
        if output:
            run.write_job(output)
            say(f"wrote {output}")

    emit(run.report, json, plot=plot, figure=run.figure, files=write)

"""`prism-jax search JOB`: the parallel plan with the smallest tail, how sure that is, and what it gains."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ... import app
from ..._core.files import check_target
from ...errors import DataError
from ..objective_option import ObjectiveName
from ..options import Cluster, Fits, Force, JobFile, Json, Kernels, Overrides, Plot, Seed, VariabilityName, with_presets
from ..pictures import check_picture
from ..progress import working
from ..result import emit
from ..verbosity import say

Space = Annotated[
    str | None,
    typer.Option("--space", metavar="FILE", help="YAML or TOML: lists of values per knob, e.g. tp: [1, 2, 4, 8]."),
]
Method = Annotated[str, typer.Option("--method", help="exhaustive, or gradient for spaces too large to enumerate.")]
Top = Annotated[int, typer.Option("--top", min=1, max=1000, help="Number of best plans to report.")]
Resume = Annotated[
    str | None,
    typer.Option("--resume", metavar="FILE", help="Checkpoint the search to FILE and resume from it."),
]
Gpus = Annotated[
    list[int] | None,
    typer.Option(
        "--gpus", min=1, metavar="N", help="Search this cluster size instead; repeat the option to compare sizes."
    ),
]
Price = Annotated[
    float,
    typer.Option(
        "--price",
        min=0.0,
        help="Price per GPU-hour, used for objectives in money and with --gpus to report the cost per step.",
    ),
]
AnyFramework = Annotated[
    bool,
    typer.Option(
        "--any-framework", help="Consider plans that the job's framework does not have, and overlap as a knob."
    ),
]
MemoryMargin = Annotated[
    float | None,
    typer.Option(
        "--memory-margin",
        metavar="SHARE",
        help="Share of a device's memory that a plan leaves free, by framework if not given.",
    ),
]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the job with the best plan to FILE, as YAML."),
]


def search(
    job: JobFile,
    overrides: Overrides = None,
    cluster: Cluster = None,
    variability: VariabilityName = None,
    kernels: Kernels = None,
    objective: ObjectiveName = "p95",
    space: Space = None,
    method: Method = "exhaustive",
    any_framework: AnyFramework = False,
    memory_margin: MemoryMargin = None,
    top: Top = 10,
    resume: Resume = None,
    fit: Fits = None,
    force: Force = False,
    seed: Seed = 0,
    gpus: Gpus = None,
    price: Price = 0.0,
    output: Output = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Search for the parallel plan that minimises the tail of the step time."""
    check_picture(plot)
    if output:
        check_target(output)
    stated = with_presets(overrides, cluster, variability, kernels)
    common: dict[str, Any] = {
        "overrides": stated,
        "fits": fit or (),
        "force": force,
        "space": space,
    }
    common |= {"objective": objective, "seed": seed, "any_framework": any_framework, "memory_margin": memory_margin}
    if gpus:
        if plot or resume or output or method != "exhaustive":
            app.check_method(method, resume)
            raise DataError(
                "--gpus: cannot be combined with --output, --plot, --resume and --method. Remove these options."
            )
        with working() as progress:
            report = app.search_sizes(job, gpus, price_per_hour=price, progress=progress, **common)
        emit(report, json)
        return
    with working() as progress:
        own: dict[str, Any] = {"method": method, "top": top, "resume": resume, "price_per_gpu_hour": price or None}
        run = app.run_search(job, progress=progress, **own, **common)

    def write_job() -> None:
        if output:
            run.write_job(output)
            say(f"wrote {output}")

    emit(run.report, json, plot=plot, figure=run.figure, files=write_job)

"""`prism-jax search JOB`: the parallel plan with the smallest tail, how sure that is, and what it gains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..load_fits import calibrated_job, fitted_variability
from ..options import Fits, Force, JobFile, Json, ObjectiveName, Overrides, Plot, Seed
from ..pictures import check_picture
from ..result import leave
from ..verbosity import talks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...job import Job
    from ...search.plans.space import PlanSpace
    from ...search.study import Study
    from ...variability.tree import Variability

Space = Annotated[
    str | None,
    typer.Option("--space", metavar="FILE", help="YAML or TOML: lists of values per knob, e.g. tp: [1, 2, 4, 8]."),
]
Method = Annotated[str, typer.Option("--method", help="exhaustive, or gradient for spaces too large to enumerate.")]
Top = Annotated[int, typer.Option("--top", min=1, max=1000, help="Plans to list and to tell apart.")]
Resume = Annotated[
    str | None,
    typer.Option(
        "--resume", metavar="FILE", help="Keep what is found in FILE; the same command goes on where it stopped."
    ),
]
Gpus = Annotated[
    list[int] | None,
    typer.Option(
        "--gpus", min=1, metavar="N", help="Search this cluster size instead; repeated, a front over sizes is shown."
    ),
]
Price = Annotated[
    float,
    typer.Option(
        "--price", min=0.0, help="Of one GPU for an hour: for the cost of a step (--gpus) and objectives in money."
    ),
]
METHODS = ("exhaustive", "gradient")


def register(app: typer.Typer) -> None:
    """Adds the command to `app`."""
    app.command("search")(talks(search))


def search(
    job: JobFile,
    overrides: Overrides = None,
    objective: ObjectiveName = "p95",
    space: Space = None,
    method: Method = "exhaustive",
    top: Top = 10,
    resume: Resume = None,
    fit: Fits = None,
    force: Force = False,
    seed: Seed = 0,
    gpus: Gpus = None,
    price: Price = 0.0,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Search the parallel plan that minimises the tail of the step time."""
    from dataclasses import replace

    from ...errors import DataError
    from ...io.job.load_job import load_job
    from ...io.space import read_space
    from ...io.write import check_target, run_record
    from ...objective import plan_objective
    from ...search.plans.space import default_space

    check_picture(plot)
    if resume is not None:
        check_target(resume)
    if method not in METHODS:
        raise DataError(f"--method: {method!r} is unknown; known are {' and '.join(METHODS)}")
    if gpus and (plot or resume or method != "exhaustive"):
        raise DataError(
            "--gpus: goes with --objective, --space, --price, --seed and --json only. Leave the others out."
        )
    if resume is not None and method == "gradient":
        raise DataError(
            "--resume: a gradient search is too short to be resumed. Leave it out, or use --method exhaustive."
        )
    loaded, fits = calibrated_job(load_job(job, overrides or []), fit or [])
    plan_objective(objective, loaded.plan, price or None)
    values = default_space(loaded) if space is None else read_space(space, default_space(loaded))
    fitted = fitted_variability(loaded.variability, fits, seed, force)
    if fitted is not None:
        loaded = replace(loaded, variability=fitted.middle)
    if gpus:
        _sizes(loaded, space, gpus, price, objective, seed, {"job": job, "set": overrides or [], "gpus": gpus}, json)
        return
    posterior = () if fitted is None else fitted.draws
    study = _run(loaded, values, method, objective, price or None, seed, top, resume, posterior)
    inputs = {
        "job": job,
        "set": overrides or [],
        "space": space,
        "objective": objective,
        "method": method,
        "fit": fit or [],
    }
    summary = {"job": _facts(loaded), **study.to_dict(top), **run_record(inputs, seed)}

    def figure() -> Any:
        from ...plot import plot_study

        return plot_study(study, loaded.name, top)

    def lines() -> list[str]:
        from ...report import study_lines

        return study_lines(summary)

    leave(summary, lines, json, plot, figure)


def _sizes(
    job: Job,
    space: str | None,
    gpus: list[int],
    price: float,
    objective: str,
    seed: int,
    inputs: dict[str, Any],
    json: bool,
) -> None:
    """Best plan of every cluster size."""
    from ...io.space import read_space
    from ...io.write import run_record
    from ...search.plans.space import default_space
    from ...start_jax import start_jax
    from ..spinner import shown, spinner

    values = None if space is None else read_space(space, default_space(job))
    start_jax()
    with spinner("loading JAX") as tell:
        from ...search.sizes import best_sizes, search_sizes

        sizes = search_sizes(
            job,
            gpus,
            values,
            price_per_hour=price,
            objective=objective,
            seed=seed,
            progress=shown(tell),
        )
    kept = best_sizes(sizes, "value_s", "n_devices", "energy_j", "cost")
    summary = {
        "job": _facts(job),
        "objective": objective,
        "objective_unit": sizes[0].study.objective.unit,
        "sizes": [size.to_dict() for size in sizes],
        "front": [size.n_devices for size in kept],
        **run_record({**inputs, "space": space, "price": price, "objective": objective}, seed),
    }

    def lines() -> list[str]:
        from ...report import size_lines

        return size_lines(summary)

    leave(summary, lines, json, None, lambda: None)


def _facts(job: Job) -> dict[str, Any]:
    device = job.cluster.device
    names = {"name": job.name, "model": job.model.name, "cluster": job.cluster.name, "device": device.name}
    return {**names, "n_devices": job.cluster.n_devices, "hbm_bytes": device.hbm_bytes}


def _run(
    job: Job,
    space: PlanSpace,
    method: str,
    objective: str,
    price: float | None,
    seed: int,
    top: int,
    resume: str | None,
    posterior: Sequence[Variability],
) -> Study:
    """Everything that needs JAX, with a spinner while it runs on a terminal."""
    from ...start_jax import start_jax
    from ..spinner import shown, spinner

    start_jax()
    with spinner("loading JAX") as tell:
        common: dict[str, Any] = {"seed": seed, "top": top, "posterior": posterior}
        common |= {"objective": objective, "price_per_gpu_hour": price}
        run: Callable[..., Study]
        if method == "gradient":
            from ...search.gradient.search import gradient_search as run
        else:
            from ...search.exhaustive import search as run

            common["journal"] = resume
        return run(job, space, progress=shown(tell), **common)

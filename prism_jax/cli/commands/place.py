"""`prism-jax place JOB --slowdowns nodes.csv`: which measured node sits where, and what that is worth."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..options import JobFile, Json, ObjectiveName, Overrides, Plot, Seed
from ..pictures import check_picture
from ..result import leave
from ..verbosity import talks

if TYPE_CHECKING:
    from ...job import Job
    from ...placement import PlacementResult

Slowdowns = Annotated[
    str,
    typer.Option(
        "--slowdowns",
        metavar="CSV",
        help="Measured slowdowns of every node: node or gpu, slowdown (1.05 = 5 % slower) or gemm, attention, memory.",
    ),
]
Spares = Annotated[int, typer.Option("--spares", min=0, help="Nodes to leave out; the table lists that many more.")]
Splits = Annotated[
    bool,
    typer.Option("--splits", help="Also choose layers per stage and micro-batches per replica, uneven if it pays."),
]
MOST_NODES = 1_000_000


def register(app: typer.Typer) -> None:
    """Adds the command to `app`."""
    app.command("place")(talks(place))


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
    from ...io.job.load_job import load_job
    from ...io.tables.slowdowns import read_slowdowns
    from ...io.write import run_record

    check_picture(plot)
    loaded = load_job(job, overrides or [])
    measured = read_slowdowns(slowdowns, MOST_NODES * loaded.cluster.node_size, loaded.cluster.node_size)
    started = time.perf_counter()
    result = _run(loaded, measured, objective, spares, splits, seed)
    inputs = {"job": job, "set": overrides or [], "slowdowns": slowdowns, "objective": objective}
    summary = {
        "job": {"name": loaded.name, "n_devices": loaded.plan.n_devices, "node_size": loaded.cluster.node_size},
        **result.to_dict(),
        "elapsed_s": time.perf_counter() - started,
        **run_record({**inputs, "spares": spares, "splits": splits}, seed),
    }

    def figure() -> Any:
        from ...plot import plot_placement

        return plot_placement(result, f"{loaded.name}: {len(result.assignment)} nodes")

    def lines() -> list[str]:
        from ...report import placement_lines

        return placement_lines(summary)

    leave(summary, lines, json, plot, figure)


def _run(
    job: Job, measured: Mapping[str, Mapping[int, float]], objective: str, spares: int, splits: bool, seed: int
) -> PlacementResult:
    """Everything that needs JAX, with a spinner while it runs on a terminal."""
    from ...start_jax import start_jax
    from ..spinner import shown, spinner

    start_jax()
    with spinner("loading JAX") as tell:
        import jax

        from ...placement import place as search

        return search(
            job,
            measured,
            key=jax.random.key(seed),
            objective=objective,
            spares=spares,
            splits=splits,
            progress=shown(tell),
        )

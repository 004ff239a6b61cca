"""`prism-jax predict JOB`: the distribution of the step time, why, and a picture."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..load_fits import calibrated_job, fitted_variability
from ..options import Fits, Force, JobFile, Json, Overrides, Plot, Seed
from ..pictures import check_picture
from ..result import leave
from ..verbosity import say, talks

if TYPE_CHECKING:
    from ...cost.step_cost import StepCost
    from ...job import Job
    from ...result import StepTimeDistribution
    from ...simulate.known import KnownGpus

Samples = Annotated[
    int | None,
    typer.Option("--samples", min=1, max=10_000_000, help="Replica columns (symmetric) or steps (brute-force)."),
]
Method = Annotated[str, typer.Option("--method", help="symmetric, or brute-force: every GPU of every replica.")]
Slowdowns = Annotated[
    str | None,
    typer.Option("--slowdowns", metavar="CSV", help="Measured slowdowns: gpu or node, slowdown (1.05 = 5 % slower)."),
]
Trace = Annotated[
    str | None,
    typer.Option(
        "--trace", metavar="FILE", help="Write a Perfetto timeline of a median and a p99 step (.json, .json.gz)."
    ),
]
FOREVER_S = 1e9  # 30 years for one operation
MAX_WARM_COLUMNS = 16_384  # a second run of more would cost more than it tells
METHODS = {"symmetric": "symmetric", "brute-force": "brute_force", "brute_force": "brute_force"}


def register(app: typer.Typer) -> None:
    """Adds the command to `app`."""
    app.command("predict")(talks(predict))


def predict(
    job: JobFile,
    overrides: Overrides = None,
    samples: Samples = None,
    seed: Seed = 0,
    method: Method = "symmetric",
    slowdowns: Slowdowns = None,
    fit: Fits = None,
    force: Force = False,
    plot: Plot = None,
    trace: Trace = None,
    json: Json = False,
) -> None:
    """Predict the distribution of the step time of a job."""
    from ...cost.step import step_cost
    from ...errors import DataError
    from ...io.job.load_job import load_job

    if method not in METHODS:
        raise DataError(f"--method: {method!r} is unknown; known are symmetric and brute-force")
    _check_targets(plot, trace)
    loaded, fits = calibrated_job(load_job(job, overrides or []), fit or [])
    _check_finite(step_cost(loaded.model, loaded.cluster, loaded.plan, loaded.efficiency))
    known = _known(loaded, slowdowns)
    fitted = fitted_variability(loaded.variability, fits, seed, force)
    if fitted is not None:
        loaded = replace(loaded, variability=fitted.middle)
    inputs = {"job": job, "set": overrides or [], "slowdowns": slowdowns, "fit": fit or []}
    summary, distribution, explanation = _run(loaded, METHODS[method], samples, seed, known, inputs)
    if fitted is not None:
        summary["epistemic_s"] = fitted.band(loaded, seed, summary["n_samples"])

    def figure() -> Any:
        from ...plot import plot_prediction

        return plot_prediction(distribution, explanation, _title(loaded))

    def lines() -> list[str]:
        from ...report import summary_lines

        return summary_lines(summary)

    leave(summary, lines, json, plot, figure, lambda: _write_trace(trace, loaded, distribution, seed))


def _run(
    job: Job, method: str, samples: int | None, seed: int, known: KnownGpus | None, inputs: dict[str, Any]
) -> tuple[dict[str, Any], StepTimeDistribution, Any]:
    """Everything that needs JAX, with a spinner while it runs on a terminal."""
    from ...start_jax import start_jax
    from ..spinner import shown, spinner

    start_jax()
    started = time.perf_counter()
    with spinner("loading JAX") as tell:
        import jax

        from ...explain import explain
        from ...io.write import run_record
        from ...report import summary_dict
        from ...simulate.brute import COLUMNS_PER_CALL
        from ...simulate.predict import DEFAULT_COLUMNS, predict as simulate
        from ...simulate.program import lower

        key = jax.random.key(seed)
        count = samples or (DEFAULT_COLUMNS if method == "symmetric" else 1000)
        tell("compiling and simulating")
        compile_for = {"symmetric": count, "brute_force": min(count, COLUMNS_PER_CALL // job.plan.n_replica + 1)}
        distribution = simulate(job, key=key, n_samples=compile_for[method], method=method, known=known)
        compiled = time.perf_counter()
        if _worth_a_warm_run(method, distribution, count):
            distribution = simulate(
                job,
                key=key,
                n_samples=count,
                method=method,
                known=known,
                progress=shown(tell, "simulating"),
            )
        ran = time.perf_counter()
        tell("explaining")
        explanation = explain(job, distribution, key=key)
    elapsed = {"compile": compiled - started, "run": ran - compiled, "explain": time.perf_counter() - ran}
    record = run_record({**inputs, "method": method, "samples": count}, seed)
    cost = lower(job).cost
    summary = summary_dict(
        job, distribution, explanation, cost, job.memory, seed=seed, elapsed_s=elapsed, record=record
    )
    return summary, distribution, explanation


def _check_finite(cost: StepCost) -> None:
    """Before times that single precision cannot hold reach the simulation."""
    from ...errors import SpecError

    parts = (cost.compute_s, cost.comm_s, cost.p2p_s, cost.end_compute_s, cost.end_comm_s)
    longest_s = max(float(part.max(initial=0.0)) for part in parts)
    if not longest_s < FOREVER_S:  # NaN too
        raise SpecError(
            f"one operation takes {longest_s:.3g} s. Look for a bandwidth, latency or size that is out of all proportion."
        )


def _worth_a_warm_run(method: str, distribution: StepTimeDistribution, count: int) -> bool:
    """Whether to simulate again, to tell running from compiling: not where the first run was long or brute force stepped in."""
    return method == "brute_force" or (distribution.method == method and count <= MAX_WARM_COLUMNS)


def _known(job: Job, path: str | None) -> KnownGpus | None:
    if path is None:
        return None
    from ...io.tables.slowdowns import read_slowdowns
    from ...start_jax import start_jax

    found = read_slowdowns(path, job.plan.n_devices, job.cluster.node_size)
    start_jax()
    from ...simulate.known import known_gpus

    return known_gpus(found, job.plan.n_devices)


def _write_trace(path: str | None, job: Job, distribution: StepTimeDistribution, seed: int) -> None:
    if path is None:
        return
    import jax

    from ...explain.timeline import timelines
    from ...io.perfetto import write_trace
    from ...simulate.program import lower

    write_trace(path, timelines(lower(job), distribution, jax.random.key(seed)), job.name)
    say(f"wrote {path}")


def _title(job: Job) -> str:
    return f"{job.name}: {job.model.name} on {job.plan.n_devices:,} x {job.cluster.device.name}"


def _check_targets(plot: str | None, trace: str | None) -> None:
    """Before minutes of work, not after."""
    from ...errors import DataError
    from ...io.write import check_target

    check_picture(plot)
    if trace is None:
        return
    if not trace.endswith((".json", ".json.gz")):
        raise DataError(f"--trace: {trace}: the name must end in .json or .json.gz")
    check_target(trace)

"""Derivatives of the step: what they cost, and how exact they are.

    python -m benchmarks.gradient                       # both
    python -m benchmarks.gradient --jobs gpt3_175b_1024 --directions 8

Cost: processor seconds of a value with its gradient over those of the value, and memory beside inputs and outputs, of `step_time`
of Llama 3 405B on 16,384 GPUs. Exactness: derivatives of p95 along random directions in slowdowns, links, hardware and work
against central differences on the same draws, in double precision. Where the derivatives on both sides of the difference are not
those in its middle, the path that decides the step changes within it; such directions are counted and left out.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from prism_jax import Job, load_job, step_quantile, step_time
from prism_jax.simulate.sensitivity import numbers_of, on_device

JOBS = ("llama3_405b_16384", "deepseek_v3_2048", "gpt3_175b_1024", "llama2_7b_fsdp_64", "vit_h_14_64", "t5_11b_256")
LARGEST, N_SAMPLE, N_RUN = "llama3_405b_16384", 16, 3
N_STEP = 32  # of the p95
STEP, ALLOWED, CHANGED = 1e-6, 1e-3, 1e-4


def processor_s(run: Callable[[], Any]) -> float:
    """Least processor seconds of a few runs."""
    found = []
    for _ in range(N_RUN):
        before = resource.getrusage(resource.RUSAGE_SELF)
        jax.block_until_ready(run())
        after = resource.getrusage(resource.RUSAGE_SELF)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def cost(job: Job) -> None:
    """Prints what a gradient costs over its value."""
    slowdown = np.random.default_rng(0).lognormal(0.0, 0.02, (job.plan.n_devices, N_SAMPLE)).astype(np.float32)
    value = jax.jit(lambda own: step_time(job, own).sum())
    runs = {"value": value, "value and gradient": jax.jit(jax.value_and_grad(value))}
    compiled = {name: run.lower(slowdown).compile() for name, run in runs.items()}
    seconds = {name: processor_s(lambda run=run: run(slowdown)) for name, run in compiled.items()}  # type: ignore[misc]
    for name, run in compiled.items():
        found = run.memory_analysis()
        assert found is not None
        memory = found.temp_size_in_bytes / N_SAMPLE / 1e6
        print(
            f"{job.name}, {N_SAMPLE} samples: {name:20} {1e3 * seconds[name] / N_SAMPLE:6.2f} ms, {memory:.2f} MB a sample"
        )
    print(f"{job.name}: ratio {seconds['value and gradient'] / seconds['value']:.2f}")


def inputs_of(job: Job, rng: np.random.Generator) -> dict[str, Any]:
    """Random slowdowns, links and work, and hardware close to the job's."""
    plan, n_node = job.plan, -(-job.plan.n_devices // job.cluster.node_size)
    work = {"tokens": rng.lognormal(0.0, 0.1, (plan.n_replica, plan.n_micro_batch, 1))}
    if getattr(job.model, "moe", None) is not None:
        work["experts"] = rng.lognormal(0.0, 0.1, (plan.n_replica, 1, plan.n_micro_batch, 1))
    return {
        "slowdown": rng.lognormal(0.0, 0.05, (plan.n_devices, 1)),
        "links": rng.lognormal(0.2, 0.1, (n_node, 1)),
        "hardware": jax.tree.map(lambda own: own * rng.lognormal(0.0, 0.05), numbers_of(job.cluster)),  # off its kinks
        "work": work,
    }


def exactness(job: Job, n_direction: int) -> tuple[int, int]:
    """Directions whose path changes, and directions; prints the largest error of the others per input."""
    p95, rng = step_quantile(job, 0.95, key=0, n_samples=N_STEP), np.random.default_rng(1)
    at: Any = jax.tree.map(lambda own: jnp.asarray(own, float), inputs_of(job, rng))
    both = jax.jit(jax.value_and_grad(lambda given: p95(**{**given, "hardware": on_device(given["hardware"])})))
    _, middle = both(at)
    changed, errors = 0, dict.fromkeys(at, 0.0)
    for name in at:
        for _ in range(n_direction):
            way = jax.tree.map(lambda own: own * rng.standard_normal(own.shape), at[name])

            def along(gradient: Any, name: str = name, way: Any = way) -> float:
                return float(
                    sum(jnp.vdot(g, w) for g, w in zip(*map(jax.tree.leaves, (gradient[name], way)), strict=True))
                )

            ends = [{**at, name: jax.tree.map(lambda own, w, s=s: own + s * STEP * w, at[name], way)} for s in (1, -1)]
            (high, above), (low, below) = (both(end) for end in ends)
            slope, difference = along(middle), float(high - low) / (2.0 * STEP)
            if max(abs(along(side) / slope - 1.0) for side in (above, below)) > CHANGED:
                changed += 1
            else:
                errors[name] = max(errors[name], abs(difference / slope - 1.0))
    told = ", ".join(f"{name} {error:.1e}" for name, error in errors.items())
    print(
        f"{job.name}: largest relative error {told}; path changes in {changed} of {n_direction * len(at)}", flush=True
    )
    assert max(errors.values()) < ALLOWED, errors
    return changed, n_direction * len(at)


def main() -> None:
    """Runs both."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--jobs", nargs="*", default=JOBS)
    parser.add_argument("--directions", type=int, default=8)
    chosen = parser.parse_args()
    cost(load_job(LARGEST))
    with jax.enable_x64(True):
        counts = [exactness(load_job(name), chosen.directions) for name in chosen.jobs]
    changed, n = (sum(own) for own in zip(*counts, strict=True)) if counts else (0, 0)
    print(f"path changes in {changed} of {n} directions")


if __name__ == "__main__":
    main()

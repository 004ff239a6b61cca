"""Batch studies on the processor and on an accelerator of the same machine: warm seconds, their ratio, and whether answers agree.

    python -m benchmarks.accelerator [--cores 2] [--small]

Each platform runs in a process of its own. Draws of one key are the same on every platform; sums are not taken in the same order,
so answers agree to 1e-5. On either, chunks of columns give the same bits one after another and all at once. Without an
accelerator the processor is measured alone; `--small` is for trying that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from prism_jax import Job

JOB, DLRM = "llama3_405b_16384", "dlrm_dcnv2_64"
QUANTILES = np.linspace(0.02, 0.98, 49)  # of every answer
MOST_APART = 1e-5
BARS = {"brute force": 60, "tails": 25, "spreads": 10}  # ratio to two cores, by the first words of a study
Study = Callable[[int], "np.ndarray"]  # a seed in, the sample that is its answer out


class Sizes(NamedTuple):
    """How much of each study runs: seeds measured, steps, columns, plans, spreads of one job, worlds."""

    repeats: int
    brute_steps: int
    rank_steps: int
    samples: int
    plans: int
    spreads: int
    worlds: int


FULL, SMALL = Sizes(5, 512, 16_384, 16_384, 1000, 32, 10_000), Sizes(1, 16, 64, 1024, 16, 3, 100)


def measure(sizes: Sizes) -> None:
    """Prints a line of JSON per study: name, seconds, processor seconds, and quantiles of the answer."""
    import jax

    from prism_jax.core.processes import start_jax

    start_jax()
    device = jax.devices()[0].device_kind
    print(json.dumps({"platform": jax.default_backend(), "device": device, "same_bits": same_bits()}), flush=True)
    if device == "cpu" and os.environ.get("JAX_PLATFORMS") != "cpu":
        return  # nothing but the processor, which is measured by itself
    for name, study in studies(sizes).items():
        study(0)
        wall, processor, answer = [], [], np.zeros(1)
        for seed in range(sizes.repeats):
            started, cpu = time.perf_counter(), time.process_time()
            answer = study(seed)
            wall.append(time.perf_counter() - started)
            processor.append(time.process_time() - cpu)
        row = {"name": name, "wall_s": median(wall), "processor_s": median(processor)}
        print(json.dumps({**row, "answer": np.quantile(answer, QUANTILES).tolist()}), flush=True)


def same_bits() -> bool:
    """Whether chunks of brute force give the same bits one after another and all at once."""
    import jax

    from prism_jax import load_job
    from prism_jax.simulate.columns import Chunk, _compiled
    from prism_jax.simulate.inputs import column_inputs
    from prism_jax.simulate.program import lower

    job, key, backend = load_job(JOB), np.array([0, 1], np.uint32), jax.default_backend()
    program = lower(job)
    inputs = column_inputs(program, np.ones((1, len(program.regime))), explicit=True)
    chunks = Chunk(np.arange(4))
    one_by_one = _compiled(1, 128, backend)(inputs, key, chunks)
    stacked = jax.tree.map(lambda leaf: np.asarray(leaf)[None], (inputs, chunks))
    at_once = _compiled(1, 128, backend, at_once=True)(stacked[0], key, stacked[1])
    return bool((np.asarray(one_by_one) == np.asarray(at_once)[0]).all())


def studies(sizes: Sizes) -> dict[str, Study]:
    """What people run in batches."""
    from dataclasses import replace

    import jax

    from benchmarks.horizon import RUN
    from prism_jax import load_job, predict, predict_many
    from prism_jax.horizon.simulated_run import simulated_run
    from prism_jax.search.evaluate import Evaluator, TailScorer
    from prism_jax.search.space import default_space

    large = load_job(JOB)
    ranks = load_job(DLRM, ["plan.dp=128", "cluster.n_devices=128"])
    spreads = [replace(large, variability=large.variability.scaled(0.5 + 0.05 * step)) for step in range(sizes.spreads)]
    gpt3 = load_job("gpt3_175b_1024")
    evaluator = Evaluator(gpt3, default_space(gpt3, any_framework=True))
    screen = evaluator.bounds()
    evaluator.simulate(screen, 1.1 * evaluator.fastest(screen))
    plans = screen.order()[: sizes.plans]

    def times(job: Job, n_samples: int, method: str = "symmetric") -> Study:
        return lambda seed: predict(job, key=seed, n_samples=n_samples, method=method).samples_s

    return {
        "default predict, 16,384 GPUs": times(large, 512),
        f"predict, 16,384 GPUs, {sizes.samples:,} columns": times(large, sizes.samples),
        f"brute force, 16,384 GPUs, {sizes.brute_steps} steps": times(large, sizes.brute_steps, "brute_force"),
        f"DLRM, 128 explicit ranks, {sizes.rank_steps:,} steps": times(ranks, sizes.rank_steps, "brute_force"),
        f"spreads of 16,384 GPUs, {sizes.spreads}": lambda seed: np.concatenate(
            [found.samples_s for found in predict_many(spreads, key=seed)]
        ),
        f"tails of {len(plans):,} plans, 256 columns": lambda seed: TailScorer(evaluator, seed).samples(plans, 256),
        f"run of 10^6 steps, {sizes.worlds:,} worlds": lambda seed: simulated_run(
            RUN, key=jax.random.key(seed), n_world=sizes.worlds
        ).n_failure.mean(keepdims=True),
    }


def table(cores: int, small: bool) -> bool:
    """Runs both platforms and prints them side by side; whether they agree."""
    first, *rows = child(cores, small, JAX_PLATFORMS="cpu")
    second, *others = child(cores, small, JAX_PLATFORMS="")
    print(f"{'study':<48}{f'{cores} cores, s':>12}{second['device'] + ', s':>26}{'ratio':>8}{'bar':>6}{'differ':>10}")
    apart = [0.0]
    for one, other in zip(rows, others or [{}] * len(rows), strict=True):
        bar = next((str(bar) for name, bar in BARS.items() if one["name"].startswith(name)), "")
        apart.append(
            (np.abs(np.subtract(other.get("answer", one["answer"]), one["answer"])) / np.abs(one["answer"])).max()
        )
        wall_s = other.get("wall_s", np.nan)
        ratio = one["wall_s"] / wall_s
        print(f"{one['name']:<48}{one['wall_s']:>12.4f}{wall_s:>26.4f}{ratio:>8.1f}{bar:>6}{apart[-1]:>10.1e}")
    for head in (first, second):
        print(f"{head['device']}: chunks have the same bits one by one and at once: {head['same_bits']}")
    if not others:
        print("JAX finds no accelerator here: the processor alone was measured")
    return max(apart) <= MOST_APART and first["same_bits"] and second["same_bits"]


def child(cores: int, small: bool, **environment: str) -> list[dict]:
    """What `measure` printed in a process of its own, on that many cores."""
    line = [sys.executable, "-m", "benchmarks.accelerator", "--measure", *(["--small"] if small else [])]
    if cores:
        line = ["taskset", "-c", f"0-{cores - 1}", *line]
    done = subprocess.run(line, stdout=subprocess.PIPE, env={**os.environ, **environment}, text=True, check=True)
    return [json.loads(row) for row in done.stdout.splitlines() if row.startswith("{")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=2, help="cores that each process may use")
    parser.add_argument("--small", action="store_true", help="small sizes, once each: to see that it runs")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        measure(SMALL if asked.small else FULL)
    elif not table(asked.cores, asked.small):
        raise SystemExit("answers differ by more than rounding")


if __name__ == "__main__":
    main()

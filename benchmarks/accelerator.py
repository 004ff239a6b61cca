"""Batch studies on the processor and on an accelerator of the same machine: warm seconds, their ratio, and whether answers agree.

    python benchmarks/accelerator.py [--cores 2]

Each platform runs in a process of its own. Draws of one key are the same on every platform; sums are not taken in the same order.
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

REPEATS = 5
JOB, DLRM = "llama3_405b_16384", "dlrm_dcnv2_64"
BRUTE_STEPS, RANK_STEPS, SAMPLES, N_PLAN = 512, 16_384, 16_384, 1000


def measure() -> None:
    """Prints a line of JSON per study: name, seconds, processor seconds, and the answer."""
    import jax

    from prism_jax.core.processes import start_jax

    start_jax()
    print(json.dumps({"platform": jax.default_backend(), "device": jax.devices()[0].device_kind}), flush=True)
    for name, study in studies().items():
        study(0)
        wall, processor, answer = [], [], 0.0
        for seed in range(REPEATS):
            started, cpu = time.perf_counter(), time.process_time()
            answer = study(seed)
            wall.append(time.perf_counter() - started)
            processor.append(time.process_time() - cpu)
        row = {"name": name, "wall_s": median(wall), "processor_s": median(processor), "answer": answer}
        print(json.dumps(row), flush=True)


def studies() -> dict[str, Callable[[int], float]]:
    """What people run in batches; each returns its answer for one seed."""
    from dataclasses import replace

    import jax

    from benchmarks.horizon import RUN
    from prism_jax import load_job, predict, predict_many
    from prism_jax.horizon.simulated_run import simulated_run
    from prism_jax.search.evaluate import Evaluator, TailScorer
    from prism_jax.search.space import default_space

    large = load_job(JOB)
    ranks = load_job(DLRM, ["plan.dp=128", "cluster.n_devices=128"])
    spreads = [replace(large, variability=large.variability.scaled(0.5 + 0.05 * step)) for step in range(32)]
    gpt3 = load_job("gpt3_175b_1024")
    evaluator = Evaluator(gpt3, default_space(gpt3, any_framework=True))
    screen = evaluator.bounds()
    evaluator.simulate(screen, 1.1 * evaluator.fastest(screen))
    plans = screen.order()[:N_PLAN]

    def p95_s(job: object, seed: int, **options: object) -> float:
        return predict(job, key=jax.random.key(seed), **options).quantile(0.95)  # pyright: ignore[reportArgumentType]

    return {
        "predict, 16,384 GPUs, default": lambda seed: p95_s(large, seed),
        f"predict, 16,384 GPUs, {SAMPLES:,} columns": lambda seed: p95_s(large, seed, n_samples=SAMPLES),
        f"brute force, 16,384 GPUs, {BRUTE_STEPS} steps": lambda seed: p95_s(
            large, seed, n_samples=BRUTE_STEPS, method="brute_force"
        ),
        f"DLRM, 128 explicit ranks, {RANK_STEPS:,} steps": lambda seed: p95_s(
            ranks, seed, n_samples=RANK_STEPS, method="brute_force"
        ),
        "predict_many, 32 spreads of 16,384 GPUs": lambda seed: float(
            predict_many(spreads, key=jax.random.key(seed))[-1].quantile(0.95)
        ),
        f"tails of {N_PLAN:,} plans, 256 columns": lambda seed: float(
            TailScorer(evaluator, seed).samples(plans, 256).mean()
        ),
        "run of 10^6 steps, 10^4 worlds": lambda seed: float(
            simulated_run(RUN, key=jax.random.key(seed), n_world=10_000).n_failure.mean()
        ),
    }


def table(cores: int) -> None:
    """Runs both platforms and prints them side by side."""
    first, *rows = child(JAX_PLATFORMS="cpu", cores=cores)
    second, *others = child(JAX_PLATFORMS="", cores=cores)
    if first["platform"] == second["platform"]:
        raise SystemExit("JAX finds no accelerator here")
    print(f"{'study':<48}{f'{cores} cores, s':>12}{second['device'] + ', s':>26}{'ratio':>8}{'answers differ':>16}")
    for one, other in zip(rows, others, strict=True):
        apart = abs(other["answer"] / one["answer"] - 1.0)
        ratio = one["wall_s"] / other["wall_s"]
        print(f"{one['name']:<48}{one['wall_s']:>12.4f}{other['wall_s']:>26.4f}{ratio:>8.1f}{apart:>16.1e}")


def child(cores: int, **environment: str) -> list[dict]:
    """What `measure` printed in a process of its own, on that many cores."""
    line = [sys.executable, "-m", "benchmarks.accelerator", "--measure"]
    if cores:
        line = ["taskset", "-c", f"0-{cores - 1}", *line]
    done = subprocess.run(line, stdout=subprocess.PIPE, env={**os.environ, **environment}, text=True, check=True)
    return [json.loads(row) for row in done.stdout.splitlines() if row.startswith("{")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=2, help="cores that each process may use")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        measure()
    else:
        table(asked.cores)


if __name__ == "__main__":
    main()

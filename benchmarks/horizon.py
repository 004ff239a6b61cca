"""Warm seconds and memory of a whole job in many worlds: 10^6 steps on 65,536 GPUs, 10^4 worlds, with repairs and spare nodes."""

from __future__ import annotations

import resource
import time
from statistics import median

import jax

from prism_jax.core.processes import start_jax
from prism_jax.horizon.checkpoint import Checkpoint, Recovery
from prism_jax.horizon.reliability_file import preset
from prism_jax.horizon.run import TrainingRun
from prism_jax.horizon.simulated_run import simulated_run
from prism_jax.horizon.steps import StepSum

REPEATS = 5
WORLDS = 10_000
RUN = TrainingRun(
    n_steps=1_000_000,
    steps=StepSum(5.0, 4.9, 0.05, 0.01, 0.9, 0.02),
    n_gpus=65_536,
    node_size=8,
    reliability=preset("llama3-2024"),
    checkpoint=Checkpoint(40.0, load_s=60.0),
    recovery=Recovery(600.0),
)


def main() -> None:
    start_jax()
    found = simulated_run(RUN, key=jax.random.key(0), n_world=WORLDS)
    warm, processor = [], time.process_time()
    for seed in range(REPEATS):
        started = time.perf_counter()
        simulated_run(RUN, key=jax.random.key(seed), n_world=WORLDS)
        warm.append(time.perf_counter() - started)
    processor = (time.process_time() - processor) / REPEATS
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{RUN.n_steps:,} steps, {RUN.n_gpus:,} GPUs, {WORLDS:,} worlds of {found.n_failure.mean():,.0f} interruptions"
    )
    print(f"  warm: median {median(warm):.2f} s, least {min(warm):.2f} s, {processor:.2f} processor seconds")
    print(f"  peak of the process: {peak_gb:.2f} GiB")


if __name__ == "__main__":
    main()

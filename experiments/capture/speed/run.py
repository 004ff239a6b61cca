"""How long does the whole job of a capture take, from its file to the distribution?

python experiments/capture/speed/run.py [--repeats 5]

Llama 3 405B, tp 8 x pp 16, captured row by row; 128 ranks (one replica) and 8,192 (64 replicas). Seconds of reading the file, of
making the job (overlap simulated), and of 512 replica columns, warm: the same was done once before.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import jax

from experiments.common import start
from prism_jax import load_job, predict, write_capture
from prism_jax.capture.from_job import program_of_job

BASE = ["plan.pp=16", "plan.virtual_stages=1", "plan.schedule=1f1b", "plan.dp=auto", "plan.zero_stage=1"]
SIZES = {128: 64, 8192: 64 * 64}  # ranks -> samples of a step


def main() -> None:
    """Prints the table of the README."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    start()
    for n_ranks, batch in SIZES.items():
        job = load_job("llama3_405b_8192", [*BASE, f"cluster.n_devices={n_ranks}", f"plan.global_batch={batch}"])
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "job.capture.gz"
            write_capture(file, program_of_job(job))
            size = file.stat().st_size
            walls = [_once(file, seed) for seed in range(given.repeats + 1)][1:]
        whole, read = median(wall for wall, _ in walls), median(part for _, part in walls)
        print(f"{n_ranks:>5} ranks, {job.plan.n_micro_batch} micro-batches, file {size / 1024:.0f} KiB: ", end="")
        print(f"{whole:.2f} s warm, of which {read:.2f} s to read the file and make the job")


def _once(file: Path, seed: int) -> tuple[float, float]:
    """Seconds from file to distribution, and of the first part."""
    begun = time.perf_counter()
    job = load_job(file, ["cluster=dgx-h100", "variability=h100-default"])
    made = time.perf_counter()
    predict(job, key=jax.random.key(seed), n_samples=512).quantile(0.95)
    return time.perf_counter() - begun, made - begun


if __name__ == "__main__":
    main()

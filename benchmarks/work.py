"""Measures what work of micro-batches costs: processor seconds of warm predictions with factors of work over those without.

    python benchmarks/work.py [--repeats 9] [--samples 512]

Both sides of a job have the same plan; every repeat has a seed of its own. Where few columns reach the tail a prediction takes
more of them, or simulates steps in full: least seconds are without. First calls compile, and make the law of the work.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import jax

from prism_jax.job.job import Job
from prism_jax.job.load_job import loaded
from prism_jax.job.read_tables import lengths_of
from prism_jax.plan.packing import Data
from prism_jax.simulate.predict import predict
from prism_jax.workload.transformer.routing import ExpertRouting

LENGTHS = {"kind": "log_normal", "cv": 1.2}


def with_lengths(name: str, packing: str) -> Job:
    """A shipped example with documents of unlike lengths."""
    own = loaded(name, ())
    lengths = lengths_of(LENGTHS | {"mean": own.plan.seq_len / 4})
    return replace(own, plan=replace(own.plan, data=Data(lengths, packing)))


def with_routing(name: str) -> Job:
    """A shipped example whose routers load experts unevenly."""
    own = loaded(name, ())
    return replace(own, model=replace(own.model, moe=replace(own.model.moe, routing=ExpertRouting(0.2), imbalance=1.0)))  # pyright: ignore


JOBS: dict[str, Callable[[], Job]] = {
    "llama2_7b_fsdp_64, padded": lambda: with_lengths("llama2_7b_fsdp_64", "padded"),
    "llama3_405b_16384, masked": lambda: with_lengths("llama3_405b_16384", "masked"),
    "deepseek_v3_2048, routing": lambda: with_routing("deepseek_v3_2048"),
}


def seconds(job: Job, seed: int, n_samples: int) -> tuple[float, bool]:
    """Processor seconds of one prediction, and whether it did more than it was asked for."""
    started = time.process_time()
    found = predict(job, key=jax.random.key(seed), n_samples=n_samples)
    return time.process_time() - started, found.n_samples != n_samples


def main() -> None:
    """Prints a line for each job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--samples", type=int, default=512)
    given = parser.parse_args()
    for name, made in JOBS.items():
        sides = [made(), loaded(name.split(",")[0], ())]
        first = [seconds(side, 0, 4 * given.samples)[0] + seconds(side, 0, given.samples)[0] for side in sides]
        took = [[seconds(side, 1 + k, given.samples) for side in sides] for k in range(given.repeats)]
        least = [min(s for s, _ in column) for column in zip(*took, strict=True)]
        middle = [median(s for s, _ in column) for column in zip(*took, strict=True)]
        more = [sum(own for _, own in column) for column in zip(*took, strict=True)]
        print(
            f"{name:28} least {least[0]:.3f} over {least[1]:.3f} s: {least[0] / least[1]:.2f}, median "
            f"{middle[0] / middle[1]:.2f}; more columns, or steps in full: {more[0]} and {more[1]} of {given.repeats}; "
            f"first calls {first[0]:.1f} and {first[1]:.1f} s"
        )


if __name__ == "__main__":
    main()

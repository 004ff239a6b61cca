"""Does the closed form find the size at which communication shows? 50 random jobs, beside the knee of their simulation.

python experiments/scaling/onset.py [--jobs 50] [--seed 0] [--workers 2]

Jobs are drawn over models, clusters, sequence lengths, micro-batches and accumulation. The closed form (`study.scaling.of_step`:
the cost of one step on the host, nothing simulated) has to be within one doubling of the size, between doublings from 8 to
65,536, at which exposed data-parallel communication passes 5% of the simulated mean step.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from experiments.common import start
from experiments.scaling.jobs import BASE, SIZES
from prism_jax import Job, ParallelPlan
from prism_jax.core.executor import Workers
from prism_jax.study.figures import JobFigures
from prism_jax.study.run_grid import StudyRequest, run_study
from prism_jax.study.scaling import KNEE, crossing, job_of_size, of_step, onsets
from prism_jax.system import catalog as systems
from prism_jax.variability.config import default_for, preset
from prism_jax.workload import catalog as workloads

MODELS = ("llama-3.2-1b", "llama-3.2-3b", "llama-2-7b", "llama-2-13b", "llama-3-8b", "llama-3-70b")
CLUSTERS = ("dgx-a100", "dgx-h100", "b200", "aws-p4d", "aws-p5")
BAR = 0.9


@dataclass(frozen=True)
class RandomJob:
    """What a random job is made of."""

    model: str
    cluster: str
    seq_len: int
    micro_batch: int
    n_micro_batch: int
    n_devices: int = BASE


def job_of(task: RandomJob) -> Job:
    """Weak scaling of it on a number of GPUs."""
    system = systems.cluster(task.cluster, BASE)
    batch = BASE * task.micro_batch * task.n_micro_batch
    plan = ParallelPlan(task.micro_batch, batch, task.seq_len, dp=BASE, sharding="fsdp", dtype="bf16", recompute="full")
    job = Job(workloads.model(task.model), system, plan, preset(default_for(system.device)), task.model, "fsdp")
    return job_of_size(job, task.n_devices, "weak")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    start()
    rng = np.random.default_rng(given.seed)
    drawn = [_drawn(rng) for _ in range(given.jobs)]
    tasks = [RandomJob(**{**vars(one), "n_devices": n}) for one in drawn for n in SIZES]
    found = run_study(tasks, job_of, StudyRequest("mean", n_samples=256), workers=Workers(given.workers))
    near = []
    for k, one in enumerate(drawn):
        seen = _knee([own.figures for own in found[k * len(SIZES) : (k + 1) * len(SIZES)]])
        expected = of_step(job_of(one))
        near.append(_agrees(expected, seen))
        rings = " ".join(f"{own.ring:9,.0f}" for own in onsets(job_of(one)))
        print(f"{one.model:14} {one.cluster:10} {one.seq_len:6} x {one.micro_batch} x {one.n_micro_batch}   rings {rings}   "
              f"closed form {expected:9,.0f}   simulated {seen:9,.0f}   {'' if near[-1] else 'apart'}")  # fmt: skip
    share = float(np.mean(near))
    print(f"within one doubling: {100 * share:.0f} % of {len(near)} (bar {100 * BAR:.0f})")
    return int(share < BAR)


def _drawn(rng: np.random.Generator) -> RandomJob:
    return RandomJob(
        str(rng.choice(MODELS)),
        str(rng.choice(CLUSTERS)),
        int(rng.choice([1024, 2048, 4096, 8192])),
        int(rng.choice([1, 2, 4])),
        int(rng.choice([1, 2, 4])),
    )


def _knee(figures: Sequence[JobFigures | None]) -> float:
    """Where the exposed share of the simulated step passes 5%, between doublings; infinite if it does not."""
    shares = {n: own.exposed_dp_s / own.mean_s for n, own in zip(SIZES, figures, strict=True) if own}
    return crossing(lambda n: shares.get(n, 1.0), KNEE, SIZES[0]) if shares else inf


def _agrees(expected: float, seen: float) -> bool:
    """Within one doubling; both beyond the largest size agree."""
    if seen > SIZES[-1]:
        return expected > SIZES[-1] / 2
    return seen / 2 <= expected <= 2 * seen


if __name__ == "__main__":
    raise SystemExit(main())

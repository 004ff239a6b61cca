"""Share of the variance that lies between allocations, against brute force whose fleets live for several steps: 20 jobs.

The reference draws every replica of `--fleets` fleets for 16 steps each: analysis of variance, with the error of so many fleets.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import jax
import numpy as np

from prism_jax import load_job
from prism_jax.core.processes import start_jax
from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.simulate.allocation import allocation_spread
from prism_jax.simulate.predict import brute_force, symmetric
from prism_jax.simulate.program import lower
from prism_jax.system import catalog as clusters
from prism_jax.variability.config import preset
from prism_jax.workload import catalog as models

N_STEP = 16
PLANS = {
    "fsdp 16": {"dp": 16, "sharding": "fsdp"},
    "fsdp 64": {"dp": 64, "sharding": "fsdp"},
    "tp 8, one replica": {"tp": 8},
    "tp 8 x dp 8": {"tp": 8, "dp": 8},
    "dp 64": {"dp": 64},
    "pp 4, one replica": {"tp": 4, "pp": 4, "global_batch": 16},
    "pp 4 x dp 4": {"tp": 2, "pp": 4, "dp": 4, "global_batch": 64},
    "pp 2 x dp 32": {"pp": 2, "dp": 32, "global_batch": 256},
    "pp 8 x dp 2": {"pp": 8, "dp": 2, "global_batch": 32},
    "zb_h1, pp 4 x dp 8": {"pp": 4, "dp": 8, "global_batch": 64, "schedule": "zb_h1"},
}
DEVICES = {"dgx-a100": "a100-default", "dgx-h100": "h100-default"}


def jobs() -> list[Job]:
    """Ten plans on two kinds of cluster."""
    base = load_job("llama2_7b_fsdp_64")
    found = []
    for cluster, variability in DEVICES.items():
        for name, given in PLANS.items():
            plan = ParallelPlan(**{"micro_batch": 1, "global_batch": 64, "seq_len": 4096, **given})
            found.append(
                replace(
                    base,
                    name=f"{name} on {cluster}",
                    model=models.model("llama-2-7b"),
                    cluster=clusters.cluster(cluster, plan.n_devices),
                    plan=plan,
                    variability=preset(variability),
                )
            )
    return found


def reference(job: Job, n_fleet: int) -> tuple[float, float]:
    """Share between allocations by analysis of variance, and its standard error (normal means of fleets)."""
    whole = brute_force(lower(job), jax.random.key(9), N_STEP * n_fleet, explicit=False, steps_per_fleet=N_STEP)
    steps = whole.by_fleet_s
    between = steps.mean(axis=1).var(ddof=1) - steps.var(axis=1, ddof=1).mean() / N_STEP
    share = between / whole.std_s**2
    return share, share * (1.0 - share) * np.sqrt(2.0 / n_fleet)


def main() -> None:
    start_jax()
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--fleets", type=int, default=2000)
    given, distances = options.parse_args(), []
    print("job                              share       brute force   difference, points")
    for job in jobs():
        program = lower(job)
        found = allocation_spread(program, symmetric(program, jax.random.key(0), 512), jax.random.key(1))
        share, error = reference(job, given.fleets)
        distances.append(100.0 * (found.share - share))
        print(
            f"{job.name:30s} {found.share:.3f} ± {found.share_error:.3f}  {share:.3f} ± {error:.3f}  {distances[-1]:+.1f}",
            flush=True,
        )
    within = np.abs(distances) <= 3.0
    print(f"{within.sum()} of {len(distances)} within 3 points; largest {np.abs(distances).max():.1f}")


if __name__ == "__main__":
    main()

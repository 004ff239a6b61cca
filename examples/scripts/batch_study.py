"""How much of the tail is the spread between GPUs? One compiled program for 32 spreads, on a GPU where JAX finds one."""

import time
from dataclasses import replace

import jax
import numpy as np

from prism_jax import load_job, predict_many

job = load_job("llama3_405b_16384")
spreads = np.linspace(0.0, 3.0, 32)  # times the spread of the job's own preset
jobs = [replace(job, variability=job.variability.scaled(float(spread))) for spread in spreads]

started = time.perf_counter()
found = predict_many(jobs, key=jax.random.key(0))
device = jax.devices()[0]
print(
    f"{len(jobs)} jobs on {job.plan.n_devices:,} GPUs in {time.perf_counter() - started:.1f} s on {device.device_kind}"
)
for spread, step in list(zip(spreads, found, strict=True))[::4]:
    p50, p95, p99 = (step.quantile(p) for p in (0.5, 0.95, 0.99))
    print(f"spread x {spread:.2f}: p50 {p50:.3f} s, p95 +{p95 / p50 - 1:.1%}, p99 +{p99 / p50 - 1:.1%}")

"""DLRM-DCNv2 on 128 H100, every rank by itself: warm seconds of a prediction with its p95.

.venv/bin/python benchmarks/dlrm.py
"""

from __future__ import annotations

import statistics
import time

import jax

import prism_jax
from prism_jax.start_jax import start_jax

N_REPEAT = 7
OVERRIDES = ["plan.dp=128", "cluster.n_devices=128"]


def main() -> None:
    start_jax()
    job = prism_jax.load_job("dlrm_dcnv2_64", OVERRIDES)
    print(f"{job.model.name} on {job.plan.n_devices} devices, {job.plan.n_member} of which step together")
    for method, n_samples in (("brute_force", 512), ("brute_force", 2048), ("symmetric", 512)):
        seconds, busy, p95_s, error_s = [], [], 0.0, 0.0
        for repeat in range(N_REPEAT + 1):
            start, processor = time.perf_counter(), time.process_time()
            step = prism_jax.predict(job, key=jax.random.key(repeat), n_samples=n_samples, method=method)
            p95_s, error_s = step.quantile(0.95), step.mc_error(0.95)
            seconds.append(time.perf_counter() - start)
            busy.append(time.process_time() - processor)
        median_ms, best_ms = 1e3 * statistics.median(seconds[1:]), 1e3 * min(seconds[1:])
        busy_ms = 1e3 * statistics.median(busy[1:])
        warm = f"warm {median_ms:.0f} ms, at best {best_ms:.0f}, of which the processor {busy_ms:.0f}"
        print(f"  {method}, {n_samples} draws: {warm}; p95 {1e3 * p95_s:.3f} ± {1e3 * error_s:.3f} ms")


if __name__ == "__main__":
    main()

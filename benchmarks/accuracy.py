"""RMSE of the default method against brute force on the 16,384-GPU job, over 40 seeds.

The reference is 100,000 steps in which every GPU is drawn, in independent parts, so that its own standard error is known.
"""

from __future__ import annotations

import argparse
import time

import jax
import numpy as np

from prism_jax import load_job, predict
from prism_jax.core.processes import start_jax

QUANTILES = (0.05, 0.5, 0.95, 0.99)


def main() -> None:
    start_jax()
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--job", default="examples/llama3_405b_16384.yaml")
    options.add_argument("--steps", type=int, default=100_000)
    options.add_argument("--parts", type=int, default=10)
    options.add_argument("--seeds", type=int, default=40)
    options.add_argument("--samples", type=int, nargs="+", default=[512, 1024, 2048])
    given = options.parse_args()
    job = load_job(given.job)
    started = time.perf_counter()
    size = given.steps // given.parts
    parts = [
        predict(job, key=jax.random.key(10_000 + part), n_samples=size, method="brute_force").samples_s
        for part in range(given.parts)
    ]
    reference = np.quantile(np.concatenate(parts), QUANTILES)
    error = np.quantile(parts, QUANTILES, axis=1).std(axis=1, ddof=1) / np.sqrt(given.parts)
    print(f"{job.name}: brute force, {given.steps} steps, {time.perf_counter() - started:.0f} s")
    _row("reference, s", reference)
    _row("its standard error, %", 100 * error / reference)
    for n in given.samples:
        found = [predict(job, key=jax.random.key(seed), n_samples=n) for seed in range(given.seeds)]
        estimates = np.array([[d.quantile(p) for p in QUANTILES] for d in found])
        fallen = sum(d.method != "symmetric" for d in found)
        relative = 100 * (estimates / reference - 1)
        print(f"symmetric, {n} columns, {given.seeds} seeds, {fallen} fell back")
        _row("RMSE, %", np.sqrt((relative**2).mean(axis=0)))
        _row("bias, %", relative.mean(axis=0))
        _row(
            "reported error, %", 100 * np.mean([[d.mc_error(p) for p in QUANTILES] for d in found], axis=0) / reference
        )


def _row(name: str, values: np.ndarray) -> None:
    print(f"  {name:24s}" + "".join(f"  p{100 * p:<4g}{v:9.4f}" for p, v in zip(QUANTILES, values, strict=True)))


if __name__ == "__main__":
    main()

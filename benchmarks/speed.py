"""Warm speed: the default method at two sizes, and brute force per core against straightforward NumPy on the same step."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import jax
import numpy as np

from prism_jax import Job, load_job, predict
from prism_jax.core.processes import start_jax
from prism_jax.simulate.program import Program, lower

REPEATS = 15
BRUTE_STEPS = 128
PLAIN_1F1B = ["plan.schedule=1f1b", "plan.virtual_stages=1", "plan.global_batch=8192"]  # 64 micro-batches, 128 ops
DLRM, DLRM_STEPS = ("dlrm_dcnv2_64", ["plan.dp=128", "cluster.n_devices=128"]), 1024
SIZES = ("examples/llama3_405b_16384.yaml", "examples/llama3_405b_65536.yaml")


def main() -> None:
    start_jax()
    print(f"jax {jax.__version__}, {len(jax.devices())} devices")
    jobs = [load_job(path) for path in SIZES]
    warm = [_wall(lambda seed, j=job: predict(j, key=jax.random.key(seed))) for job in jobs]
    for job, wall in zip(jobs, warm, strict=True):
        print(
            f"default method, {job.plan.n_devices} GPUs, warm: median {1e3 * median(wall):.1f} ms, min {1e3 * min(wall):.1f} ms"
        )
    print(f"  ratio of the larger to the smaller: {median(warm[1]) / median(warm[0]):.2f}")
    for job in (jobs[0], load_job(SIZES[0], PLAIN_1F1B)):
        report_brute_force(job)
    report_explicit_ranks(load_job(*DLRM))


def report_explicit_ranks(job: Job) -> None:
    """Warm seconds of p95 where every rank is drawn by itself, since an all-to-all ties them all."""

    def p95_s(seed: int) -> float:
        step = predict(job, key=jax.random.key(seed), n_samples=DLRM_STEPS, method="brute_force")
        return step.quantile(0.95)

    wall, processor = _wall(p95_s), _processor(p95_s)
    print(f"p95 of {job.model.name}, {job.plan.n_devices} explicit ranks, {DLRM_STEPS} steps, warm: ", end="")
    print(
        f"median {1e3 * median(wall):.0f} ms, min {1e3 * min(wall):.0f} ms; processor {1e3 * median(processor):.0f} ms"
    )


def report_brute_force(job: Job) -> None:
    """GPU-steps per processor second, ours and NumPy's."""
    brute = _processor(lambda seed: predict(job, key=jax.random.key(seed), n_samples=BRUTE_STEPS, method="brute_force"))
    ours = BRUTE_STEPS * job.plan.n_devices / min(brute)
    program = lower(job)
    numpy = 2 * job.plan.n_devices / min(_processor(lambda seed: numpy_steps(program, 2, seed)))
    draws = int((program.graph.op >= 0).sum()) // program.n_lane
    name = f"brute force, {job.plan.schedule}, {draws} ops per GPU and step"
    print(f"{name}: {ours / 1e6:.2f} M GPU-steps, {ours * draws / 1e6:.0f} M op draws per processor second")
    print(f"  NumPy, vectorised over replicas: {numpy / 1e6:.2f} M GPU-steps; ratio {ours / numpy:.1f}")


def numpy_steps(program: Program, n_steps: int, seed: int) -> np.ndarray:
    """The same brute-force step, an op at a time over all replicas, as one would write it in NumPy (no network regime)."""
    rng = np.random.Generator(np.random.SFC64(seed))
    graph, n_column = program.graph, n_steps * program.n_replica
    shape = (program.n_member, graph.n_lane, n_column)
    chip = (1.0 + 0.01 * rng.standard_normal(shape, dtype=np.float32)).astype(np.float32)
    end = np.zeros((graph.n_level + 1, graph.n_lane, n_column), dtype=np.float32)
    busy, comm = graph.compute_s.sum(axis=-1).astype(np.float32), graph.comm_s.sum(axis=-1).astype(np.float32)
    free = np.zeros((graph.n_lane, n_column), dtype=np.float32)
    for level in range(graph.n_level):
        start = free
        for d in range(graph.dep_level.shape[-1]):
            before = end[graph.dep_level[level, :, d], graph.dep_lane[level, :, d]]  # level -1 is all zeros
            start = np.maximum(start, before + graph.lag_s[level, :, d, None].astype(np.float32))
        residual = 1.0 + 0.001 * rng.standard_normal(shape, dtype=np.float32)
        free = start + busy[level, :, None] * (chip * residual).max(axis=0) + comm[level, :, None]
        end[level] = free
    return free.max(axis=0).reshape(n_steps, -1).max(axis=1)


def _wall(run: Callable[[int], object]) -> list[float]:
    return _times(run, time.perf_counter)


def _processor(run: Callable[[int], object]) -> list[float]:
    return _times(run, time.process_time, repeats=4)


def _times(run: Callable[[int], object], clock: Callable[[], float], repeats: int = REPEATS) -> list[float]:
    run(0)
    found = []
    for seed in range(1, repeats + 1):
        started = clock()
        run(seed)
        found.append(clock() - started)
    return found


if __name__ == "__main__":
    main()

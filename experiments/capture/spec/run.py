"""Does a captured program cost what the same job described by its sizes costs?

python experiments/capture/spec/run.py [JOB ...]

Jobs of ours are written down row by row as if they had been captured (`prism_jax/capture/from_job.py`), packed into the file of a
capture, read again, and predicted with the same cluster, software and corrections as the job itself. Compared are products (m, n,
k, batch) weighted by FLOPs, bytes per axis, and the noise-free step.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import jax

from experiments.common import start
from prism_jax import load_job, predict, read_capture, write_capture
from prism_jax.capture.from_job import program_of_job
from prism_jax.cost.partition import chunk_blocks
from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.variability.tree import Variability
from prism_jax.workload.base.workload import Workload, distinct_runs
from prism_jax.workload.captured.check import plan_fields
from prism_jax.workload.captured.model import CapturedModel

JOBS = (
    "llama3_405b_16384",
    "llama3_405b_8192",
    "llama2_7b_fsdp_64",
    "gpt3_175b_1024",
    "bert_large_1024",
    "t5_11b_256",
    "vit_h_14_64",
    "dit_xl_2_32",
)
QUIET = Variability(name="none")
Product = tuple[int, int, int, int]


def stated(job: Job) -> Job:
    """The job with all of its software stated, so that nothing of it is open for one of the two and known for the other."""
    return replace(job, plan=replace(job.plan, software=replace(job.plan.software, compile=False)), filled=())


def captured(job: Job) -> Job:
    """The job with the program that its file holds in the place of its model."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.capture.gz"
        write_capture(file, program_of_job(job))
        program = read_capture(file)
    known = {name: value for name, value in plan_fields(program).items() if name != "state_dtypes"}
    plain = ParallelPlan(micro_batch=1, global_batch=1)
    recompute = {name: getattr(plain, name) for name in ("recompute", "recompute_modules", "recompute_num_layers")}
    plan = replace(job.plan, **known | recompute | {"schedule": job.plan.schedule})
    return replace(job, model=CapturedModel(program), plan=plan, calibration=job.effective_calibration)


def products(model: Workload, plan: ParallelPlan) -> Counter[Product]:
    """FLOPs of every product of a micro-batch on all stages, by its sizes."""
    found: Counter[Product] = Counter()
    for (kind, *_), n in _blocks(model, plan):
        for op in model.block(kind, plan).kernels.ops:
            if op.kernel == "gemm":  # one kernel that stands for two launches is two products of half the batch
                batch = op.batch / math.gcd(max(round(op.n_launch), 1), round(op.batch))
                found[round(op.m), round(op.n), round(op.k), round(batch)] += round(n * op.count * op.flops)
    return found


def axis_bytes(model: Workload, plan: ParallelPlan) -> Counter[str]:
    """Bytes of the collectives inside the passes of a micro-batch on all stages, by axis."""
    found: Counter[str] = Counter()
    for (kind, *_), n in _blocks(model, plan):
        for comm in model.block(kind, plan).comms:
            if comm.axis != "dp" and comm.size > 1:
                found[comm.axis] += round(n * comm.count * comm.n_bytes)
    return found


def _blocks(model: Workload, plan: ParallelPlan) -> list[tuple[tuple[str, ...], int]]:
    runs = distinct_runs(model)
    chunks = chunk_blocks(model, plan)
    return [((run.kind,), sum(chunk[i] for chunk in chunks)) for i, run in enumerate(runs)]


def overlap(one: Counter[Product], other: Counter[Product]) -> float:
    """Share of the FLOPs of `one` that is in both."""
    return sum(min(n, other[key]) for key, n in one.items()) / max(sum(one.values()), 1)


def quiet_step_s(job: Job) -> float:
    """Seconds of a step without variability."""
    return float(predict(replace(job, variability=QUIET), key=jax.random.key(0), n_samples=64).quantile(0.5))


def main() -> None:
    """Prints the table of the README."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", default=JOBS)
    start()
    print(f"{'job':<20} {'rows':>6} {'products':>9} {'bytes':>7} {'spec s':>9} {'capture s':>9} {'off':>7}")
    worst = 0.0
    for name in parser.parse_args().jobs:
        job = stated(load_job(name))
        own = captured(job)
        share = overlap(products(job.model, job.plan), products(own.model, own.plan))
        before, after = axis_bytes(job.model, job.plan), axis_bytes(own.model, own.plan)
        apart = max((abs(after[axis] / n - 1.0) for axis, n in before.items() if n), default=0.0)
        spec_s, capture_s = quiet_step_s(job), quiet_step_s(own)
        worst = max(worst, abs(capture_s / spec_s - 1.0))
        rows = own.model.program.n_rows  # type: ignore[attr-defined]
        off = capture_s / spec_s - 1.0
        print(f"{name:<20} {rows:>6} {share:>9.2%} {apart:>7.2%} {spec_s:>9.4f} {capture_s:>9.4f} {off:>+7.2%}")
    print(f"worst {worst:.2%}")


if __name__ == "__main__":
    main()

"""The work of micro-batches of a recorded job, inferred from half of its steps, as an input of `step_time`.

    python experiments/recorded_jobs/work_factors.py --data FOLDER      (FOLDER holds trace-SE.parquet)

The recording (dp 32 x pp 2, 8 micro-batches) has durations, but neither lengths nor a model. A job of its shape is made whose
stages take the recorded mean seconds: equal layers on both, and a vocabulary so large that the last stage takes as much longer as
it did. A micro-batch that takes d seconds longer than the mean, in the mean of both stages, does so by its attention. These
factors are drawn anew from the recorded steps of one half, those of a replica's step together: its micro-batches are more alike
than those of others (means of eight scatter by 1.12 times the variance of independent ones, and are more skewed). What a step
takes beside the pipeline (gradients, start) is the median over that half. Random halves: error of the p95 of the other half
(against the median p95 of as many drawn steps), and the Kolmogorov-Smirnov distance of the steps of the other half from those
that are drawn.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

import prism_jax
from experiments.common import run_parts, start
from prism_jax.core.arrays import Floats
from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.simulate.program import lower
from prism_jax.system.catalog import cluster
from prism_jax.trace.trace import Trace
from prism_jax.variability.config import preset
from prism_jax.workload.transformer.spec import TransformerSpec

N_SPLIT, N_DRAW, N_SET = 20, 1024, 400
BARS = {"p95": 0.05, "ks": 0.25}


class Recording(NamedTuple):
    """What a recording says of work.

    Attributes:
        stage_s: [stage] mean seconds of a micro-batch, forward and backward.
        excess_s: [replica, micro_batch, step] seconds that it takes longer, in the mean of the stages.
        step_s: [step] of the steps.
    """

    stage_s: Floats
    excess_s: Floats
    step_s: Floats


def recording_of(trace: Trace) -> Recording:
    """Seconds of the compute of every micro-batch."""
    ops = [(index, op) for index, op in enumerate(trace.ops) if op.op_type.endswith("-compute")]
    stages = max(op.stage for _, op in ops) + 1
    micro_batches = max(op.micro_batch for _, op in ops) + 1
    duration_s = trace.end_s - trace.start_s
    seconds = np.zeros((stages, micro_batches, *duration_s.shape[1:]))
    for index, op in ops:
        seconds[op.stage, op.micro_batch] += duration_s[index]
    mean_s = seconds.mean(axis=(1, 2, 3))
    excess_s = (seconds - mean_s[:, None, None, None]).mean(axis=0)
    return Recording(mean_s, np.swapaxes(excess_s, 0, 1), np.asarray(trace.step_s))


def job_of(found: Recording) -> tuple[Job, float]:
    """A job whose stages take as long as the recorded ones in proportion, and by how much all devices are slowed."""
    n_replica, n_micro_batch, _ = found.excess_s.shape
    plan = ParallelPlan(1, n_replica * n_micro_batch, 131_072, dp=n_replica, pp=2)
    one = TransformerSpec(name="recorded", n_layers=4, hidden=2048, n_heads=16, ffn_hidden=4096, vocab=1024)
    low, high = 1024, 4_000_000
    wanted = found.stage_s[1] / found.stage_s[0]
    while high - low > 256:
        vocab = (low + high) // 2
        job = Job(replace(one, vocab=vocab), cluster("dgx-h100", plan.n_devices), plan, preset("none"))
        stage_s = lower(job).cost.compute_s.sum(axis=(0, 2))
        low, high = (vocab, high) if stage_s[1] / stage_s[0] < wanted else (low, vocab)
    return job, float(found.stage_s.sum() / stage_s.sum())


def steps_s(job: Job, slowdown: float, excess_s: Floats) -> Floats:
    """Seconds of steps [sample] whose micro-batches take so much longer [replica, micro_batch, sample]."""
    cost = lower(job).cost
    attention_s = slowdown * cost.compute_s[:, 0, cost.classes.index("attention")].sum()
    factor = np.maximum(1.0 + excess_s / attention_s, 1e-3)
    slow = np.full((job.plan.n_devices, factor.shape[-1]), slowdown)
    work = {"tokens": np.ones((*factor.shape[:2], 1)), "attention": factor}
    return np.asarray(prism_jax.step_time(job, slow, work=work), dtype=float)


def split(found: Recording, job: Job, slowdown: float, rng: np.random.Generator) -> tuple[float, float]:
    """Relative error of the p95 of the other half of the steps, and their distance."""
    order = rng.permutation(len(found.step_s))
    known, other = np.array_split(order, 2)
    own = steps_s(job, slowdown, found.excess_s[..., known])
    beside_s = float(np.median(found.step_s[known] - own))
    n_replica, n_micro_batch, _ = found.excess_s.shape
    pool = np.swapaxes(found.excess_s[..., known], 1, 2).reshape(-1, n_micro_batch)
    drawn = np.swapaxes(pool[rng.integers(len(pool), size=(n_replica, N_DRAW))], 1, 2)
    drawn_s = steps_s(job, slowdown, drawn) + beside_s
    sets = rng.choice(drawn_s, size=(N_SET, len(other)))
    expected, measured = np.median(np.quantile(sets, 0.95, axis=1)), np.quantile(found.step_s[other], 0.95)
    at = np.sort(found.step_s[other])
    below, rank = np.searchsorted(np.sort(drawn_s), at) / N_DRAW, np.arange(len(at) + 1) / len(at)
    ks = max(np.abs(below - rank[:-1]).max(), np.abs(below - rank[1:]).max())
    return float(expected / measured - 1.0), float(ks)


def scores(file: Path, n_split: int = N_SPLIT) -> tuple[Floats, Floats]:
    """Errors of the p95 and distances [split]."""
    recorded = open_trace(file)
    assert isinstance(recorded, Trace)
    found = recording_of(recorded)
    job, slowdown = job_of(found)
    rng = np.random.default_rng(0)
    errors, distances = np.array([split(found, job, slowdown, rng) for _ in range(n_split)]).T
    return errors, distances


def halves(folder: Path) -> None:
    """Prints the figures, and says which bar is missed."""
    start()
    errors, distances = scores(folder / "trace-SE.parquet")
    figures = {"p95": float(np.median(np.abs(errors))), "ks": float(np.median(distances))}
    print(
        f"p95: median error {figures['p95']:.1%} of {N_SPLIT} splits (bar {BARS['p95']:.0%}), mean {errors.mean():+.1%}"
    )
    print(f"KS: median {figures['ks']:.3f} (bar {BARS['ks']})")
    if any(figures[name] > bar for name, bar in BARS.items()):
        raise SystemExit("a bar is missed")


if __name__ == "__main__":
    run_parts(__doc__, {"halves": halves})

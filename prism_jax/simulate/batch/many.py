"""predict_many: the step times of many jobs, for sweeps; jobs of one shape share one compiled program."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
from jax import Array

from ...job import Job
from ...progress import Progress, silent
from ...result import StepTimeDistribution
from ..inputs import column_inputs, regime_factors
from ..predict import DEFAULT_COLUMNS, REGIME_SCORES, predict
from ..program import lower


def predict_many(
    jobs: Sequence[Job], *, key: Array, n_samples: int = DEFAULT_COLUMNS, progress: Progress = silent
) -> list[StepTimeDistribution]:
    """Distribution of the step time of every job, in their order.

    Args:
        jobs: as many as one likes; those that differ in variability, times or micro-batches only share a compiled program.
        key: typed PRNG key. All jobs see the same draws, so that their differences are known better than their values.
        n_samples: as in `predict`.
        progress: told what is done.

    Raises:
        PlanError: a plan is impossible for its model or cluster.

    Notes:
        Programs of unlike shapes compile at the same time, one per core; every job gives what `predict(..., pad=True)` does.
    """
    one = partial(_one, key=key, n_samples=n_samples)
    found: dict[int, StepTimeDistribution] = {}
    first = {_shape(job): number for number, job in reversed([*enumerate(jobs)])}
    told = _Counter(len(jobs), progress)
    with ThreadPoolExecutor(max_workers=max(1, min(len(first), os.cpu_count() or 1))) as pool:
        for number, result in zip(first.values(), pool.map(one, [jobs[n] for n in first.values()]), strict=True):
            found[number] = result
            told()
    for number, job in enumerate(jobs):
        if number not in found:
            found[number] = one(job)
            told()
    return [found[number] for number in range(len(jobs))]


def _one(job: Job, *, key: Array, n_samples: int) -> StepTimeDistribution:
    return predict(job, key=key, n_samples=n_samples, pad=True)


def _shape(job: Job) -> Hashable:
    """What decides which compiled program a job runs."""
    program = lower(job, True)
    scores = REGIME_SCORES if program.varying_regime else REGIME_SCORES[:1]
    leaves, structure = jax.tree.flatten(column_inputs(program, regime_factors(program, scores)))
    return structure, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)


class _Counter:
    """Tells how many of `n` jobs are done."""

    def __init__(self, n: int, progress: Progress) -> None:
        self.n, self.done, self.progress = n, 0, progress

    def __call__(self) -> None:
        self.done += 1
        self.progress(self.done / self.n, "jobs")

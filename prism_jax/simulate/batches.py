"""Predicts many jobs with one key: sweeps over jobs, and quantiles under draws of the variability; alike programs compile
once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax
import numpy as np
from jax import Array

from ..core.processes import Progress, silent
from ..graph.draws import ScoreChain, on_accelerator, typed_key
from ..job.job import Job
from ..result.distribution import MedianInterval, StepTimeDistribution
from ..variability.tree import Variability
from .inputs import KnownGpus, column_inputs, regime_factors
from .predict import DEFAULT_COLUMNS, REGIME_SCORES, columns_or_full, columns_or_full_of_jobs
from .program import Program, by_class, lower

LEVEL = 0.9
CHAINS = ("gpu", "node", "link")
RESIDUALS = ("compute_residual", "comm_residual")
JOBS_AT_ONCE = 32  # that are held lowered


def epistemic_band(
    job: Job,
    draws: Sequence[Variability],
    quantiles: Mapping[str, float],
    *,
    key: Array,
    n_samples: int,
    known: KnownGpus | None = None,
    progress: Progress = silent,
) -> dict[str, MedianInterval]:
    """Median and 90% interval of each quantile of the step time, seconds, over `draws` of the job's variability.

    Args:
        draws: posterior draws; 20 or more for an interval that means something.
        quantiles: name -> probability.
        key: one for all draws, so that Monte Carlo error hardly widens the band.
        n_samples: as in `predict`.
        known: persistent slowdowns of GPUs that were measured, the same in all draws.
        progress: called with the share that is done.
    """
    told = _Counter(len(draws), lambda done, _="", /: progress(done))
    programs = [lower(replace(job, variability=draw)) for draw in draws]
    if known is None:
        distributions = _alike_together(alike(programs), key, n_samples, told)
    else:
        distributions = []
        for program in alike([by_class(program) for program in programs]):
            distributions.append(columns_or_full(program, key, n_samples, known))
            told()
    found = [[distribution.quantile(p) for p in quantiles.values()] for distribution in distributions]
    low, middle, high = np.quantile(np.array(found), [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2], axis=0)
    return {name: MedianInterval(float(middle[i]), float(low[i]), float(high[i])) for i, name in enumerate(quantiles)}


def alike(programs: Sequence[Program]) -> list[Program]:
    """Returns the same programs with score chains of equal length, so that what is compiled for one draw serves the next."""
    longest: dict[tuple[str, int], int] = {}
    for program in programs:
        for place, chain in _chains(program).items():
            longest[place] = max(longest.get(place, 0), len(chain.knots))
    return [_with_chains(p, {at: chain.lengthened(longest[at]) for at, chain in _chains(p).items()}) for p in programs]


def _chains(program: Program) -> dict[tuple[str, int], ScoreChain]:
    """Field and position -> chain."""
    several = {(name, i): chain for name in CHAINS for i, chain in enumerate(getattr(program, name))}
    single = {(name, 0): getattr(program, name) for name in RESIDUALS if getattr(program, name) is not None}
    return several | single


def _with_chains(program: Program, chains: Mapping[tuple[str, int], ScoreChain]) -> Program:
    several = {name: tuple(chains[name, i] for i in range(len(getattr(program, name)))) for name in CHAINS}
    return replace(program, **several, **{name: chains.get((name, 0)) for name in RESIDUALS})


def predict_many(
    jobs: Sequence[Job], *, key: Array | int, n_samples: int = DEFAULT_COLUMNS, progress: Progress = silent
) -> list[StepTimeDistribution]:
    """Distribution of the step time of every job, in their order.

    Args:
        jobs: as many as one likes; those that differ in variability, times or micro-batches only share a compiled program.
        key: typed PRNG key or an integer seed. All jobs see the same draws, so that their differences are known better than
            their values.
        n_samples: as in `predict`.
        progress: told what is done.

    Raises:
        PlanError: a plan is impossible for its model or cluster.

    Notes:
        Programs of unlike shapes compile at the same time, one per core; every job gives what `predict(..., pad=True)` does.
    """
    told, found = _Counter(len(jobs), progress), []
    for first in range(0, len(jobs), JOBS_AT_ONCE):
        programs = [lower(job, True) for job in jobs[first : first + JOBS_AT_ONCE]]
        found += _alike_together(programs, typed_key(key), n_samples, told)
    return found


def _alike_together(
    programs: Sequence[Program], key: Array, n_samples: int, told: Callable[[], None]
) -> list[StepTimeDistribution]:
    """Distributions of programs; the first of every shape at the same time, or all of them where that is no slower."""
    by_shape: dict[Hashable, list[int]] = {}
    for number, program in enumerate(programs):
        by_shape.setdefault(_shape(program), []).append(number)
    parts = [every if on_accelerator() else every[:1] for every in by_shape.values()]
    found: dict[int, StepTimeDistribution] = {}

    def run(part: list[int]) -> list[StepTimeDistribution]:
        return [*columns_or_full_of_jobs([programs[number] for number in part], key, n_samples)]

    def keep(part: list[int], own: list[StepTimeDistribution]) -> None:
        found.update(zip(part, own, strict=True))
        for _ in part:
            told()

    with ThreadPoolExecutor(max_workers=max(1, min(len(parts), os.cpu_count() or 1))) as pool:
        side_by_side = pool.map if len(parts) > 1 else map
        for part, own in zip(parts, side_by_side(run, parts), strict=True):
            keep(part, own)
    for number in range(len(programs)):
        if number not in found:
            keep([number], run([number]))
    return [found[number] for number in range(len(programs))]


def _shape(program: Program) -> Hashable:
    """Returns the key of the compiled program that a program runs: structure, shapes and dtypes."""
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

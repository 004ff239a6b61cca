"""Describes the kernels of a recorded job pool by pool: how long, how variable, and what the steps would be if each held still.

A pool varies around the mean of each place in the program, within a GPU and between GPUs. What is shared by all kernels of a run
is no pool's fault: a pool held still takes, in every run, its mean times the factor that the other pools of the run show. The
recorded steps are replayed so; what their p95 loses is what the pool's own variation costs. Losses do not add up, since a step
waits for its slowest rank.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats, Ints
from ..trace.trace import TraceKernels
from .factor_shape import choose_shape
from .kernel_draws import entry_means
from .kernel_report import PoolFacts, PoolTable
from .recorded_job import RecordedJob
from .replay import replay, replay_program

P95 = 0.95
LARGE = 0.25  # share of a run from which a pool is left out of what its run shares
FEWEST = 8  # recorded values from which a family is chosen


def pool_table(job: RecordedJob, kernels: TraceKernels, top: int) -> PoolTable:
    """Describes the pools of `job`.

    Args:
        job: fitted to the trace.
        kernels: of the trace.
        top: pools that are held still in turn: those whose own variation has the largest standard deviation in a step.
    """
    whole_s = float(job.run_s[np.unique(kernels.op)].sum())
    mean, still = entry_means(kernels), _StillPools(job, kernels)
    pools = np.unique(kernels.pool).tolist()
    found = {pool: _facts(kernels, mean, pool, whole_s) for pool in pools}
    rest = 1.0 - sum(one.share for one in found.values())
    base_s = still.steps(job.run_s)
    own_s = {pool: float(still.moves(pool)[1].sum(axis=0).std(axis=-1).mean()) for pool in pools}
    asked = [pool for pool in sorted(pools, key=lambda one: -own_s[one]) if own_s[pool] > 0.0]
    for pool in asked[:top] if len(base_s) > 1 else ():
        step_s = still.steps(still.without(pool))
        found[pool] = replace(
            found[pool],
            family=_family(kernels, mean, pool),
            saved_p95_s=float(np.quantile(base_s, P95) - np.quantile(step_s, P95)),
            saved_std_s=float(base_s.std() - step_s.std()),
        )
    ordered = sorted(
        found.values(), key=lambda one: (one.saved_p95_s is None, -(one.saved_p95_s or 0.0), -one.share, one.name)
    )
    n_cell = job.run_s.shape[1] * job.run_s.shape[2]
    return PoolTable(tuple(ordered), rest, whole_s / n_cell, float(np.quantile(base_s, P95)))


class _StillPools:
    """Steps replayed with one pool at what the others of its runs lead to expect."""

    def __init__(self, job: RecordedJob, kernels: TraceKernels) -> None:
        self.job, self.kernels, self.mean = job, kernels, entry_means(kernels)
        self.program = replay_program(job.trace, job.waits.needs, job.trace.n_replica)
        self.entries = {op: np.flatnonzero(kernels.op == op) for op in np.unique(kernels.op).tolist()}
        self.factor = {op: self._shared(mine) for op, mine in self.entries.items()}

    def _shared(self, entries: NDArray[np.intp]) -> Floats:
        """[replica, step] factor that most of the time of `entries` shares: their median, weighted by their means; 1 for none."""
        ratio = self.kernels.seconds[entries] / self.mean[entries][:, None, None]
        if len(entries) == 0:
            return np.ones(self.kernels.seconds.shape[1:])
        order = np.argsort(ratio, axis=0)  # those that did not run come last
        ratio = np.take_along_axis(ratio, order, axis=0)
        weight = np.where(np.isnan(ratio), 0.0, self.mean[entries][order])
        below = np.cumsum(weight, axis=0)
        at = (below < 0.5 * below[-1]).sum(axis=0)[None]
        return np.nan_to_num(np.take_along_axis(ratio, at, axis=0)[0], nan=1.0)

    def moves(self, pool: int) -> tuple[Ints, Floats]:
        """Ops of the pool, and the seconds [op, replica, step] by which its kernels are longer than expected there."""
        mine = np.flatnonzero(self.kernels.pool == pool)
        ops, at = np.unique(self.kernels.op[mine], return_inverse=True)
        moved = np.zeros((len(ops), *self.kernels.seconds.shape[1:]))
        for index, op in enumerate(ops.tolist()):
            every, own = self.entries[op], mine[at == index]
            large = self.mean[own].sum() > LARGE * self.mean[every].sum()  # else its own part does not move the median
            factor = self._shared(np.setdiff1d(every, own)) if large else self.factor[op]
            seconds = self.kernels.seconds[own]
            moved[index] = np.nansum(seconds - self.mean[own][:, None, None] * factor, axis=0)
        return ops, moved

    def without(self, pool: int) -> Floats:
        """Work [op, replica, step] with the pool held still."""
        ops, moved = self.moves(pool)
        run_s = self.job.run_s.copy()
        run_s[ops] = np.maximum(run_s[ops] - moved, 0.0)
        return run_s

    def steps(self, run_s: Floats) -> Floats:
        """Replayed steps [step]."""
        return replay(self.program, run_s, self.job.gap_s)


def _facts(kernels: TraceKernels, mean: Floats, pool: int, whole_s: float) -> PoolFacts:
    mine = np.flatnonzero(kernels.pool == pool)
    seconds = kernels.seconds[mine]
    ratio = seconds / mean[mine][:, None, None]
    count = int((~np.isnan(seconds)).sum())
    within, between = _spreads(ratio)
    total_s = float(np.nansum(seconds))
    cv = float(np.nanstd(ratio))
    return PoolFacts(*kernels.pools[pool], count, total_s / count, total_s / whole_s, cv, within, between)


def _spreads(ratio: Floats) -> tuple[float, float | None]:
    """Standard deviations of `ratio` [entry, replica, step] on one replica's GPU, and of GPUs without what that explains."""
    known = ~np.isnan(ratio)
    n = known.sum(axis=(0, 2))
    ran = n > 0
    if ran.sum() < 2:
        return float(np.nanstd(ratio)), None
    mean = np.nansum(ratio[:, ran], axis=(0, 2)) / n[ran]
    rest = np.where(known[:, ran], ratio[:, ran] - mean[None, :, None], 0.0)
    free = max(int(n.sum()) - int(ran.sum()), 1)
    within = float((rest**2).sum()) / free
    between = float(mean.var(ddof=1)) - within * float((1.0 / n[ran]).mean())
    return float(np.sqrt(within)), float(np.sqrt(max(between, 0.0)))


def _family(kernels: TraceKernels, mean: Floats, pool: int) -> str | None:
    mine = np.flatnonzero(kernels.pool == pool)
    ratio = (kernels.seconds[mine] / mean[mine][:, None, None]).T.ravel()  # in the order of steps
    known = ratio[~np.isnan(ratio) & (ratio > 0)]
    return choose_shape(np.log(known)).name if len(known) >= FEWEST else None

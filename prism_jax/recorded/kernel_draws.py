"""Splits the compute of a recorded job into what its kernels share and what each has of its own, to draw the latter anew.

A run of kernels takes M f + rest, with M the sum of their means and f the factor that all share (clocks, the length of a
sequence, a slow GPU). What is left of a kernel is its own, and alike for all kernels of its pool:

    seconds = mean f (1 + own),    own ~ the pool's recorded values

The own part of a run is the sum of as many independent values as it has kernels, weighted by their share of M: a product of
powers of characteristic functions, found by FFT on one grid. The factor f was read off sums that contain the own parts; it is
drawn towards its mean until both together vary as the recorded run does,

    f' = c + k (f - c),    c = mean f,    k^2 = 1 - var(own sum) / var(f)

so that a run redrawn has the mean and the variance of the recorded ones, but is not one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..core.arrays import Floats, Ints
from ..trace.trace import TraceKernels

N_GRID = 4096
MOST_SD = 10.0  # of a sum; beyond it, and the largest single kernel, nothing is drawn
MOST_VALUES = 4096  # of a pool


@dataclass(frozen=True)
class KernelDraws:
    """Own parts of the kernels of a job.

    Attributes:
        shared: [op, replica, step] seconds without own parts over recorded seconds; 1 for ops without kernels.
        op: [run] ops whose kernels are drawn.
        factor: [run, grid] values of the factor by which a run's own parts move it.
        below: [run, grid] probability of less.
        n_pool: pools that vary.
    """

    shared: Floats
    op: Ints
    factor: Floats
    below: Floats
    n_pool: int

    def drawn(self, u: Floats) -> Floats:
        """Factors [run, ...] at the probabilities `u` [run, ...]."""
        rows = [np.interp(one, below, factor) for one, below, factor in zip(u, self.below, self.factor, strict=True)]
        return np.stack(rows) if rows else np.ones_like(u)

    def of_ops(self, origin: Ints) -> KernelDraws:
        """Returns the own parts of a job of whose ops each takes after one of these: `origin` [op]."""
        row = np.full(len(self.shared), -1)
        row[self.op] = np.arange(len(self.op))
        ops = np.flatnonzero(row[origin] >= 0)
        rows = row[np.asarray(origin)[ops]]
        return replace(
            self, shared=self.shared[origin], op=ops.astype(np.int32), factor=self.factor[rows], below=self.below[rows]
        )


def kernel_draws(kernels: TraceKernels, run_s: Floats) -> KernelDraws:
    """Own parts of the `kernels` of a job, and its seconds of work without them.

    Args:
        kernels: of the recorded steps.
        run_s: [op, replica, step] seconds of work.
    """
    mean = entry_means(kernels)
    busy, base = run_sums(kernels, kernels.seconds, run_s.shape), run_sums(kernels, _at(mean, kernels), run_s.shape)
    factor = np.divide(busy, base, out=np.ones_like(busy), where=base > 0)
    own = kernels.seconds / (mean[:, None, None] * factor[kernels.op]) - 1.0
    values = [_centred(own[kernels.pool == pool]) for pool in range(len(kernels.pools))]
    shared, rows = np.ones_like(run_s), []
    for op in np.unique(kernels.op).tolist():
        mine = np.flatnonzero(kernels.op == op)
        weight = mean[mine] / mean[mine].sum()
        whole = float(factor[op].var())
        variance = float(sum(w**2 * values[pool].var() for w, pool in zip(weight, kernels.pool[mine], strict=True)))
        if variance <= 0.0 or whole <= 0.0:
            continue
        kept, scale = np.sqrt(max(1.0 - variance / whole, 0.0)), min(1.0, np.sqrt(whole / variance))
        centre = factor[op].mean()
        moved = centre + kept * (factor[op] - centre)
        rest = run_s[op] - busy[op]
        shared[op] = (rest + busy[op] * moved / factor[op]) / np.maximum(run_s[op], np.finfo(float).tiny)
        grid, below = sum_of_kernels(
            [(values[pool], weight[kernels.pool[mine] == pool]) for pool in np.unique(kernels.pool[mine])]
        )
        of_run = scale * float(busy[op].mean() / run_s[op].mean())
        rows.append((op, 1.0 + of_run * grid, below))
    ops, factors, probs = (list(part) for part in zip(*rows, strict=True)) if rows else ([], [], [])
    empty = np.zeros((0, N_GRID))
    varying = sum(len(one) > 0 and one.var() > 0 for one in values)
    return KernelDraws(
        shared,
        np.array(ops, np.int32),
        np.stack(factors) if rows else empty,
        np.stack(probs) if rows else empty,
        int(varying),
    )


def entry_means(kernels: TraceKernels) -> Floats:
    """[entry] mean seconds over the replicas and steps in which it ran."""
    return np.nanmean(kernels.seconds, axis=(1, 2))


def run_sums(kernels: TraceKernels, seconds: Floats, shape: tuple[int, ...]) -> Floats:
    """[op, replica, step] sums of `seconds` [entry, replica, step] over the kernels that ran."""
    total = np.zeros(shape)
    np.add.at(total, kernels.op, np.nan_to_num(seconds))
    return total


def sum_of_kernels(parts: list[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Distribution of the weighted sum of independent kernels: values [grid], and the probability of less.

    Args:
        parts: values of a pool, with mean zero, and the weights of its kernels in the sum.

    Notes: kernels of one pool have their root mean square weight; the variance of the sum is exact.
    """
    sizes = [(values, float(np.sqrt((weight**2).mean())), len(weight)) for values, weight in parts if len(values)]
    sd = float(np.sqrt(sum(n * w**2 * values.var() for values, w, n in sizes)))
    if sd == 0.0:
        return np.zeros(N_GRID), np.linspace(0.0, 1.0, N_GRID)
    reach = MOST_SD * sd + max(w * np.abs(values).max() for values, w, _ in sizes)
    grid = np.linspace(-reach, reach, N_GRID, endpoint=False)
    spectrum = np.ones(N_GRID // 2 + 1, dtype=complex)
    for values, w, n in sizes:
        spectrum *= np.fft.rfft(_binned(w * values, grid)) ** n
    mass = np.maximum(np.fft.irfft(spectrum, N_GRID), 0.0)
    mass = np.fft.fftshift(mass) / mass.sum()
    mean = float(mass @ grid)
    found = float(np.sqrt(mass @ (grid - mean) ** 2))
    return (grid - mean) * (sd / found), np.cumsum(mass) - 0.5 * mass


def _binned(values: Floats, grid: Floats) -> Floats:
    """Mass of `values` on the points of `grid` to either side of each, its zero first."""
    step = grid[1] - grid[0]
    place = values / step
    low = np.floor(place).astype(np.int64)
    part = place - low
    mass = np.zeros(len(grid))
    np.add.at(mass, low % len(grid), 1.0 - part)
    np.add.at(mass, (low + 1) % len(grid), part)
    return mass / len(values)


def _at(mean: Floats, kernels: TraceKernels) -> Floats:
    """Means where the kernels ran, NaN elsewhere."""
    return np.where(np.isnan(kernels.seconds), np.nan, mean[:, None, None])


def _centred(own: Floats) -> Floats:
    """Values that are known, evenly thinned, with mean zero."""
    found = own[~np.isnan(own)]
    if len(found) > MOST_VALUES:
        found = np.sort(found)[np.linspace(0, len(found) - 1, MOST_VALUES).astype(int)]
    return found - found.mean() if len(found) else found

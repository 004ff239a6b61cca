"""Compares recorded runs A with runs B: ratio of steps with an interval that holds run-to-run noise, and where a change begins.

Runs of one program repeat their schedule: lengths of sequences, evaluations and phases come at the same steps. So steps are
paired by number where the runs share them; what both do cancels. Blocks of successive steps, summed, take the rounding of clocks
and most of the correlation of steps out; the median over blocks is not moved by stalls. Its error within the runs comes from
batches of blocks, which hold slow drift. Runs of one program differ by more than their steps say (other nodes, other neighbours),
and no single pair tells by how much: that spread is stated, or learnt from several runs of a side, drawn towards the usual one.

A change within the runs is the split of the block ratios into two levels with least absolute deviation, each deviation counted up
to four spreads.

Source: batch means: Conway (1963), Some tactical problems in digital simulation, doi 10.1287/mnsc.10.1.47.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.robust import robust_sd

RUN_SPREAD = 0.006  # sd of the level of a run, a share: chosen on half of 124 groups of training runs (experiments/trace_compare)
DRIFT_SPREAD = 0.005  # sd of the level of a part of a run against another part of it
PRIOR_RUNS = 2.0  # degrees of freedom of the usual spread among those of the runs
FEWEST_STEPS = 8
SHARED = 0.5  # of the steps of the shorter run, which are paired where at least so many are shared
MOST_BLOCKS, N_BATCH, STEPS_IN_BLOCK = 40, 10, 4
LEAST_PART = 0.1  # of the steps on either side of a change
CLIPPED = 4.0  # spreads
SURE_CHANGE = 3.0  # standard errors within the runs
MEDIAN_ERROR, Z95 = 1.2533, 1.96
N_BOOTSTRAP = 200


@dataclass(frozen=True)
class RunSteps:
    """Steps of a run: number, seconds, and steps that an entry stands for [entry]."""

    source: str
    step: NDArray[np.int64]
    step_s: Floats
    n_steps: NDArray[np.int64]


@dataclass(frozen=True)
class RatioInterval:
    """Ratio of B to A (1.02: B takes 2% longer) and its interval, 95%.

    Attributes:
        a_s, b_s: seconds of either side.
        ratio: B over A; of typical steps that of paired steps (over a change the mean of both levels), not of `b_s` and `a_s`.
        low, high: interval, run-to-run noise included.
    """

    a_s: float
    b_s: float
    ratio: float
    low: float
    high: float

    @property
    def is_beyond_noise(self) -> bool:
        """Whether the interval leaves equal steps out."""
        return not self.low <= 1.0 <= self.high


@dataclass(frozen=True)
class ChangeOfRatio:
    """Step from which the ratio of B to A is another.

    Attributes:
        step: the first one.
        ratio: ratio after the change over that before.
        low, high: its interval, 95%.
    """

    step: int
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class RunsComparison:
    """Steps of runs A and B compared.

    Attributes:
        typical: of typical steps.
        change: where the difference begins within the runs; None where it does not.
        is_paired: whether steps are compared with those of the same number.
        n_paired: how many.
        run_spread: sd of the level of a run that the interval holds.
        points: first step of every block of paired steps, and the ratio there.
    """

    typical: RatioInterval
    change: ChangeOfRatio | None
    is_paired: bool
    n_paired: int
    run_spread: float
    points: tuple[tuple[int, float], ...] = ()


def compared_runs(a: Sequence[RunSteps], b: Sequence[RunSteps], run_spread: float | None = None) -> RunsComparison:
    """The steps of runs B against those of runs A.

    Args:
        a, b: at least one run each, of at least `FEWEST_STEPS` entries.
        run_spread: sd of the level of a run, a share; None: learnt from several runs of a side, else the usual one.
    """
    runs = (*a, *b)
    paired = _paired(runs)
    if paired is None:
        series = [_blocks(run.step_s * run.n_steps, run.n_steps) for run in runs]
        level = np.array([np.median(one) for one in series])
        errors = np.array([_batch_error(one) for one in series])
        sides = errors[: len(a)], errors[len(a) :]
        within = math.sqrt(sum(float((side**2).sum()) / len(side) ** 2 for side in sides))
        difference = float(level[len(a) :].mean() - level[: len(a)].mean())
    else:
        step, n_steps, seconds = paired
        blocks = np.array([_blocks(row * n_steps, n_steps) for row in seconds])
        ratio = _middle(blocks[len(a) :]) - _middle(blocks[: len(a)])
        level = np.median(blocks - _middle(blocks), axis=1)
        difference, within = float(np.median(ratio)), _batch_error(ratio)
    spread, quantile = _run_spread(level, len(a), run_spread)
    share = 1.0 / len(a) + 1.0 / len(b)
    half = quantile * math.sqrt(spread**2 * share + within**2)
    sides_s = _typical_s(a), _typical_s(b)
    if paired is None:
        return RunsComparison(_interval(*sides_s, difference, half), None, False, 0, spread)
    first = [int(step[part[0]]) for part in _parts(len(step))]
    points = tuple(zip(first, np.exp(ratio).tolist(), strict=True))
    log_ratio = _middle(np.log(seconds[len(a) :])) - _middle(np.log(seconds[: len(a)]))
    drift = DRIFT_SPREAD * (spread / RUN_SPREAD if run_spread is not None else 1.0)
    change = _change(ratio, log_ratio, step, Z95 * drift * math.sqrt(share))
    if change is not None:  # a median of two levels is one of them
        is_after = np.array(first) >= change.step
        levels = [np.median(ratio[part]) for part in (~is_after, is_after)]
        difference = float(np.average(levels, weights=[(~is_after).sum(), is_after.sum()]))
    typical = _interval(*sides_s, difference, half)
    return RunsComparison(typical, change, True, len(step), spread, points)


def shared_steps(a: Sequence[RunSteps], b: Sequence[RunSteps]) -> tuple[Sequence[RunSteps], Sequence[RunSteps]]:
    """Runs of A and of B cut down to the steps that all of them have; as they are where they share too few."""
    paired = _paired((*a, *b))
    if paired is None:
        return a, b
    step, n_steps, seconds = paired
    runs = [RunSteps(run.source, step, row, n_steps) for run, row in zip((*a, *b), seconds, strict=True)]
    return runs[: len(a)], runs[len(a) :]


def quantile_ratio(a: Sequence[RunSteps], b: Sequence[RunSteps], p: float, spread: float) -> RatioInterval:
    """Ratio of a quantile of all steps of B to that of A.

    The interval is from a bootstrap of blocks of successive steps, the same ones of both sides where they have as many, widened
    by the spread of runs and the ticks of the clocks.

    Args:
        p: of the quantile, 0 to 1.
        spread: sd of the level of a run, a share.
    """
    sides = [np.concatenate([run.step_s for run in side]) for side in (a, b)]
    values = [float(np.quantile(side, p)) for side in sides]
    rng = np.random.default_rng([0, round(1e6 * p)])
    parts = [_parts(len(side)) for side in sides]
    drawn = np.empty((2, N_BOOTSTRAP))
    for n in range(N_BOOTSTRAP):
        u = rng.random(MOST_BLOCKS)
        for at, (side, blocks) in enumerate(zip(sides, parts, strict=True)):
            chosen = (u[: len(blocks)] * len(blocks)).astype(int)
            drawn[at, n] = np.quantile(side[np.concatenate([blocks[i] for i in chosen])], p)
    error = float(np.log(drawn[1] / drawn[0]).std())
    ticks = sum((_tick(side) / value) ** 2 / 12.0 for side, value in zip(sides, values, strict=True))
    share = 1.0 / len(a) + 1.0 / len(b)
    half = Z95 * math.sqrt(error**2 + spread**2 * share + ticks)
    return _interval(values[0], values[1], math.log(values[1] / values[0]), half)


def _interval(a_s: float, b_s: float, difference: float, half: float) -> RatioInterval:
    low, ratio, high = (math.exp(difference + sign * half) for sign in (-1.0, 0.0, 1.0))
    return RatioInterval(a_s, b_s, ratio, low, high)


def _typical_s(side: Sequence[RunSteps]) -> float:
    return float(np.mean([np.median(run.step_s) for run in side]))


def _paired(runs: Sequence[RunSteps]) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats] | None:
    """Steps that all runs share, steps per entry, and seconds [run, step]; None where they share few."""
    shared, kept = runs[0].step, []
    for run in runs:
        number, last = np.unique(run.step[::-1], return_index=True)  # of a step that was done again the last counts
        kept.append((number, len(run.step) - 1 - last))
        shared = np.intersect1d(shared, number)
    at = [last[np.searchsorted(number, shared)] for number, last in kept]
    n_steps = np.array([run.n_steps[index] for run, index in zip(runs, at, strict=True)])
    same = (n_steps == n_steps[0]).all(axis=0)
    if same.sum() < max(FEWEST_STEPS, SHARED * min(len(number) for number, _ in kept)):
        return None
    seconds = np.array([run.step_s[index] for run, index in zip(runs, at, strict=True)])
    return shared[same], n_steps[0, same], seconds[:, same]


def _parts(n: int) -> list[NDArray[np.int64]]:
    """Indices of the blocks of `n` successive entries."""
    return np.array_split(np.arange(n), min(MOST_BLOCKS, max(STEPS_IN_BLOCK, n // STEPS_IN_BLOCK), n))


def _blocks(seconds: Floats, n_steps: NDArray[np.int64]) -> Floats:
    """Logarithm of the mean step of every block of entries [block]."""
    return np.array([math.log(seconds[part].sum() / n_steps[part].sum()) for part in _parts(len(seconds))])


def _middle(of_runs: Floats) -> Floats:
    """Median over runs, so that the stalls of one do not count."""
    return np.median(of_runs, axis=0)


def _batch_error(blocks: Floats) -> float:
    """Standard error of the median of blocks, from medians of batches of successive ones."""
    n = max(2, min(N_BATCH, len(blocks) // 2))
    batches = np.array([np.median(part) for part in np.array_split(blocks, n)])
    return MEDIAN_ERROR * robust_sd(batches) / math.sqrt(n)


def _run_spread(level: Floats, n_a: int, stated: float | None) -> tuple[float, float]:
    """Sd of the level of a run, and the quantile that half an interval takes: of Student's law where runs tell of it."""
    if stated is not None:
        return stated, Z95
    sides = (level[:n_a], level[n_a:])
    dof = sum(len(side) - 1 for side in sides)
    if dof == 0:
        return RUN_SPREAD, Z95
    from scipy.special import stdtrit

    square = sum(float(((side - side.mean()) ** 2).sum()) for side in sides)
    spread = math.sqrt((PRIOR_RUNS * RUN_SPREAD**2 + square) / (PRIOR_RUNS + dof))
    return spread, float(stdtrit(PRIOR_RUNS + dof, 0.975)) if dof > 2 else Z95


def _tick(values: Floats) -> float:
    """The tick of a coarse clock: the smallest step between values, where few values are unlike; else 0."""
    unlike = np.unique(values)
    return float(np.diff(unlike).min()) if 1 < len(unlike) < 0.5 * len(values) else 0.0


def _change(ratio: Floats, log_ratio: Floats, step: NDArray[np.int64], noise: float) -> ChangeOfRatio | None:
    """The step at which the level of the ratio changes beyond noise.

    Args:
        ratio: [block] logarithms; `log_ratio` the same of single steps [step].
        noise: half an interval of what runs drift.
    """
    found = _split(ratio)
    if found is None:
        return None
    at, size, error = found
    half = math.hypot(noise, SURE_CHANGE * error)
    if abs(size) <= half:
        return None
    parts = _parts(len(step))
    window = np.concatenate(parts[max(0, at - 2) : at + 2])
    before, after = np.median(ratio[:at]), np.median(ratio[at:])
    limit = 2.0 * abs(after - before)
    gain = np.minimum(np.abs(log_ratio[window] - before), limit) - np.minimum(np.abs(log_ratio[window] - after), limit)
    first = int(window[0] + np.argmin(np.append(0.0, np.cumsum(gain))))
    first = min(first, len(step) - 1)
    low, high = math.exp(size - half), math.exp(size + half)
    return ChangeOfRatio(int(step[first]), math.exp(size), low, high)


def _split(ratio: Floats) -> tuple[int, float, float] | None:
    """First block of the second level, size of the change, and its standard error; None of too few blocks."""
    n = len(ratio)
    least = max(3, math.ceil(LEAST_PART * n))
    if n < 2 * least:
        return None
    scale = CLIPPED * (robust_sd(np.diff(ratio)) / math.sqrt(2.0) + 1e-6)
    costs = []
    for at in range(least, n - least + 1):
        sides = ratio[:at], ratio[at:]
        costs.append(sum(float(np.minimum(np.abs(one - np.median(one)), scale).sum()) for one in sides))
    at = least + int(np.argmin(costs))
    sides = ratio[:at], ratio[at:]
    rest = np.concatenate([one - np.median(one) for one in sides])
    sd = robust_sd(rest, 0.0)
    kept = np.clip(rest, -3.0 * sd, 3.0 * sd)
    ar1 = min(max(float(kept[1:] @ kept[:-1]) / max(float(kept @ kept), 1e-30), 0.0), 0.9)
    error = MEDIAN_ERROR * sd * math.sqrt((1.0 / at + 1.0 / (n - at)) * (1.0 + ar1) / (1.0 - ar1))
    return at, float(np.median(sides[1]) - np.median(sides[0])), error

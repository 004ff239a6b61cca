"""Finds stalls: single steps far longer than those around them, what share of the time they take, and their period.

A stall is a step that exceeds the usual one there (the median of the `WINDOW` steps around it, so that a lasting change of level
is none) by `LEAST_EXCESS` and by `ROBUST_SD` robust standard deviations. Stalls of like size that lie on multiples of one number
of steps have that *period*: at least `ALIKE` of the stalls lie on them and at least `ALIKE` of the multiples are stalls.

Where a log tells ranks and parts of steps apart, a stall is laid to the parts that were longer than usual by at least half of
what the stall took more, on the ranks on which they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats, Ints
from ..core.readable import first_few
from ..core.robust import robust_sd
from .rank_times import RankTimes, in_ranges

WINDOW = 31  # steps
LEAST_EXCESS = 0.08  # of the usual step; below it lie what evaluations and caches leave in ordinary steps
ROBUST_SD = 6.0
MOST_SHARE = 0.25  # of the steps; more are no exceptions
FEWEST_STEPS = 10
FEWEST_PERIODIC = 3
MOST_PERIODS = 20  # distances between stalls that are tried, the commonest ones
SLACK, FEWEST_SHIFTED = 50, 5  # a part of the period by which a stall may be off, where there are so many
ALIKE = 0.8
APART = 1.5  # factor between sizes of excess that makes two kinds of stall
MOST_KINDS = 4
HALF = 0.5


@dataclass(frozen=True)
class StallCause:
    """Part or ranks that took longer in stalled steps.

    Attributes:
        part: column of the log; empty for the step of single ranks, the others having been shorter.
        ranks: as "ranks 12-15"; empty where the log names none.
        seconds: median in the stalls, on those ranks.
        usual_s: median in the other steps.
    """

    part: str
    ranks: str
    seconds: float
    usual_s: float


@dataclass(frozen=True)
class StallKind:
    """Stalls of like size, or of one period.

    Attributes:
        steps: their numbers.
        typical_s: median seconds of such a step.
        usual_s: median of what steps around them take.
        lost_share: what they take more than usual, a share of the time of all steps.
        period: steps from one to the next; None where they come irregularly, or are too few to tell.
        causes: parts and ranks that were longer; none where the log does not tell.
    """

    steps: tuple[int, ...]
    typical_s: float
    usual_s: float
    lost_share: float
    period: int | None
    causes: tuple[StallCause, ...] = ()


@dataclass(frozen=True)
class Stalls:
    """All stalls of a recording.

    Attributes:
        n_stalls: stalled steps.
        time_share: time of stalled steps over that of all.
        lost_share: what they took more than usual, over the time of all steps.
        kinds: those that cost most first.
    """

    n_stalls: int
    time_share: float
    lost_share: float
    kinds: tuple[StallKind, ...]


def stalls(steps: NDArray, step_s: Floats, n_steps: Ints, ranks: RankTimes | None = None) -> Stalls | None:
    """The stalls of steps in the order of the log; None where there are none.

    Args:
        steps: [entry] numbers of steps.
        step_s: [entry] seconds per step.
        n_steps: [entry] steps that the time is a mean of.
        ranks: what every rank and part took.
    """
    if len(step_s) < FEWEST_STEPS:
        return None
    usual_s = _usual(step_s)
    excess = np.log(step_s / usual_s)
    log_sd = robust_sd(excess)
    found = np.flatnonzero(excess > max(np.log1p(LEAST_EXCESS), ROBUST_SD * log_sd))
    if not 0 < len(found) <= MOST_SHARE * len(step_s):
        return None
    total_s = float((step_s * n_steps).sum())
    lost_s = (step_s - usual_s) * n_steps
    kinds = [
        StallKind(
            tuple(int(step) for step in steps[group]),
            float(np.median(step_s[group])),
            float(np.median(usual_s[group])),
            float(lost_s[group].sum()) / total_s,
            _period(steps[group], steps),
            () if ranks is None else _causes(ranks, group, found, float(np.median((step_s - usual_s)[group]))),
        )
        for group in _kinds(steps, found, (step_s - usual_s)[found])
    ]
    return Stalls(
        len(found),
        float((step_s * n_steps)[found].sum()) / total_s,
        float(lost_s[found].sum()) / total_s,
        tuple(sorted(kinds, key=lambda kind: -kind.lost_share)),
    )


def _usual(step_s: Floats) -> Floats:
    """Median of the steps around each [entry]."""
    half = min(WINDOW // 2, (len(step_s) - 1) // 2)
    padded = np.pad(step_s, half, mode="reflect")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=-1)


def _kinds(steps: NDArray, found: NDArray[np.intp], excess_s: Floats) -> list[NDArray[np.intp]]:
    """The stalls [entry] of every kind: all where they have a period, else those of like excess."""
    if _period(steps[found], steps) is not None:
        return [found]
    order = np.argsort(excess_s, kind="stable")
    gaps = np.diff(np.log(excess_s[order]))
    cuts = np.sort(np.argsort(-gaps, kind="stable")[: MOST_KINDS - 1])
    cuts = cuts[gaps[cuts] > np.log(APART)]
    return [np.sort(found[part]) for part in np.split(order, cuts + 1)]


def _period(stalled: NDArray, steps: NDArray) -> int | None:
    """The number of steps on whose multiples, shifted by any number, the stalls lie."""
    if len(stalled) < FEWEST_PERIODIC:
        return None
    apart, counts = np.unique(np.diff(np.sort(stalled)), return_counts=True)
    usual = np.diff(steps)
    every = int(np.median(usual[usual > 0])) if (usual > 0).any() else 1
    likely = apart[np.argsort(-counts, kind="stable")[:MOST_PERIODS]]
    for period in np.sort(likely[likely > every]).tolist():
        slack = period // SLACK if len(stalled) >= FEWEST_SHIFTED else 0
        phase, often = np.unique(stalled % period, return_counts=True)
        shift = int(phase[np.argmax(often)])
        off = np.minimum((stalled - shift) % period, (shift - stalled) % period)
        n_on = int((off <= slack).sum())
        n_multiples = (int(steps.max()) - shift) // period - (int(steps.min()) - shift - 1) // period
        if n_on >= FEWEST_PERIODIC and min(n_on / len(stalled), n_on / max(n_multiples, 1)) >= ALIKE:
            return period
    return None


def _causes(
    ranks: RankTimes, group: NDArray[np.intp], stalled: NDArray[np.intp], excess_s: float
) -> tuple[StallCause, ...]:
    """Parts, on some ranks or all, that were longer by at least half of the excess; else the ranks whose step alone was."""
    in_group, in_any = np.isin(ranks.entry, group), np.isin(ranks.entry, stalled)
    causes: list[StallCause] = []
    for name, seconds in ranks.quantities().items():
        if not name and len(ranks.names) == 1:
            continue
        usual_s = float(np.nanmedian(seconds[~in_any])) if (~in_any).any() else np.nan
        longer = in_group & (seconds - usual_s >= HALF * excess_s)
        if not longer.any():
            continue
        guilty = _often(ranks.rank, longer, in_group, len(ranks.names))
        few = len(guilty) <= HALF * len(ranks.names)
        if not guilty or (not name and not few):
            continue  # all ranks waited for the one that was late
        on = longer & np.isin(ranks.rank, guilty)
        told = in_ranges([ranks.names[i] for i in guilty], ranks.names) if len(ranks.names) > 1 else ""
        causes.append(StallCause(name, told, float(np.median(seconds[on])), usual_s))
    return tuple(sorted(causes, key=lambda cause: (not cause.part, -cause.seconds)))


def _often(rank: NDArray, longer: NDArray[np.bool_], rows: NDArray[np.bool_], n_rank: int) -> list[int]:
    """Ranks on which at least half of the rows were longer; all with a longer row where no rank was so often."""
    count = np.bincount(rank[longer], minlength=n_rank)
    of = np.maximum(np.bincount(rank[rows], minlength=n_rank), 1)
    often = np.flatnonzero(count >= HALF * of)
    return (often if len(often) else np.flatnonzero(count)).tolist()


def listed(steps: Sequence[int], most: int) -> str:
    """Lists steps by number, as "steps 37, 52, 81"."""
    shown = first_few([f"{step:,}" for step in steps], most)
    return f"step{'' if len(steps) == 1 else 's'} {shown}"

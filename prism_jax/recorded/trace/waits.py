"""Waits that no rule states but the recording shows.

Three kinds, looked for in this order.
1. An op that never starts before another op of its worker has ended, and mostly starts right then, waits for it.
2. An op that all replicas start together, however early some of them are ready, meets the other replicas (a barrier that was
   not recorded, such as the reduction of the loss).
3. A gap that is the longer the earlier its worker is ready is a wait for something unrecorded; only its shortest length is work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._typing import Floats, Ints
from .dependencies import Dependencies, Links
from .durations import CLOCK_FAULT_S, Durations, durations, ready_s
from .trace import Trace

SAME_TIME_S = 2e-4  # ops that follow each other on one worker may overlap by this in the recording
LEAST_GAIN = 2e-5  # of the step: gaps shorter than this are not worth a dependency
MAX_WAITS = 4  # found per op
TOGETHER = 0.05  # starts of replicas that differ by less than this share of their readiness are one start
LEAST_WAIT = 5e-4  # of the step: shorter gaps are host time
WAIT_SLOPE = -0.5  # of gap over readiness: -1 for a pure wait, 0 for host work


@dataclass(frozen=True)
class Waits:
    """What was found.

    Attributes:
        needs: the dependencies with what was added.
        found: one line per added dependency or meeting.
        unexplained: [op, replica] gaps that are waits for something unrecorded.
    """

    needs: Dependencies
    found: tuple[str, ...]
    unexplained: NDArray[np.bool_]


def observed_waits(trace: Trace, needs: Dependencies) -> Waits:
    """Dependencies of `trace` with those that only its times show."""
    links = Links.of(trace, needs)
    step_s = float(np.median(trace.step_s))
    draft = _Draft(trace, links, step_s, {op: members for members in links.groups for op in members})
    stage = np.array([op.stage for op in trace.ops])
    worker = {s: np.flatnonzero(stage == s).astype(np.int32) for s in np.unique(stage).tolist()}
    found = [line for op, s in enumerate(stage.tolist()) for line in _ends_before(draft, op, worker[s])]
    found += _meetings(trace, links, step_s)
    refined = links.done()
    return Waits(refined, tuple(found), _unexplained(trace, refined, step_s))


def work(trace: Trace, waits: Waits) -> Durations:
    """Durations in which waits for unrecorded things are reduced to the shortest gap of their worker."""
    run, gap = durations(trace, waits.needs)
    shortest = gap.min(axis=-1, keepdims=True)
    return Durations(run, np.where(waits.unexplained[:, :, None], np.maximum(shortest, 0.0), gap))


class _Draft(NamedTuple):
    """What is looked at while dependencies are added; `group` holds the members of the group of every op that has one."""

    trace: Trace
    links: Links
    step_s: float
    group: dict[int, list[int]]


def _ends_before(draft: _Draft, op: int, worker: Ints) -> list[str]:
    """Add the ops of the same worker, given as `worker`, whose end explains the gap before `op`."""
    trace, links, step_s, _ = draft
    start, known = trace.start_s[op], links.after[op]
    ready = trace.end_s[list(known)].max(axis=0) if known else np.zeros_like(start)
    if (start - ready).mean() < LEAST_GAIN * step_s:
        return []
    before = (trace.start_s[worker] < start) & (trace.end_s[worker] <= start + SAME_TIME_S)
    peers = worker[before.all(axis=(1, 2))]
    end = trace.end_s[peers]
    lines = []
    while len(peers) and len(lines) < MAX_WAITS:
        gain = np.maximum(end - ready, 0.0).mean(axis=(1, 2))
        at, best = int(gain.argmax()), int(peers[gain.argmax()])
        if gain[at] < LEAST_GAIN * step_s:
            break
        if not _waits_for(draft, best, op):
            known.add(best)
            ready = np.maximum(ready, end[at])
            lines.append(f"{trace.ops[op]} waits for {trace.ops[best]} ({gain[at]:.3g} s)")
        end[at] = -np.inf
    return lines


def _waits_for(draft: _Draft, op: int, other: int) -> bool:
    """Whether `op` waits for `other`, directly or not; members of a group wait for all that any of them waits for.

    What ended before `other` started did not wait for it.
    """
    end_s, earliest = draft.trace.end_s[:, 0, 0], draft.trace.start_s[other, 0, 0] - CLOCK_FAULT_S
    seen: set[int] = set()
    left = [op]
    while left:
        at = left.pop()
        together = draft.group.get(at, [at])
        if other in together:
            return True
        if at not in seen and end_s[together].max() >= earliest:
            seen.update(together)
            left += [need for member in together for need in draft.links.after[member]]
    return False


def _meetings(trace: Trace, links: Links, step_s: float) -> list[str]:
    """Make ops that all replicas start together meet."""
    if trace.n_replica < 2:
        return []
    grouped = {op for members in links.groups for op in members}
    lines = []
    for op, after in enumerate(links.after):
        if op in grouped or not after:
            continue
        ready = trace.end_s[list(after)].max(axis=0)
        if (trace.start_s[op] - ready).mean() < LEAST_WAIT * step_s:
            continue
        apart, ready_apart = np.ptp(trace.start_s[op], axis=0), np.ptp(ready, axis=0)
        if np.median(apart) < TOGETHER * np.median(ready_apart):
            links.groups.append([op])
            links.meeting.add(op)
            links.hidden.add(op)
            lines.append(f"{trace.ops[op]} waits for all replicas")
    return lines


def _unexplained(trace: Trace, needs: Dependencies, step_s: float) -> NDArray[np.bool_]:
    """[op, replica] whether the gap shrinks as its worker is later."""
    gap, ready = durations(trace, needs).gap_s, ready_s(trace, needs)
    slope = _slope(gap, ready)
    return (np.ptp(gap, axis=-1) > LEAST_WAIT * step_s) & (slope < WAIT_SLOPE)


def _slope(y: Floats, x: Floats) -> Floats:
    """Least-squares slope of y over x along the last axis; 0 where x does not vary."""
    dx = x - x.mean(axis=-1, keepdims=True)
    dy = y - y.mean(axis=-1, keepdims=True)
    spread = (dx**2).sum(axis=-1)
    return np.divide((dx * dy).sum(axis=-1), spread, out=np.zeros_like(spread), where=spread > 0)

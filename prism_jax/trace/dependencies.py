"""Defines who waits for whom in a recorded step, the same for every replica and step, and what of a recorded op was work.

An op starts when the ops in `after` (on its own worker) have ended. Ops of one group meet: each is ready on its own, and
none begins its transfer before the last is ready. Some groups meet across replicas too.

Plain ops are work as recorded. A transfer recorded by a waiting worker is as long as the wait; end minus the latest start among
the peers is the transfer. What remains between an op's start and the end of everything it waits for is the host's gap (launch
delay): data loading, Python, a late launch.

Waits that no rule states but the recording shows are of three kinds, looked for in this order.
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

from ..core.arrays import Floats, Ints
from ..core.errors import DataError
from ..core.units import format_s
from .trace import Trace


class Lane(NamedTuple):
    """A stream of work of one stage; lanes are numbered in the order of these fields.

    Attributes:
        stage: pipeline stage (or rank).
        place: among the lanes of its stage; those at the same place stand in the order of their names.
        name: what runs there, for people.
    """

    stage: int
    place: int
    name: str


@dataclass(frozen=True)
class Dependencies:
    """Indices into `Trace.ops`.

    Attributes:
        after: per op, the ops that must have ended before it starts.
        lane: [op] stream of work; ops of a lane run one after another, which `after` states too.
        lanes: what every lane is.
        group: [op] group in which it meets others, -1 for plain work.
        meets_replicas: [op] whether it also waits for the same op of all replicas.
        hidden_meeting: [op] whether that wait lies before the recorded start, because the barrier itself was not recorded.
        order: [op] an order in which the ops can run.
    """

    after: tuple[tuple[int, ...], ...]
    lane: Ints
    lanes: tuple[Lane, ...]
    group: Ints
    meets_replicas: NDArray[np.bool_]
    hidden_meeting: NDArray[np.bool_]
    order: Ints

    def members(self) -> list[list[int]]:
        """Ops of every group."""
        found: list[list[int]] = [[] for _ in range(int(self.group.max(initial=-1)) + 1)]
        for op, group in enumerate(self.group.tolist()):
            if group >= 0:
                found[group].append(op)
        return found


class Links:
    """A draft of dependencies, as the rules find them."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.after: list[set[int]] = [set() for _ in trace.ops]
        self.lane: dict[int, Lane] = {}
        self.groups: list[list[int]] = []
        self.meeting: set[int] = set()
        self.hidden: set[int] = set()

    @classmethod
    def of(cls, trace: Trace, needs: Dependencies) -> Links:
        """A draft that starts from known dependencies."""
        links = cls(trace)
        links.after = [set(found) for found in needs.after]
        links.lane = {op: needs.lanes[lane] for op, lane in enumerate(needs.lane.tolist())}
        links.groups = needs.members()
        links.meeting = set(np.flatnonzero(needs.meets_replicas).tolist())
        links.hidden = set(np.flatnonzero(needs.hidden_meeting).tolist())
        return links

    def chain(self, ops: list[int], after: list[int] | None = None) -> None:
        """Each op after the one before it; the first after `after`."""
        before = after or []
        for op in ops:
            self.after[op].update(before)
            before = [op]

    def on_lane(self, ops: list[int], lane: Lane) -> None:
        """Ops of one stream, in order: each starts when the one before has ended."""
        self.chain(ops)
        self.lane.update(dict.fromkeys(ops, lane))

    def done(self) -> Dependencies:
        """The dependencies, checked.

        Raises:
            DataError: ops wait for each other in a circle; names them.
        """
        n_op = len(self.after)
        group = np.full(n_op, -1, dtype=np.int32)
        for index, members in enumerate(self.groups):
            group[members] = index
        lanes = sorted(set(self.lane.values()))
        place = {name: index for index, name in enumerate(lanes)}
        meets, hidden = np.zeros(n_op, dtype=bool), np.zeros(n_op, dtype=bool)
        meets[list(self.meeting)] = True
        hidden[list(self.hidden)] = True
        after = tuple([tuple(sorted(found)) for found in self.after])
        return Dependencies(
            after=after,
            lane=np.array([place[self.lane[op]] for op in range(n_op)], dtype=np.int32),
            lanes=tuple(lanes),
            group=group,
            meets_replicas=meets,
            hidden_meeting=hidden,
            order=self._order(after),
        )

    def _order(self, after: tuple[tuple[int, ...], ...]) -> Ints:
        """Ops after everything they, or the members of their group, wait for."""
        needs = [set(found) for found in after]
        for members in self.groups:
            union = set().union(*(after[op] for op in members))
            for op in members:
                needs[op] = union
        users: list[list[int]] = [[] for _ in needs]
        for op, found in enumerate(needs):
            for need in found:
                users[need].append(op)
        missing = [len(found) for found in needs]
        ready = [op for op, count in enumerate(missing) if count == 0]
        order: list[int] = []
        for op in ready:  # grows as it runs
            order.append(op)
            for user in users[op]:
                missing[user] -= 1
                if missing[user] == 0:
                    ready.append(user)
        if len(order) < len(needs):
            raise DataError(
                f"{self.trace.source}: the recorded ops wait for each other: {self._circle(needs, missing)}"
            )
        return np.array(order, dtype=np.int32)

    def _circle(self, needs: list[set[int]], missing: list[int]) -> str:
        blocked = {op for op, count in enumerate(missing) if count > 0}
        op = min(blocked)
        path: list[int] = []
        while op not in path:
            path.append(op)
            op = min(need for need in needs[op] if need in blocked)
        circle = [*path[path.index(op) :], op]
        return " waits for ".join(str(self.trace.ops[op]) for op in circle)


CLOCK_FAULT_S = 1e-2  # a transfer that ends this long before its last peer starts is a fault of the clocks


class Durations(NamedTuple):
    """Seconds of work and of host gaps, both [op, replica, step].

    Attributes:
        run_s: compute as recorded, transfers without waiting.
        gap_s: from the end of what an op waits for on its own worker to its start.
    """

    run_s: Floats
    gap_s: Floats


def durations(trace: Trace, needs: Dependencies) -> Durations:
    """Work and gaps of every recorded op.

    Slightly negative transfers (clocks disagree by less than 10 ms) are kept, so that means stay right; larger ones are zero.
    """
    ready = ready_s(trace, needs)
    start = np.where(needs.hidden_meeting[:, None, None], ready, trace.start_s)
    run = trace.end_s - last_arrival(start, needs)
    run[run <= -CLOCK_FAULT_S] = 0.0
    gap = start - ready
    gap[gap <= -CLOCK_FAULT_S] = 0.0
    return Durations(run, gap)


def ready_s(trace: Trace, needs: Dependencies) -> Floats:
    """[op, replica, step] when everything that an op waits for on its own worker has ended; 0 where it waits for nothing."""
    ready = np.zeros_like(trace.start_s)
    for op, found in enumerate(needs.after):
        if found:
            ready[op] = trace.end_s[list(found)].max(axis=0)
    return ready


def last_arrival(start_s: Floats, needs: Dependencies) -> Floats:
    """[op, replica, step] latest start among the peers of a transfer; an op's own start where it meets nobody."""
    latest = start_s.copy()
    for members in needs.members():
        together = start_s[members].max(axis=0)
        if needs.meets_replicas[members].any():
            together = np.broadcast_to(together.max(axis=0), together.shape)
        latest[members] = together
    return latest


SAME_TIME_S = 2e-4  # ops that follow each other on one worker may overlap by this in the recording
LEAST_GAIN = 2e-5  # of the step: gaps shorter than this are not worth a dependency
MAX_WAITS = 4  # found per op
TOGETHER = 0.05  # starts of replicas that differ by less than this share of their readiness are one start
LEAST_WAIT = 5e-4  # of the step: shorter gaps are host time
WAIT_SLOPE = -0.5  # of gap over readiness: -1 for a pure wait, 0 for host work


@dataclass(frozen=True)
class Waits:
    """Dependencies that were found in recorded waits.

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
    """State while dependencies are added; `group` holds the members of the group of every op that has one."""

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
            lines.append(f"{trace.ops[op]} waits for {trace.ops[best]} ({format_s(float(gain[at]), 3)})")
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

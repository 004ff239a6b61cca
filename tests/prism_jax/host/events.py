"""An event simulator of host programs that shares no code with `prism_jax.host.traverse`, and random programs to compare them on.

Everything is a task that starts when all tasks that it needs have ended: the host between calls, launches, work on streams,
meetings of ranks. Ends leave a heap in the order of time.
"""

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from prism_jax.host.program import COMMUNICATION, N_STREAM, Action, Call, HostProgram

BETWEEN = tuple(action for action in Action if action != Action.COLLECTIVE)
N_CALL, N_RANK = 48, 5  # of padded programs, so that all have one shape


class Events:
    """Tasks, what they need and how long they take."""

    def __init__(self) -> None:
        self.needs: list[int] = []
        self.seconds: list[float] = []
        self.after: defaultdict[int, list[int]] = defaultdict(list)

    def task(self, seconds: float, *needs: int) -> int:
        """Number of a new task."""
        number = len(self.seconds)
        self.seconds.append(seconds)
        self.needs.append(0)
        self.need(number, *needs)
        return number

    def need(self, number: int, *others: int) -> None:
        """Lets a task wait for others, too."""
        self.needs[number] += len(others)
        for one in others:
            self.after[one].append(number)

    def ends(self) -> dict[int, float]:
        """When every task ends."""
        waiting, end = list(self.needs), {}
        heap = [(self.seconds[number], number) for number, count in enumerate(waiting) if count == 0]
        heapq.heapify(heap)
        while heap:
            now, number = heapq.heappop(heap)
            end[number] = now
            for one in self.after[number]:
                waiting[one] -= 1
                if waiting[one] == 0:
                    heapq.heappush(heap, (now + self.seconds[one], one))
        return end


class _Rank:
    """One rank's host and streams as the tasks that ended last on each."""

    def __init__(self, events: Events, start_s: float, launch_s: float) -> None:
        self.events, self.launch_s = events, launch_s
        self.host = events.task(start_s)
        self.streams = [self.host] * N_STREAM

    def run(self, call: Call) -> tuple[int, int] | None:
        """Adds a call; of a collective the tasks when it could start here and of its work."""
        task, own = self.events.task, call.stream
        self.host = task(call.gap_s, self.host)
        launched, meeting = task(self.launch_s, self.host), None
        if call.action == Action.WAIT:
            self.host = task(0.0, self.host, self.streams[own])
        if call.action == Action.WAIT_ALL:
            self.host = task(0.0, self.host, *self.streams)
        if call.action == Action.JOIN:
            self.streams[own] = task(0.0, self.streams[own], self.streams[COMMUNICATION])
        self.host = task(call.call_s, self.host)
        if call.action in (Action.KERNEL, Action.COPY):
            self.streams[own] = task(call.busy_s, launched, self.streams[own])
        if call.action == Action.COPY:
            self.host = task(0.0, self.host, self.streams[own])
        if call.action == Action.COLLECTIVE:
            ready = task(0.0, launched, self.streams[own], self.streams[COMMUNICATION])
            meeting = ready, task(call.busy_s)
            self.streams[COMMUNICATION] = meeting[1]
        return meeting


def simulated_ends(
    ranks: Sequence[Sequence[Call]], starts: Sequence[float] | np.ndarray, launch_s: float
) -> np.ndarray:
    """[rank] seconds when host and streams of each rank are done."""
    events, last = Events(), []
    meetings: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for calls, start_s in zip(ranks, starts, strict=True):
        rank, n_met = _Rank(events, float(start_s), launch_s), 0
        for call in calls:
            if (met := rank.run(call)) is not None:
                meetings[n_met].append(met)
                n_met += 1
        last.append((rank.host, *rank.streams))
    for met in meetings.values():
        for _, work in met:
            events.need(work, *(ready for ready, _ in met))
    end = events.ends()
    return np.array([max(end[one] for one in own) for own in last])


def random_ranks(rng: np.random.Generator) -> tuple[list[list[Call]], np.ndarray]:
    """Calls and starts of 1 to 4 ranks with up to 3 collectives and up to 5 other calls between them."""
    own_s = rng.exponential(1e-3, rng.integers(0, 4))
    ranks = []
    for _ in range(rng.integers(1, N_RANK)):
        calls: list[Call] = []
        for at in range(len(own_s) + 1):
            calls += [_random_call(rng) for _ in range(rng.integers(0, 6))]
            if at < len(own_s):
                calls.append(Call(Action.COLLECTIVE, int(rng.integers(N_STREAM)), 1e-5, 5e-6, own_s[at]))
        ranks.append(calls)
    return ranks, rng.exponential(1e-3, len(ranks))


def _random_call(rng: np.random.Generator) -> Call:
    action = BETWEEN[rng.integers(len(BETWEEN))]
    busy_s = rng.exponential(1e-4) if action in (Action.KERNEL, Action.COPY) else 0.0
    return Call(action, int(rng.integers(N_STREAM)), rng.exponential(5e-5), rng.exponential(5e-6), busy_s)


def padded(program: HostProgram) -> HostProgram:
    """A program of `N_RANK` ranks and `N_CALL` calls, the first of which end as those of `program`."""
    rows = {
        name: np.pad(column, ((0, 0), (0, N_CALL - column.shape[1])))
        for name, column in vars(program).items()
        if name != "start_s"
    }
    one_more = N_RANK - program.n_rank
    idle = {name: np.zeros((one_more, N_CALL), column.dtype) for name, column in rows.items()}
    idle["action"][:] = np.where(rows["action"][0] == Action.COLLECTIVE, Action.COLLECTIVE, Action.NOTHING)
    columns = {name: np.concatenate([column, idle[name]]) for name, column in rows.items()}
    early = np.full(one_more, -1.0)  # seconds before all others: nobody waits for them
    return replace(program, **columns, start_s=np.concatenate([program.start_s, early]))

"""The traversal of host programs against an event simulator that shares no code with it, and closed forms."""

import heapq
from collections import defaultdict

import jax
import numpy as np
import pytest

from prism_jax.errors import DataError
from prism_jax.host.program import COMMUNICATION, COMPUTE, Action, Call, host_program
from prism_jax.host.traverse import LAUNCH_S, traverse

ACTIONS = (Action.NOTHING, Action.KERNEL, Action.KERNEL, Action.COPY, Action.WAIT, Action.JOIN)


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


class Events:
    """Tasks that start when all tasks they need have ended; ends leave a heap in the order of time."""

    def __init__(self):
        self.needs, self.seconds, self.after = [], [], defaultdict(list)

    def task(self, seconds, *needs):
        number = len(self.seconds)
        self.seconds.append(seconds)
        self.needs.append(len(needs))
        for one in needs:
            self.after[one].append(number)
        return number

    def ends(self):
        waiting, end, heap = list(self.needs), {}, []
        for number, count in enumerate(waiting):
            if count == 0:
                heapq.heappush(heap, (self.seconds[number], number))
        while heap:
            now, number = heapq.heappop(heap)
            end[number] = now
            for one in self.after[number]:
                waiting[one] -= 1
                if waiting[one] == 0:
                    heapq.heappush(heap, (now + self.seconds[one], one))
        return end


def simulated_ends(ranks, starts):
    """[rank] ends by events: hosts, launches, streams and meetings are tasks."""
    events, meetings, last = Events(), defaultdict(list), []
    for calls, start in zip(ranks, starts, strict=True):
        host = events.task(start)
        streams = {COMPUTE: host, COMMUNICATION: host}
        n_collective = 0
        for call in calls:
            host = events.task(call.gap_s, host)
            launched = events.task(LAUNCH_S, host)
            if call.action == Action.WAIT:
                host = events.task(0.0, host, *streams.values())
            if call.action == Action.JOIN:
                both = events.task(0.0, *streams.values())
                streams = dict.fromkeys(streams, both)
            host = events.task(call.call_s, host)
            if call.action in (Action.KERNEL, Action.COPY):
                streams[call.stream] = events.task(call.busy_s, launched, streams[call.stream])
            if call.action == Action.COPY:
                host = events.task(0.0, host, streams[call.stream])
            if call.action == Action.COLLECTIVE:
                ready = events.task(0.0, launched, *streams.values())
                streams[COMMUNICATION] = events.task(call.busy_s)  # needs all that meet; told below
                meetings[n_collective].append((ready, streams[COMMUNICATION]))
                n_collective += 1
        last.append((host, *streams.values()))
    for met in meetings.values():
        for _, work in met:
            events.needs[work] += len(met)
            for ready, _ in met:
                events.after[ready].append(work)
    end = events.ends()
    return np.array([max(end[one] for one in own) for own in last])


def random_ranks(rng):
    n_collective = rng.integers(0, 4)
    own_s = rng.exponential(1e-3, n_collective)
    ranks = []
    for _ in range(rng.integers(1, 5)):
        calls = []
        for at in range(n_collective + 1):
            for _ in range(rng.integers(0, 6)):
                action = ACTIONS[rng.integers(len(ACTIONS))]
                busy_s = rng.exponential(1e-4) if action in (Action.KERNEL, Action.COPY) else 0.0
                calls.append(Call(action, int(rng.integers(2)), rng.exponential(5e-5), rng.exponential(5e-6), busy_s))
            if at < n_collective:
                calls.append(Call(Action.COLLECTIVE, COMMUNICATION, 1e-5, 5e-6, own_s[at]))
        ranks.append(calls)
    return ranks, rng.exponential(1e-3, len(ranks))


def test_a_traversal_is_what_an_event_simulator_finds_on_a_thousand_random_programs():
    rng = np.random.default_rng(0)
    for _ in range(40):  # many programs in one, side by side, compile once
        found = [random_ranks(rng) for _ in range(25)]
        for ranks, starts in found:
            program = host_program(ranks, starts)
            assert np.asarray(_padded(program).end_s)[: len(ranks)] == pytest.approx(
                simulated_ends(ranks, starts), rel=1e-9
            )


def _padded(program):
    """The traversal of the program with idle calls and ranks around it, so that all have one shape."""
    from dataclasses import replace

    n_call, n_rank = 48, 5
    rows = {}
    for name in ("action", "stream", "gap_s", "call_s", "busy_s"):
        column = getattr(program, name)
        rows[name] = np.pad(column, ((0, 0), (0, n_call - column.shape[1])))
    one_more = n_rank - program.n_rank
    is_collective = rows["action"] == Action.COLLECTIVE
    idle = {name: np.zeros((one_more, n_call), column.dtype) for name, column in rows.items()}
    idle["action"][:, is_collective[0]] = Action.COLLECTIVE
    columns = {name: np.concatenate([column, idle[name]]) for name, column in rows.items()}
    early = np.full(one_more, -1.0)  # seconds before all others: nobody waits for them
    return traverse(replace(program, **columns, start_s=np.concatenate([program.start_s, early])))


def test_kernels_that_outlast_the_host_fill_the_stream():
    calls = [Call(Action.KERNEL, gap_s=1e-5, call_s=1e-6, busy_s=1e-3)] * 10
    found = traverse(host_program([calls]))
    assert float(found.step_s) == pytest.approx(1e-5 + LAUNCH_S + 10e-3)


def test_a_host_that_is_slower_than_its_kernels_decides():
    calls = [Call(Action.KERNEL, gap_s=1e-3, call_s=1e-4, busy_s=1e-5)] * 10
    assert float(traverse(host_program([calls])).step_s) == pytest.approx(10 * 1.1e-3)


def test_all_ranks_leave_a_collective_with_the_last():
    calls = [Call(Action.COLLECTIVE, COMMUNICATION, busy_s=1e-3)]
    found = traverse(host_program([calls, calls, calls], [0.0, 2e-3, 5e-3]))
    assert np.asarray(found.end_s) == pytest.approx(np.full(3, 5e-3 + LAUNCH_S + 1e-3))
    assert np.asarray(found.waited_s) == pytest.approx([5e-3, 3e-3, 0.0])


def test_communication_hides_behind_compute_unless_they_join():
    start = [Call(Action.COLLECTIVE, COMMUNICATION, busy_s=1e-3)]
    work = [Call(Action.KERNEL, COMPUTE, busy_s=2e-3)]
    hidden = traverse(host_program([[*start, *work]])).step_s
    joined = traverse(host_program([[*start, Call(Action.JOIN), *work]])).step_s
    assert float(hidden) == pytest.approx(LAUNCH_S + 2e-3)
    assert float(joined) == pytest.approx(LAUNCH_S + 3e-3)


def test_draws_are_run_side_by_side():
    program = host_program([[Call(Action.KERNEL, busy_s=1e-3)] * 3] * 2)
    factor = np.array([1.0, 2.0, 3.0])
    found = traverse(program, busy_s=factor[:, None, None] * program.busy_s)
    assert np.asarray(found.step_s) == pytest.approx(LAUNCH_S + 3e-3 * factor)


def test_longer_work_never_ends_earlier():
    rng = np.random.default_rng(1)
    ranks, starts = random_ranks(rng)
    program = host_program(ranks, starts)
    longer = program.busy_s * (1.0 + rng.random(program.busy_s.shape))
    assert (np.asarray(traverse(program, busy_s=longer).end_s) >= np.asarray(traverse(program).end_s)).all()


def test_the_naive_sum_holds_host_and_device():
    program = host_program([[Call(Action.KERNEL, gap_s=1.0, call_s=2.0, busy_s=3.0)]])
    assert program.naive_sum_s == pytest.approx([6.0])
    assert program.gpu_active_s == pytest.approx([3.0])


def test_ranks_must_have_the_same_collectives():
    one = Call(Action.COLLECTIVE, COMMUNICATION)
    with pytest.raises(DataError, match="2, 1 collectives"):
        host_program([[one, one], [one]])
    with pytest.raises(DataError, match="no rank"):
        host_program([])

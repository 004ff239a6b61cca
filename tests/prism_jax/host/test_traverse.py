"""The traversal of host programs against an event simulator that shares no code with it, and closed forms."""

import jax
import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.host.program import COMPUTE, SIDE, Action, Call, host_program
from prism_jax.host.traverse import LAUNCH_S, Traversal, traverse
from tests.prism_jax.host.events import padded, random_ranks, simulated_ends


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def ran(*ranks, starts=None):
    """Traversal of some ranks, padded, so that programs have one shape and are compiled once."""
    found = traverse(padded(host_program(ranks, starts)))
    return Traversal(found.end_s[: len(ranks)], found.waited_s[: len(ranks)])


def test_a_traversal_is_what_an_event_simulator_finds_on_random_programs():
    """1,000 of them: experiments/traversal/run.py."""
    rng = np.random.default_rng(0)
    for _ in range(150):
        ranks, starts = random_ranks(rng)
        expected = simulated_ends(ranks, starts, LAUNCH_S)
        assert np.asarray(ran(*ranks, starts=starts).end_s) == pytest.approx(expected, rel=1e-9)


def test_kernels_that_outlast_the_host_fill_the_stream():
    calls = [Call(Action.KERNEL, gap_s=1e-5, call_s=1e-6, busy_s=1e-3)] * 10
    assert float(ran(calls).step_s) == pytest.approx(1e-5 + LAUNCH_S + 10e-3)


def test_a_host_that_is_slower_than_its_kernels_decides():
    calls = [Call(Action.KERNEL, gap_s=1e-3, call_s=1e-4, busy_s=1e-5)] * 10
    assert float(ran(calls).step_s) == pytest.approx(10 * 1.1e-3)


def test_all_ranks_leave_a_collective_with_the_last():
    calls = [Call(Action.COLLECTIVE, COMPUTE, busy_s=1e-3)]
    found = ran(calls, calls, calls, starts=[0.0, 2e-3, 5e-3])
    assert np.asarray(found.end_s) == pytest.approx(np.full(3, 5e-3 + LAUNCH_S + 1e-3))
    assert np.asarray(found.waited_s) == pytest.approx([5e-3, 3e-3, 0.0])


def test_communication_hides_behind_compute_unless_they_join():
    start = [Call(Action.COLLECTIVE, COMPUTE, busy_s=1e-3)]
    work = [Call(Action.KERNEL, COMPUTE, busy_s=2e-3)]
    hidden = ran([*start, *work]).step_s
    joined = ran([*start, Call(Action.JOIN), *work]).step_s
    assert float(hidden) == pytest.approx(LAUNCH_S + 2e-3)
    assert float(joined) == pytest.approx(LAUNCH_S + 3e-3)


def test_a_collective_takes_its_input_from_its_stream():
    work = Call(Action.KERNEL, SIDE, busy_s=2e-3)
    of_side, of_compute = (
        ran([work, Call(Action.COLLECTIVE, stream, busy_s=1e-3)]).step_s for stream in (SIDE, COMPUTE)
    )
    assert float(of_side) == pytest.approx(LAUNCH_S + 3e-3)
    assert float(of_compute) == pytest.approx(LAUNCH_S + 2e-3)


def test_a_host_waits_for_one_stream_or_for_all():
    start = [Call(Action.KERNEL, COMPUTE, busy_s=1e-3), Call(Action.KERNEL, SIDE, busy_s=5e-3)]
    then = Call(Action.NOTHING, gap_s=7e-3)
    one, every = (ran([*start, Call(kind), then]).step_s for kind in (Action.WAIT, Action.WAIT_ALL))
    assert float(one) == pytest.approx(LAUNCH_S + 8e-3)
    assert float(every) == pytest.approx(LAUNCH_S + 12e-3)


def test_without_hosts_the_work_alone_remains():
    calls = [Call(Action.KERNEL, gap_s=1e-2, call_s=1e-3, busy_s=1e-4)] * 10
    program = host_program([calls, calls], [0.0, 1.0])
    assert float(traverse(program.without_host).step_s) == pytest.approx(LAUNCH_S + 10e-4)


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
    assert program.work_s == pytest.approx([3.0])


def test_ranks_must_have_the_same_collectives():
    one = Call(Action.COLLECTIVE)
    with pytest.raises(DataError, match="2, 1 collectives"):
        host_program([[one, one], [one]])
    with pytest.raises(DataError, match="no rank"):
        host_program([])

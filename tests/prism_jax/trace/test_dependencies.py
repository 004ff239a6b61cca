"""What operations of a trace wait for."""

from typing import Any, cast

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.trace.assemble import assemble
from prism_jax.trace.dependencies import Dependencies, Links, durations, observed_waits, ready_s, work
from prism_jax.trace.pipeline import dependencies
from prism_jax.trace.trace import JobShape, OpRow, OpTable, Trace
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import Law, draws, planted, record, skeleton, timed


@pytest.fixture(scope="module")
def trace() -> Trace:
    return skeleton(PipelineJob(pp=2, dp=2, n_micro_batch=3))[0]


def links(trace: Trace) -> Links:
    """All ops on one lane, without dependencies."""
    found = Links(trace)
    found.lane = cast(Any, dict.fromkeys(range(len(trace.ops)), "lane"))
    return found


def test_circle_is_reported_with_the_names_of_its_ops(trace: Trace) -> None:
    found = links(trace)
    found.chain([1, 2, 3])
    found.after[1].add(3)
    found.after[5].add(3)  # waits for the circle, but is not in it
    a, b, c = (str(trace.ops[op]) for op in (1, 2, 3))
    with pytest.raises(DataError) as error:
        found.done()
    assert str(error.value) == (
        f"synthetic.csv: the recorded ops wait for each other: {a} waits for {c} waits for {b} waits for {a}"
    )


def test_circle_through_a_group_is_found(trace: Trace) -> None:
    """Each op is fine on its own, but the group of 1 and 2 waits for 3, which waits for 2."""
    found = links(trace)
    found.after[1].add(3)
    found.after[3].add(2)
    assert len(found.done().order) == len(trace.ops)
    found.groups.append([1, 2])
    with pytest.raises(DataError, match="wait for each other"):
        found.done()


def test_order_runs_ops_after_all_they_wait_for() -> None:
    _, needs = skeleton(PipelineJob(pp=4, dp=2, n_micro_batch=8, virtual_stages=2))
    place = np.empty(len(needs.order), dtype=int)
    place[needs.order] = np.arange(len(needs.order))
    members = needs.members()
    for op, after in enumerate(needs.after):
        together = members[needs.group[op]] if needs.group[op] >= 0 else [op]
        assert all(place[need] < place[peer] for need in after for peer in together)


def test_draft_of_known_dependencies_gives_them_back(trace: Trace) -> None:
    needs = skeleton(PipelineJob(pp=2, dp=2, n_micro_batch=3))[1]
    assert_same(Links.of(trace, needs).done(), needs)


def assert_same(a: Dependencies, b: Dependencies) -> None:
    assert (a.after, a.lanes) == (b.after, b.lanes)
    for name in ("lane", "group", "meets_replicas", "hidden_meeting", "order"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_transfers_are_the_ops_of_groups(trace: Trace) -> None:
    needs = skeleton(PipelineJob(pp=2, dp=2, n_micro_batch=3))[1]
    plain = {trace.ops[op].op_type for op in np.flatnonzero(needs.group < 0)}
    assert plain == {"forward-compute", "backward-compute", "gc", "layernorm-grads-all-reduce", "optimizer"}
    assert sorted(op for ops in needs.members() for op in ops) == np.flatnonzero(needs.group >= 0).tolist()


# --- Waits that no rule states are read off the times, and nothing is seen where there is nothing --------------------


JOB = PipelineJob(pp=2, dp=3, n_micro_batch=4)
LAW = Law(step=0.02, micro_batch=0.1, own=0.05)


def op_of(trace: Trace, op_type: str, stage: int, seq: int = 0) -> int:
    return next(i for i, op in enumerate(trace.ops) if (op.op_type, op.stage, op.seq) == (op_type, stage, seq))


def recorded(
    job: PipelineJob, needs: Dependencies | None = None, gap_s: np.ndarray | float = 0.0, n_step: int = 12
) -> Trace:
    """Twelve steps of known work."""
    return timed(job, planted(job, n_step, 1, LAW).run_s, gap_s, needs)


@pytest.fixture(scope="module")
def draft() -> tuple[Trace, Dependencies]:
    return skeleton(JOB)


def test_planted_waits_are_found_and_remove_the_gap(draft: tuple[Trace, Dependencies]) -> None:
    """As frameworks do it that post a receive only after the backward before it: a gap by rule, work by what is seen."""
    trace, needs = draft
    links = Links.of(trace, needs)
    for k in range(1, 4):
        links.after[op_of(trace, "forward-recv", 1, k)].add(op_of(trace, "backward-compute", 1, k - 1))
    seen = recorded(JOB, links.done())
    assert durations(seen, needs).gap_s.max() > 0.1
    waits = observed_waits(seen, needs)
    assert [line.split(" (")[0] for line in waits.found] == [
        f"forward-recv {k} of stage 1 waits for backward-compute {k - 1} of stage 1" for k in (1, 2, 3)
    ]
    found = durations(seen, waits.needs)
    np.testing.assert_allclose(found.gap_s, 0.0, atol=1e-12)
    np.testing.assert_allclose(found.run_s, planted(JOB, 12, 1, LAW).run_s, atol=1e-12)
    assert not waits.unexplained.any()


def test_unrecorded_barrier_across_replicas_is_found(draft: tuple[Trace, Dependencies]) -> None:
    trace, needs = draft
    links = Links.of(trace, needs)
    op = op_of(trace, "layernorm-grads-all-reduce", 1)
    links.groups.append([op])
    links.meeting.add(op)
    links.hidden.add(op)
    seen = recorded(JOB, links.done())
    waits = observed_waits(seen, needs)
    assert waits.found == ("layernorm-grads-all-reduce 0 of stage 1 waits for all replicas",)
    assert np.flatnonzero(waits.needs.hidden_meeting).tolist() == [op]
    found = durations(seen, waits.needs)
    np.testing.assert_allclose(found.gap_s, 0.0, atol=1e-12)
    np.testing.assert_allclose(found.run_s, planted(JOB, 12, 1, LAW).run_s, atol=1e-12)


def test_gap_that_shrinks_with_lateness_is_a_wait_for_something_unrecorded(draft: tuple[Trace, Dependencies]) -> None:
    """An op that starts at a time of its own clock: its worker would not have been later with more work before it."""
    trace, needs = draft
    op = op_of(trace, "gc", 0)
    ready = ready_s(recorded(JOB), needs)[op]
    gap = np.zeros((len(trace.ops), *ready.shape))
    clock = np.random.default_rng(0).normal(ready.max() + 0.2, 0.01, ready.shape)
    gap[op] = clock - ready
    seen = recorded(JOB, gap_s=gap)
    waits = observed_waits(seen, needs)
    marked = np.flatnonzero(waits.unexplained.all(axis=1))
    assert marked.tolist() == [op]
    assert waits.unexplained.sum() == JOB.dp
    left = work(seen, waits).gap_s
    np.testing.assert_allclose(left[op], np.broadcast_to(gap[op].min(axis=1, keepdims=True), ready.shape), atol=1e-12)
    np.testing.assert_allclose(np.delete(left, op, axis=0), np.delete(gap, op, axis=0), atol=1e-12)


def test_random_host_gaps_are_host_time() -> None:
    """At most 1% of the gaps of 12 steps look like waits by chance, and no dependency is invented."""
    n_marked = n_gap = 0
    for seed in range(5):
        run = planted(JOB, 12, seed, LAW).run_s
        gap = np.random.default_rng(seed).exponential(0.003, run.shape)
        seen = timed(JOB, run, gap)
        waits = observed_waits(seen, dependencies(seen))
        assert waits.found == ()
        n_marked, n_gap = n_marked + int(waits.unexplained.sum()), n_gap + waits.unexplained.size
    assert n_marked <= 0.01 * n_gap


@pytest.mark.parametrize("job", [PipelineJob(1, 2, 4), PipelineJob(4, 2, 4, overlaps=True), PipelineJob(2, 2, 4, 2)])
def test_nothing_is_found_where_the_rules_say_it_all(job: PipelineJob) -> None:
    """On traces of the event simulator, with few steps and much variation."""
    for seed in range(3):
        trace = record(job, 3, *draws(seed, spread=0.2)).trace()
        waits = observed_waits(trace, dependencies(trace))
        assert waits.found == ()
        assert not waits.unexplained.any()


def test_short_ops_that_follow_each_other_do_not_wait_in_a_circle() -> None:
    """Both are shorter than the overlap that clocks are forgiven, so each has ended when the other starts, nearly."""
    rows = []
    for step in range(4):
        for k in range(3):
            t = 0.4 * k
            rows.append(OpRow(step, 0, 0, 0, "long", -1, -1, t, 0.3 + 0.01 * step))
            rows.append(OpRow(step, 0, 0, 0, "first", -1, -1, t + 0.35, 5e-5))
            rows.append(OpRow(step, 0, 0, 0, "second", -1, -1, t + 0.35 + 6e-5, 5e-5))
    trace = assemble(OpTable.from_rows("ops.csv", rows), JobShape("j"))
    needs = observed_waits(trace, dependencies(trace)).needs
    first, second = op_of(trace, "first", 0, 1), op_of(trace, "second", 0, 1)
    assert first in needs.after[second]
    assert second not in needs.after[first]
    assert op_of(trace, "long", 0, 1) in needs.after[first]


def test_wait_that_would_close_a_circle_through_groups_is_not_added() -> None:
    """Rank 1 records the end of a send long before its receiver enters, so both ranks seem to have waited for the other."""
    rows = []
    for step in range(4):
        rows.append(OpRow(step, 0, 0, 0, "reduce", -1, -1, 0.0, 10.0, "a", "g"))
        rows.append(OpRow(step, 0, 0, 0, "receive", -1, -1, 11.0, 1.0, "b", "h"))
        rows.append(OpRow(step, 0, 1, 0, "send", -1, -1, 3.0, 1.0, "b", "h"))
        rows.append(OpRow(step, 0, 1, 0, "reduce", -1, -1, 5.0, 5.0, "a", "g"))
    trace = assemble(OpTable.from_rows("ops.csv", rows), JobShape("j", pp=2))
    waits = observed_waits(trace, dependencies(trace))
    assert waits.found == ("receive 0 of stage 0 waits for reduce 0 of stage 0 (10 s)",)

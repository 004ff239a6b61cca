"""The graph of a step: its edges, and levels that run together."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, strategies as st

from prism_jax.core.errors import PlanError
from prism_jax.graph.build import build_graph, level_table
from prism_jax.schedule.order import Op, Part, Placement, ScheduleOrder, StepOps, backward, forward, input_gradient
from prism_jax.schedule.registry import make_schedule
from tests.support.oracle import simulate, waits_for
from tests.support.pipelines import compute_only, op_seconds, random_cost, schedule_parts, schedules, simulate_cost
from tests.support.timeline import Timeline, timeline

SEEDS = st.integers(0, 2**31)


def lane_order(values: np.ndarray, label: np.ndarray) -> list[float]:
    """Values [level, lane] of ops, lane by lane in running order."""
    return [float(v) for lane in range(label.shape[1]) for v in values[label[:, lane] >= 0, lane]]


@given(schedules(), SEEDS, st.booleans())
def test_noise_free_times_equal_the_event_simulator(schedule: ScheduleOrder, seed: int, blocking: bool) -> None:
    cost = random_cost(schedule, seed, blocking)
    graph, slow = build_graph(schedule, cost), simulate_cost(schedule, cost)
    fast = timeline(graph)
    assert fast.step_s == pytest.approx(slow.step_s, rel=1e-12)
    keys = [(0, stage, i) for stage, order in enumerate(schedule.orders) for i in range(len(order))]
    np.testing.assert_allclose(lane_order(fast.start_s, graph.op), [slow.start_s[k] for k in keys], rtol=1e-12)
    np.testing.assert_allclose(lane_order(fast.end_s, graph.op), [slow.end_s[k] for k in keys], rtol=1e-12)


@given(schedules(), SEEDS, st.integers(1, 3), st.integers(1, 3))
def test_random_times_of_members_and_replicas_equal_the_event_simulator(
    schedule: ScheduleOrder, seed: int, n_member: int, n_replica: int
) -> None:
    """An op lasts as long as its slowest member, a step as long as its slowest replica."""
    cost = random_cost(schedule, seed)
    graph = build_graph(schedule, cost)
    rng = np.random.default_rng(seed)
    factor = rng.lognormal(0.0, 0.3, (n_replica, n_member, *graph.op.shape))
    lag_factor = rng.lognormal(0.0, 0.3, (n_replica, schedule.n_micro_batch, 3, schedule.n_chunk))
    level_of = [np.nonzero(graph.op[:, lane] >= 0)[0] for lane in range(schedule.pp)]
    base_s = graph.compute_s.sum(-1) + graph.comm_s.sum(-1)

    def transfer_s(replica: int, part: tuple[str, int, int]) -> float:
        kind, micro_batch, chunk = part
        edge = chunk if kind == "F" else chunk - 1
        return float(cost.p2p_s[edge] * lag_factor[replica, micro_batch, "FBW".index(kind), edge])

    slow = simulate(
        schedule_parts(schedule),
        schedule.n_chunk,
        lambda r, s, k, i: float(base_s[level_of[s][i], s] * factor[r, k, level_of[s][i], s]),
        transfer_s,
        n_member=n_member,
        n_replica=n_replica,
        reduce_s=dict(enumerate(cost.end_comm_s.tolist())),
        optimizer_s=lambda r, s, k: float(cost.end_compute_s[s]),
    )

    def replica(r: int) -> Timeline:
        lag_s = np.zeros_like(graph.lag_s)
        for stage, order in enumerate(schedule.orders):
            for level, op in zip(level_of[stage], order, strict=True):
                sent = list(results_from_elsewhere(schedule, stage, op))
                lag_s[level, stage, : len(sent)] = [transfer_s(r, part) for part in sent]
        assert ((lag_s > 0) == (graph.dep_level >= 0)).all()
        return timeline(graph, op_s=base_s * factor[r].max(axis=0), lag_s=lag_s)

    assert max(replica(r).step_s for r in range(n_replica)) == pytest.approx(slow.step_s, rel=1e-12)


def results_from_elsewhere(schedule: ScheduleOrder, stage: int, op: Op) -> Iterator[tuple[str, int, int]]:
    """Parts on other stages that `op` waits for, in the order of its own parts."""
    for part in op.parts:
        need = waits_for(part, schedule.n_chunk)
        if need is not None and schedule.stage_of(need[2], need[1]) != stage:
            yield need


@given(schedules(), SEEDS)
def test_all_seconds_of_the_cost_are_in_the_graph(schedule: ScheduleOrder, seed: int) -> None:
    """Every part once per micro-batch; communication is hidden only where a forward runs beside a backward."""
    cost = random_cost(schedule, seed)
    graph = build_graph(schedule, cost)
    n_micro_batch = schedule.n_micro_batch
    np.testing.assert_allclose(graph.compute_s.sum((0, 1)), n_micro_batch * cost.compute_s.sum((0, 1)), rtol=1e-12)
    total_comm_s = n_micro_batch * cost.comm_s.sum((0, 1))
    if schedule.name == "dualpipe":
        assert (graph.comm_s.sum((0, 1)) < total_comm_s).all()
    else:
        np.testing.assert_allclose(graph.comm_s.sum((0, 1)), total_comm_s, rtol=1e-12)


def test_communication_runs_beside_the_compute_of_the_other_direction() -> None:
    schedule = make_schedule("dualpipe", 4, 8, 1)
    cost = random_cost(schedule, 3)
    graph = build_graph(schedule, cost)
    op_s = graph.compute_s.sum(-1) + graph.comm_s.sum(-1)
    wanted = [op_seconds(op, cost) for order in schedule.orders for op in order]
    assert lane_order(op_s, graph.op) == pytest.approx(wanted, rel=1e-12)


def test_nothing_is_sent_within_a_stage() -> None:
    """At the bottom of the V of ZB-V, chunks pp - 1 and pp share a stage."""
    schedule = make_schedule("zb_v", 4, 8, 2)
    cost = compute_only(schedule, 1.0, 1.0, 1.0)
    cost.p2p_s[:] = np.where(np.arange(schedule.n_chunk) == 3, 100.0, 0.0)
    graph = build_graph(schedule, cost)
    assert graph.lag_s.max() == 0.0
    assert timeline(graph).step_s == timeline(build_graph(schedule, compute_only(schedule, 1.0, 1.0, 1.0))).step_s


@given(schedules(), SEEDS)
def test_blocking_sends_are_time_of_the_sender(schedule: ScheduleOrder, seed: int) -> None:
    free, blocking = (build_graph(schedule, random_cost(schedule, seed, block)) for block in (False, True))
    assert blocking.lag_s.max(initial=0.0) == free.send_s.max(initial=0.0) == 0.0
    assert blocking.send_s.sum() == pytest.approx(free.lag_s.sum(), rel=1e-12)
    assert timeline(blocking).step_s >= timeline(free).step_s * (1 - 1e-12)


def test_rows_know_their_op_and_name_its_kinds_micro_batch_and_chunk() -> None:
    graph = build_graph(schedule := make_schedule("dualpipe", 4, 8, 1), random_cost(schedule, 0))
    assert str(graph.ops[0]) == "F0 c0"
    assert "F3 c0 + BW5 c3" in {str(op) for op in graph.ops}
    assert graph.ops == tuple(op for order in schedule.orders for op in order)
    assert sorted(graph.op[graph.op >= 0].tolist()) == list(range(len(graph.ops)))


def test_a_cost_for_another_plan_is_refused() -> None:
    with pytest.raises(PlanError, match="4 model chunks on 4 stages, but schedule 1f1b runs 8 on 8"):
        build_graph(make_schedule("1f1b", 8, 8, 1), random_cost(make_schedule("1f1b", 4, 8, 1), 0))


# --- The level table orders every op after what it waits for, tightly, and says why if it cannot ---------------------


def pipeline(*orders: tuple[Op, ...], n_micro_batch: int = 1) -> ScheduleOrder:
    every_chunk_on_its_own_stage = Placement((tuple(range(len(orders))),), (0,) * n_micro_batch)
    return ScheduleOrder("by hand", len(orders), n_micro_batch, 1, StepOps.of(orders), every_chunk_on_its_own_stage)


@given(schedules())
def test_every_op_stands_once_and_in_the_order_of_its_lane(schedule: ScheduleOrder) -> None:
    op = level_table(schedule).op
    for stage, order in enumerate(schedule.orders):
        assert op[op[:, stage] >= 0, stage].tolist() == list(range(len(order)))


@given(schedules())
def test_remote_predecessors_are_exactly_those_of_the_rules_and_stand_earlier(schedule: ScheduleOrder) -> None:
    table = level_table(schedule)
    at = {
        part: (int(level), int(lane))
        for level, lane in zip(*np.nonzero(table.op >= 0), strict=True)
        for part in schedule.orders[lane][table.op[level, lane]].parts
    }
    for level, lane in zip(*np.nonzero(table.op >= 0), strict=True):
        wanted = set()
        for part in schedule.orders[lane][table.op[level, lane]].parts:
            need = waits_for(part, schedule.n_chunk)
            if need is not None and at[need][1] != lane:
                wanted.add((*at[need], min(need[2], part.chunk)))
            elif need is not None:
                assert at[need][0] <= level
        entries = zip(
            table.dep_level[level, lane], table.dep_lane[level, lane], table.dep_edge[level, lane], strict=True
        )
        listed = {(int(a), int(b), int(c)) for a, b, c in entries if a >= 0}
        assert listed == wanted
        assert all(dep < level for dep, _, _ in listed)
    assert not (table.dep_level[table.op < 0] >= 0).any()


@given(schedules())
def test_only_dualpipe_needs_two_predecessors(schedule: ScheduleOrder) -> None:
    assert level_table(schedule).dep_level.shape[2] <= (2 if schedule.name == "dualpipe" else 1)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_levels_are_as_few_as_equal_ops_would_take(name: str) -> None:
    """With all ops of one unit, the step takes 2 (m + p - 1) units."""
    assert len(level_table(make_schedule(name, 8, 20, 1)).op) == 2 * (20 + 8 - 1)


@pytest.mark.parametrize(("name", "depth"), [("gpipe", 2), ("1f1b", 2), ("zb_h1", 3), ("zb_h2", 4)])
def test_predecessors_are_near(name: str, depth: int) -> None:
    table = level_table(make_schedule(name, 16, 64, 1))
    back = np.arange(len(table.op))[:, None, None] - table.dep_level
    assert back[table.dep_level >= 0].max() + 1 == depth


def test_a_deadlock_names_the_ops_that_wait_for_each_other() -> None:
    stuck = pipeline((backward(0, 0), forward(0, 0)), (forward(0, 1), backward(0, 1)))
    with pytest.raises(PlanError, match=r"stage 0 stops at BW0 c0, which waits for B0 c1; stage 1 stops at F0 c1"):
        level_table(stuck)


def test_a_part_that_nobody_runs_is_named() -> None:
    with pytest.raises(PlanError, match="F0 c0, which no stage runs"):
        level_table(pipeline((), (forward(0, 1),)))


def test_a_weight_gradient_before_its_backward_is_a_deadlock() -> None:
    early = (forward(0, 0), Op((Part("W", 0, 0),)), input_gradient(0, 0))
    with pytest.raises(PlanError, match="stage 0 stops at W0 c0, which waits for B0 c0"):
        level_table(pipeline(early))


def test_a_part_that_runs_twice_is_named() -> None:
    with pytest.raises(PlanError, match="runs F0 c0 twice"):
        level_table(pipeline((forward(0, 0), forward(0, 0))))

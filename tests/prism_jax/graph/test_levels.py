"""Orders and levels made by arrays are those of loops over ops; end times are those of the compiled scan, bit by bit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from prism_jax.core.errors import PlanError
from prism_jax.graph.build import op_signatures, signatures
from prism_jax.graph.levels import LevelTable, Rounds, level_table, level_tables, op_graph
from prism_jax.schedule.order import Op, ScheduleOrder, StepOps, backward, forward, input_gradient, weight_gradient
from prism_jax.schedule.registry import SCHEDULES, make_schedule
from tests.support.oracle import waits_for
from tests.support.pipelines import schedules


def looped_table(schedule: ScheduleOrder) -> LevelTable:
    """The table op by op: as early as possible, then ops before some level as late as possible, and the nearest of these."""
    orders, ops = schedule.orders, [(s, i) for s, order in enumerate(schedule.orders) for i in range(len(order))]
    at: dict[tuple[str, int, int], tuple[int, int]] = {part: (s, i) for s, i in ops for part in orders[s][i].parts}
    deps: dict[tuple[int, int], list[tuple[tuple[int, int], int]]] = {}
    for s, i in ops:
        needs = [(p, n) for p in orders[s][i].parts if (n := waits_for(p, schedule.n_chunk)) is not None]
        deps[s, i] = [(at[n], min(n[2], p[2])) for p, n in needs if at[n][0] != s]
    early: dict[tuple[int, int], int] = {}
    while len(early) < len(ops):
        for s, i in ops:
            before = [*([(s, i - 1)] if i else []), *(d for d, _ in deps[s, i])]
            if (s, i) not in early and all(d in early for d in before):
                early[s, i] = max((early[d] + 1 for d in before), default=0)
    n = max(early.values()) + 1
    candidates = [early]
    for split in (n // 2, n * 7 // 8, n):
        late = {o: n - 1 if level < split else level for o, level in early.items()}
        for s, i in sorted(ops, key=lambda o: -early[o]):
            for d in [*([(s, i - 1)] if i else []), *(d for d, _ in deps[s, i])]:
                late[d] = min(late[d], late[s, i] - 1)
        candidates.append(late)
    level = min(candidates, key=lambda c: max((c[o] - c[d] for o in ops for d, _ in deps[o]), default=0))
    op = np.full((max(level.values()) + 1, len(orders)), -1)
    dep = np.full((3, *op.shape, max(1, *map(len, deps.values()))), -1)
    dep[1] = 0
    for s, i in ops:
        op[level[s, i], s] = i
        for slot, (d, edge) in enumerate(deps[s, i]):
            dep[:, level[s, i], s, slot] = level[d], d[0], edge
    return LevelTable(op, *dep)


@given(schedules())
def test_tables_are_those_of_loops_over_ops(schedule: ScheduleOrder) -> None:
    for made, wanted in zip(level_table(schedule), looped_table(schedule), strict=True):
        np.testing.assert_array_equal(made, wanted)


@given(st.lists(schedules(), min_size=2, max_size=4))
def test_tables_do_not_depend_on_the_schedules_beside_them(some: list[ScheduleOrder]) -> None:
    for schedule, together in zip(some, level_tables([op_graph(one) for one in some]), strict=True):
        for made, wanted in zip(together, level_table(schedule), strict=True):
            np.testing.assert_array_equal(made, wanted)


@given(schedules())
def test_ops_of_one_signature_have_the_same_parts_and_stand_where_the_table_says(schedule: ScheduleOrder) -> None:
    found, flat = op_signatures(schedule), [(s, op) for s, order in enumerate(schedule.orders) for op in order]
    kinds: dict[tuple[object, ...], int] = {}
    for s, op in flat:
        kinds.setdefault((s, *((part.kind, part.chunk) for part in op.parts)), len(kinds))
    assert found.of_op.tolist() == [kinds[s, *((part.kind, part.chunk) for part in op.parts)] for s, op in flat]
    table = level_table(schedule)
    placed, n_op = signatures(schedule, table).of_op, schedule.ops.n_op
    for stage, first in enumerate(np.cumsum(n_op) - n_op):
        own = found.of_op[first : first + n_op[stage]]
        np.testing.assert_array_equal(placed[table.op[:, stage] >= 0, stage], own)


@given(schedules())
def test_ops_as_arrays_are_ops_as_objects(schedule: ScheduleOrder) -> None:
    assert StepOps.of(schedule.orders) == schedule.ops
    assert (
        SCHEDULES.named(schedule.name).orders(schedule.pp, schedule.n_micro_batch, schedule.virtual_stages)
        == schedule.orders
    )


# --- Orders by turns are those of loops ------------------------------------------------------------------------------


def one_by_one(forwards: list[Op], backwards: list[Op], n_ahead: int) -> list[Op]:
    ahead, rest = forwards[:n_ahead], forwards[n_ahead:]
    pairs = [op for pair in zip(rest, backwards, strict=False) for op in pair]
    return [*ahead, *pairs, *backwards[len(rest) :]]


def split_in_turn(stage: int, n_ahead: int, n_held: int, n: int) -> list[Op]:
    order = [forward(m, stage) for m in range(min(n_ahead, n))]
    for m in range(n):
        order.append(input_gradient(m, stage))
        order.extend(weight_gradient(m - n_held, stage) for _ in range(m >= n_held))
        order.extend(forward(m + n_ahead, stage) for _ in range(m + n_ahead < n))
    return order + [weight_gradient(m, stage) for m in range(max(n - n_held, 0), n)]


@given(st.integers(1, 7), st.integers(1, 20))
def test_orders_of_one_chunk_per_stage_are_those_of_loops(pp: int, n: int) -> None:
    made = {name: make_schedule(name, pp, n, 1).orders for name in ("gpipe", "1f1b", "zb_h1", "zb_h2")}
    for s in range(pp):
        passes = [forward(m, s) for m in range(n)], [backward(m, s) for m in range(n)]
        assert list(made["gpipe"][s]) == one_by_one(*passes, n)
        assert list(made["1f1b"][s]) == one_by_one(*passes, pp - 1 - s)
        assert list(made["zb_h1"][s]) == split_in_turn(s, pp - s, s, n)
        assert list(made["zb_h2"][s]) == split_in_turn(s, 2 * (pp - 1 - s) + 1, 2 * s, n)


@given(st.integers(1, 6), st.integers(0, 12), st.integers(2, 4))
def test_interleaved_orders_are_those_of_loops(pp: int, more: int, v: int) -> None:
    n = pp + more
    group = next(g for g in range(pp, n + 1) if n % g == 0 or n % g >= pp)
    passes = [(m, q) for a in range(0, n, group) for q in range(v) for m in range(a, min(a + group, n))]
    for s, order in enumerate(make_schedule("interleaved", pp, n, v).orders):
        forwards = [forward(m, q * pp + s) for m, q in passes]
        backwards = [backward(m, (v - 1 - q) * pp + s) for m, q in passes]
        assert list(order) == one_by_one(forwards, backwards, 2 * (pp - 1 - s) + (v - 1) * group)


# --- Rounds ----------------------------------------------------------------------------------------------------------


@given(st.lists(schedules(), min_size=1, max_size=3), st.integers(0, 2**31))
def test_end_times_are_the_longest_paths(some: list[ScheduleOrder], seed: int) -> None:
    """By the recursion op by op; in single precision, so equal to the last bit."""
    graphs, rng = [op_graph(one) for one in some], np.random.default_rng(seed)
    rounds = Rounds(graphs)
    n_dep = max(graph.wait.shape[1] for graph in graphs)
    seconds = rng.uniform(0.5, 2.0, rounds.n_op).astype(np.float32)
    lag_s = rng.uniform(0.0, 1.0, (rounds.n_op, n_dep)).astype(np.float32)
    for graph, first in zip(graphs, rounds.first.tolist(), strict=False):
        own = lag_s[first : first + len(graph.lane)]
        own[:, : graph.wait.shape[1]][graph.wait >= len(graph.lane)] = 0.0
        own[:, graph.wait.shape[1] :] = 0.0
    found, wanted = rounds.end_s(seconds, lag_s), []
    for graph, first in zip(graphs, rounds.first.tolist(), strict=False):
        end: dict[int, Any] = {}
        n = len(graph.lane)
        for op in np.argsort(rounds.level[first : first + n], kind="stable").tolist():
            before = end[op - 1] if op and graph.lane[op - 1] == graph.lane[op] else np.float32(0.0)
            deps = [end[d] + lag_s[first + op, k] for k, d in enumerate(graph.wait[op].tolist()) if d < n]
            end[op] = max(before, *deps, np.float32(0.0)) + seconds[first + op]
        wanted += [end[n - 1] for n in np.cumsum(graph.schedule.ops.n_op).tolist()]
    np.testing.assert_array_equal(found, np.array(wanted))


def test_a_lane_without_ops_ends_at_once() -> None:
    alone = make_schedule("1f1b", 1, 2, 1)
    idle = ScheduleOrder("idle", 2, 2, 1, StepOps.of(((), *alone.orders)), alone.stage_of)
    rounds = Rounds([op_graph(alone)])
    ops = np.ones(rounds.n_op, np.float32)
    assert rounds.end_s(ops, 0.0 * ops[:, None]).tolist() == [4.0]
    with pytest.raises(PlanError, match="waits for B0 c1, which no stage runs"):
        Rounds([op_graph(alone), op_graph(idle)])

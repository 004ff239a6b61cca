"""The level table orders every op after what it waits for, tightly, and says why if it cannot."""

import numpy as np
import pytest
from hypothesis import given

from prism_jax.core.errors import PlanError
from prism_jax.graph.build import level_table
from prism_jax.schedule.order import Op, Part, Placement, ScheduleOrder, backward, forward, input_gradient
from prism_jax.schedule.registry import make_schedule
from tests.support.oracle import waits_for
from tests.support.pipelines import schedules


def pipeline(*orders: tuple[Op, ...], n_micro_batch: int = 1) -> ScheduleOrder:
    every_chunk_on_its_own_stage = Placement((tuple(range(len(orders))),), (0,) * n_micro_batch)
    return ScheduleOrder("by hand", len(orders), n_micro_batch, 1, orders, every_chunk_on_its_own_stage)


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

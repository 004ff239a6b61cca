"""What holds for every registered schedule: conditions, placement, and that it is a value."""

import pickle
from collections.abc import Iterator

import numpy as np
import pytest

from prism_jax.core.errors import PlanError
from prism_jax.graph.build import build_graph, level_table
from prism_jax.plan.plan import ParallelPlan
from prism_jax.schedule.base import PipelineSchedule
from prism_jax.schedule.registry import SCHEDULES, resolve_schedule
from prism_jax.schedule.zero_bubble import DualPipe
from tests.support.pipelines import random_cost
from tests.support.timeline import timeline

EVERY = pytest.mark.parametrize("schedule", SCHEDULES, ids=str)


def shapes(schedule: PipelineSchedule) -> Iterator[tuple[int, int, int]]:
    """(pp, n_micro_batch, virtual_stages), those with problems included."""
    return ((pp, m, v) for pp in range(1, 6) for m in range(14) for v in (1, 2, 3))


def possible(schedule: PipelineSchedule) -> list[tuple[int, int, int]]:
    return [shape for shape in shapes(schedule) if not any(schedule.problems(*shape))]


@EVERY
def test_without_problems_it_can_be_run_and_with_any_it_is_refused(schedule: PipelineSchedule) -> None:
    sound = possible(schedule)
    assert sound
    for shape in shapes(schedule):
        if shape in sound:
            order = schedule.lay_out(*shape)
            assert (level_table(order).op >= 0).sum() == sum(map(len, order.orders))
            parts = [part for own in order.orders for op in own for part in op.parts]
            assert len(parts) == len(set(parts)) == 3 * order.n_chunk * order.n_micro_batch
        else:
            with pytest.raises(PlanError, match=f"schedule = {schedule.name}"):
                schedule.lay_out(*shape)


@EVERY
def test_conditions_on_arrays_are_those_on_numbers(schedule: PipelineSchedule) -> None:
    m = np.arange(1, 30)
    for pp in range(1, 7):
        for v in (1, 2, 3):
            if not schedule.layout_problem(pp, v):
                one_by_one = [not any(schedule.problems(pp, int(n), v)) for n in m]
                np.testing.assert_array_equal(schedule.enough_micro_batches(pp, m, v), one_by_one)


@EVERY
def test_what_it_leaves_out_would_be_right_too(schedule: PipelineSchedule) -> None:
    """Closed forms of the activations in flight stand for the count that a schedule without them gets."""
    for pp, m, v in possible(schedule):
        if m % 3 == 1 or m == 2 * pp:
            own = [schedule.in_flight(stage, pp, m, v) for stage in range(pp)]
            assert own == pytest.approx([PipelineSchedule.in_flight(schedule, stage, pp, m, v) for stage in range(pp)])


@EVERY
def test_stages_share_every_chunk_and_hold_it_where_its_micro_batches_run(schedule: PipelineSchedule) -> None:
    for pp, m, v in possible(schedule)[::5]:
        order = schedule.lay_out(pp, m, v)
        np.testing.assert_allclose(schedule.stage_shares(pp, v).sum(axis=1), 1.0)
        for chunk in range(order.n_chunk):
            stages = {order.stage_of(chunk, micro_batch) for micro_batch in range(m)}
            assert stages == {stage for stage in range(pp) if chunk in schedule.chunks_of_stage(stage, pp, v)}


@EVERY
@pytest.mark.parametrize("seed", range(3))
def test_what_the_bound_assumes_holds(schedule: PipelineSchedule, seed: int) -> None:
    """fill + busy + drain of every stage, each where the schedule says so, is no more than the time it takes."""
    for pp, m, v in possible(schedule)[seed::9]:
        order = schedule.lay_out(pp, m, v)
        cost = random_cost(order, seed)
        compute, comm = cost.compute_s.sum(axis=2), cost.comm_s.sum(axis=2)
        seconds = compute if schedule.overlaps_passes else compute + comm  # [kind, chunk]
        busy = m * (seconds.sum(axis=0) @ schedule.stage_shares(pp, v))
        before = np.cumsum(seconds[:, :pp], axis=1) - seconds[:, :pp]
        fill = before[0] if schedule.fills_one_way else np.zeros(pp)
        end = cost.end_compute_s + cost.end_comm_s
        drain = before[1] + before[2] + end[0] if schedule.drains_one_way else end
        bound = (fill + busy + np.maximum(end, drain)).max()
        assert bound <= timeline(build_graph(order, cost)).step_s * (1 + 1e-9)


@EVERY
def test_it_is_a_value(schedule: PipelineSchedule) -> None:
    again = pickle.loads(pickle.dumps(schedule))
    assert (again, hash(again), str(again)) == (schedule, hash(schedule), schedule.name)
    assert again != next(other for other in SCHEDULES if other.name != schedule.name)
    order = schedule.lay_out(*possible(schedule)[-1])
    assert pickle.loads(pickle.dumps(order)) == order
    assert schedule.about
    assert resolve_schedule(schedule) is schedule
    plan = ParallelPlan(micro_batch=1, global_batch=8, seq_len=8, schedule=schedule)
    assert plan.pipeline_schedule is schedule
    assert plan.schedule_name == schedule.name


def test_a_forward_beside_a_backward_must_be_declared() -> None:
    class Undeclared(DualPipe):
        overlaps_passes = False

    with pytest.raises(PlanError, match="overlaps_passes"):
        Undeclared().lay_out(4, 8, 1)

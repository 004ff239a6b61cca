"""The local search finds what the exhaustive search finds, inside the space it was given, and gives the same answer again."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.core.errors import DataError, PlanError
from prism_jax.job.load_job import load_job
from prism_jax.schedule.registry import SCHEDULES
from prism_jax.search.evaluate import Evaluator
from prism_jax.search.exhaustive import search
from prism_jax.search.local_search import (
    FAMILY_WITHIN,
    N_FRONT,
    N_PER_PIPELINE,
    drawn,
    gap,
    local_search,
    neighbours,
    polish,
)
from prism_jax.search.plan_costs import FEASIBLE, feasibility, table_cost
from prism_jax.search.plan_knobs import CHOICES, DEGREES, NOWHERE, Knobs, VisitedPlans, estimate_s
from prism_jax.search.plan_table import COLUMNS
from prism_jax.search.space import PlanSpace, default_space


@pytest.fixture(scope="module")
def found(job, space):
    return local_search(job, space, top=5)


@pytest.fixture(scope="module")
def knobs(job, space) -> Knobs:
    return Knobs(space, job.plan, job.model)


def every_position(knobs: Knobs) -> np.ndarray:
    return np.indices(knobs.sizes.tolist()).reshape(len(knobs.sizes), -1).T


def rows_of(knobs: Knobs, space: PlanSpace) -> list[set[tuple[int, ...]]]:
    """Plans of every layout as rows of columns."""
    tables = [space.block(knobs.base, layout) for layout in knobs.layouts]
    return [{*zip(*(getattr(table, name).tolist() for name in COLUMNS), strict=True)} for table in tables]


def same_plans(knobs: Knobs, space: PlanSpace) -> None:
    codes = knobs.codes(every_position(knobs))
    made: list[set[tuple[int, ...]]] = [set() for _ in knobs.layouts]
    for layout, columns in zip(codes.layout.tolist(), codes.columns.tolist(), strict=True):
        if layout != NOWHERE:
            made[layout].add(tuple(columns))
    assert made == rows_of(knobs, space)


def test_all_positions_together_are_the_plans_of_the_space(knobs, space):
    same_plans(knobs, space)


def test_the_same_with_experts_schedules_cluster_sizes_and_all_shardings():
    job = load_job("deepseek_v3_2048")
    space = PlanSpace(
        n_devices=(96, 64),
        tp=(1, 2, 3),
        pp=(1, 2, 6),
        cp=(1, 2),
        ep=(1, 4),
        micro_batch=(2,),
        virtual_stages=(3, 1, 2),
        schedule=("interleaved", "zb_v", "1f1b"),
        recompute=("full",),
        zero_stage=(0, 1),
        sharding=("none", "fsdp", "hsdp"),
        dp_shard=(2, 4),
        overlap_dp=(0,),
    )
    same_plans(Knobs(space, job.plan, job.model), space)


def test_a_start_at_a_plan_of_the_space_is_that_plan(knobs, space):
    table = space.block(knobs.base, knobs.layouts[-1])
    for row in range(0, len(table), 17):
        codes = knobs.codes(knobs.start(table.plan(row))[None])
        assert codes.layout[0] == len(knobs.layouts) - 1
        assert codes.columns[0].tolist() == [int(getattr(table, name)[row]) for name in COLUMNS]


def test_neighbours_differ_and_stay_inside(knobs):
    middle = knobs.sizes // 2
    near = neighbours(knobs, middle)
    assert (near >= 0).all()
    assert (near < knobs.sizes).all()
    assert ((near != middle).sum(axis=1) >= 1).all()
    assert ((near != middle).sum(axis=1) <= 2).all()
    assert len(np.unique(near, axis=0)) == len(near)


def test_estimates_are_close_to_simulated_times(job):
    """All schedules; at the median within 5%, nowhere off by more than 15%."""
    wide = default_space(job, any_framework=True)
    space = replace(wide, pp=(4,), virtual_stages=(2, 4), recompute=("none", "full"), tp=(1, 2))
    evaluator = Evaluator(job, space)
    ratios: dict[str, list[float]] = {}
    for layout in evaluator.layouts:
        table = space.block(job.plan, layout)
        table = table.take(np.random.default_rng(0).permutation(len(table))[:24])
        table = table.take(feasibility(table, evaluator.costs)[0] == FEASIBLE)
        if len(table):
            exact = evaluator.step_times(table)
            ratios.setdefault(layout.pipeline_schedule.name, []).extend(
                estimate_s(table_cost(table, evaluator.costs), evaluator.costs) / exact
            )
    assert set(ratios) == set(SCHEDULES.names)
    for own in ratios.values():
        assert np.median(np.abs(np.array(own) - 1.0)) < 0.05
        assert np.abs(np.array(own) - 1.0).max() < 0.15


def test_drawn_plans_break_no_rule_and_come_from_every_pipeline(knobs):
    codes = knobs.codes(drawn(knobs, seed=1))
    assert NOWHERE not in codes.layout
    counts = np.bincount(codes.layout, minlength=len(knobs.layouts))
    assert 0 < counts.min() <= counts.max() <= N_PER_PIPELINE
    assert not np.array_equal(drawn(knobs, seed=1), drawn(knobs, seed=2))


def test_no_plan_of_the_front_has_a_faster_neighbour(job):
    """The search ends only where all neighbours are known; that none is faster than the fastest follows from sorting."""
    space = default_space(job)
    knobs = Knobs(space, job.plan, job.model)
    known = VisitedPlans(knobs, Evaluator(job, space).costs)
    known.look_up(drawn(knobs, seed=0))
    polish(knobs, known)
    n_known = len(known)
    for row in known.front(N_FRONT, FAMILY_WITHIN):
        known.look_up(neighbours(knobs, row))
    assert len(known) == n_known


def test_the_front_holds_the_fastest_plan_of_every_split_in_reach(job):
    space = default_space(job)
    knobs = Knobs(space, job.plan, job.model)
    known = VisitedPlans(knobs, Evaluator(job, space).costs)
    positions = drawn(knobs, seed=0)
    time_s, _ = known.look_up(positions)
    at = [DEGREES.index("tp"), DEGREES.index("pp")]
    split = positions[:, at]
    front = known.front(1, 2.0)
    for own in np.unique(split, axis=0):
        fastest = np.nanmin(np.append(time_s[(split == own).all(axis=1)], np.inf))
        held = (front[:, at] == own).all(axis=1)
        assert held.any() == (fastest <= 2.0 * np.nanmin(time_s))
        if held.any():
            assert known.look_up(front[held])[0].min() == fastest


def test_the_best_of_a_small_space_is_found(found, job, space):
    exhaustive = search(job, space, top=5)
    behind, error = gap(found, exhaustive)
    assert behind <= 4.0 * error + 1e-9
    assert found.method == "local"
    assert found.best.value_s == pytest.approx(exhaustive.best.value_s, rel=2e-3)
    assert found.screen.n_plans < exhaustive.screen.n_plans
    assert f"{found.screen.n_plans:,} plans were looked at" in found.notes[-1]


def test_the_gap_to_itself_is_zero_and_that_to_a_slower_plan_is_not(found):
    assert gap(found, found) == (0.0, 0.0)
    slower = replace(found, candidates=found.candidates[::-1])
    behind, error = gap(slower, found)
    assert behind == pytest.approx(found.candidates[-1].behind_s / found.best.value_s, abs=4.0 * error + 1e-3)
    assert behind > 4.0 * error


def test_the_same_seed_gives_the_same_answer(found, job, space):
    again = local_search(job, space, top=5)
    assert again.candidates == found.candidates
    assert again.promise == found.promise
    assert again.screen.n_plans == found.screen.n_plans


def test_only_values_of_the_space_are_chosen(job, space):
    narrow = replace(space, tp=(2,), schedule=("zb_h1", "gpipe"), micro_batch=(2,), overlap_dp=(0,))
    study = local_search(job, narrow, objective="mean", seed=3, top=2)
    for candidate in study.candidates:
        plan = candidate.plan
        assert (plan.tp, plan.micro_batch, plan.overlap.dp) == (2, 2, False)
        assert plan.schedule in (("1f1b",) if plan.pp == 1 else ("zb_h1", "gpipe"))


def test_a_space_without_feasible_plans_is_said_to_be_one(job, space):
    with pytest.raises(PlanError, match="too little memory"):
        local_search(job, replace(space, tp=(1,), pp=(1,), zero_stage=(0,), sharding=("none",), recompute=("none",)))
    with pytest.raises(PlanError, match="no combination of degrees"):
        local_search(job, replace(space, tp=(3,)))
    with pytest.raises(DataError, match="p96"):
        local_search(job, space, objective="p96")


def test_knobs_are_degrees_and_choices(knobs):
    assert len(knobs.sizes) == len(DEGREES) + len(CHOICES)

"""Noise-free times of many plans are those of `predict`, one by one; bounds lie below them."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from prism_jax.core.errors import PlanError
from prism_jax.job.load_job import load_job
from prism_jax.search.evaluate import Evaluator
from prism_jax.search.exhaustive import search
from prism_jax.search.plan_costs import lower_bound, peak_memory, table_cost
from prism_jax.search.space import default_space
from prism_jax.simulate.inputs import deterministic
from prism_jax.simulate.predict import predict
from prism_jax.simulate.program import lower
from prism_jax.variability.config import preset
from prism_jax.workload.catalog import model
from tests.support.jobs import stated

FLOAT32 = 2e-6  # both are computed in it


@pytest.fixture(scope="module")
def screen(evaluator):
    found = evaluator.bounds()
    evaluator.simulate(found)
    return found


def test_every_schedule_takes_the_time_that_predict_says(evaluator, screen, job):
    rng = np.random.default_rng(0)
    schedules = set()
    for index in range(len(evaluator.layouts)):
        first, end = evaluator.first[index : index + 2]
        known = first + np.flatnonzero(np.isfinite(screen.step_s[first:end]))
        for number in rng.choice(known, min(2, len(known)), replace=False):
            plan = evaluator.plan(int(number))
            schedules.add(plan.schedule)
            assert screen.step_s[number] == pytest.approx(
                deterministic(lower(replace(job, plan=plan), True)), rel=FLOAT32
            )
    assert schedules == {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zb_v", "dualpipe"}


def test_experts_and_sharding_take_the_time_that_predict_says():
    job = stated(load_job("deepseek_v3_2048"))
    knobs = {"tp": (1, 2), "pp": (8,), "cp": (1, 2), "ep": (8, 64), "micro_batch": (1,), "recompute": ("full",)}
    schedules = {"schedule": ("interleaved", "dualpipe"), "virtual_stages": (2,), "overlap_pp": (1,)}
    evaluator = Evaluator(
        job, replace(default_space(job), **knobs, **schedules, sharding=("none", "hsdp"), dp_shard=(8,))
    )
    rng = np.random.default_rng(1)
    for index in range(len(evaluator.layouts)):
        table = evaluator.block(index)
        table = table.take(rng.choice(len(table), 3, replace=False))
        for row, time_s in enumerate(evaluator.step_times(table)):
            plan = table.plan(row)
            assert time_s == pytest.approx(deterministic(lower(replace(job, plan=plan), True)), rel=FLOAT32)


def test_layers_of_several_kinds_take_the_time_and_the_memory_that_one_plan_does():
    job = stated(load_job("deepseek_v3_2048"))
    own = replace(job, model=replace(model("llama-4-maverick"), n_layers=22), framework="megatron-core")
    knobs = {"tp": (1, 2), "pp": (1, 4, 8), "cp": (1, 2), "ep": (8,), "micro_batch": (1,), "recompute": ("full",)}
    schedules = {"schedule": ("1f1b", "interleaved"), "virtual_stages": (1, 2), "overlap_pp": (1,)}
    evaluator = Evaluator(own, replace(default_space(own), **knobs, **schedules, sharding=("none",)))
    rng = np.random.default_rng(2)
    for index in range(len(evaluator.layouts)):
        table = evaluator.block(index)
        table = table.take(rng.choice(len(table), 2, replace=False))
        held = peak_memory(table, evaluator.costs)
        for row, time_s in enumerate(evaluator.step_times(table)):
            one = replace(own, plan=table.plan(row))
            assert time_s == pytest.approx(deterministic(lower(one, True)), rel=FLOAT32)
            assert held[row] == pytest.approx(one.memory.total_bytes, rel=1e-12)


def test_no_plan_beats_its_bound(screen):
    known = np.isfinite(screen.step_s)
    assert known.sum() > 300
    assert (screen.bound_s[known] <= screen.step_s[known]).all()


def test_simple_schedules_meet_their_bound_without_transfers(evaluator):
    for index, layout in enumerate(evaluator.layouts):
        if layout.schedule in ("gpipe", "1f1b"):
            table = evaluator.block(index)
            table = table.take(np.flatnonzero(table.base.global_batch % (table.dp * table.micro_batch) == 0)[:40])
            cost = table_cost(table, evaluator.costs)
            cost = replace(cost, edge_s=np.zeros_like(cost.edge_s))
            bound = lower_bound(cost, evaluator.costs.eff.overlap_slowdown)
            if layout.pp == 1:
                assert bound == pytest.approx(evaluator.step_times(table), rel=3e-6)
            assert (bound <= evaluator.step_times(table)).all()


def test_a_limit_leaves_out_only_plans_that_exceed_it(evaluator, screen):
    some = evaluator.bounds()
    best = evaluator.fastest(some)
    assert best == pytest.approx(np.nanmin(screen.step_s))
    evaluator.simulate(some, 1.1 * best)
    within = screen.step_s <= 1.1 * best
    np.testing.assert_array_equal(some.step_s[within], screen.step_s[within])


def test_without_variability_the_search_ranks_as_predict_does_one_by_one(job, space):
    calm = replace(job, variability=preset("none"))
    few = replace(
        space,
        tp=(2,),
        cp=(1,),
        recompute=("full",),
        zero_stage=(1,),
        sharding=("none",),
        sequence_parallel=(1,),
        overlap_dp=(1,),
    )
    study = search(calm, few, top=8)
    evaluator = Evaluator(calm, few)
    screen = evaluator.bounds()
    one_by_one = {}
    for number in np.flatnonzero(np.isfinite(screen.bound_s)):
        plan = evaluator.plan(int(number))
        one_by_one[plan] = predict(replace(calm, plan=plan), key=jax.random.key(0), n_samples=16, pad=True).quantile(
            0.95
        )
    best = sorted(one_by_one.values())
    for rank, candidate in enumerate(study.top(8)):
        assert candidate.p95_s == pytest.approx(candidate.step_s, rel=FLOAT32)
        assert candidate.p95_s == pytest.approx(one_by_one[candidate.plan], rel=FLOAT32)
        assert candidate.p95_s == pytest.approx(best[rank], rel=FLOAT32)


def test_nothing_feasible_is_an_error_that_says_why(job, space):
    with pytest.raises(PlanError, match="too little memory"):
        crowded = replace(job, cluster=replace(job.cluster, device=replace(job.cluster.device, hbm_bytes=1e9)))
        Evaluator(crowded, space).bounds()
    with pytest.raises(PlanError, match="no combination of degrees"):
        Evaluator(job, replace(space, tp=(3,))).bounds()

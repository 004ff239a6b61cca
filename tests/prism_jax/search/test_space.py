"""Spaces hold every plan once; rules and memory say of each what the checks of single plans say."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from prism_jax.core.errors import ConfigError, PlanError
from prism_jax.job.load_job import load_job
from prism_jax.job.rules import problems
from prism_jax.search.ask_tell import AskTell
from prism_jax.search.evaluate import Evaluator
from prism_jax.search.plan_costs import FEASIBLE, HOST_MEMORY, MEMORY, REASONS, feasibility
from prism_jax.search.plan_table import PlanTable
from prism_jax.search.space import default_space
from prism_jax.search.space_file import read_space


def every_plan(evaluator):
    for index in range(len(evaluator.layouts)):
        table = evaluator.block(index)
        yield from (table.plan(row) for row in range(len(table)))


def test_every_plan_uses_all_devices_and_comes_once(evaluator):
    counts = Counter(every_plan(evaluator))
    assert set(counts.values()) == {1}
    assert {plan.n_devices for plan in counts} == {16}
    assert len(counts) == evaluator.first[-1]


def test_switches_without_effect_are_no_plans_of_their_own(evaluator):
    for plan in every_plan(evaluator):
        assert plan.tp > 1 or not plan.sequence_parallel
        assert plan.pp > 1 or (plan.schedule, plan.virtual_stages, plan.overlap.pp) == ("1f1b", 1, True)


def test_shardings_that_start_late_leave_plans_without_replicas_in(job, space):
    late = replace(space, zero_stage=(1, 2), sharding=("none", "fsdp"), tp=(4,), pp=(4,), cp=(1,))
    plans = [*every_plan(Evaluator(job, late))]
    assert {(plan.zero_stage, plan.sharding) for plan in plans} == {(1, "none")}


def test_a_plan_survives_the_way_through_a_table(evaluator):
    for plan in every_plan(evaluator):
        assert PlanTable.of(plan).plan(0) == plan


def moe_space():
    job = load_job("deepseek_v3_2048")
    space = replace(
        default_space(job),
        tp=(1, 2, 3, 8),
        pp=(1, 4, 16),
        cp=(1, 2, 3),
        ep=(1, 7, 32, 64, 256),
        micro_batch=(1, 3),
        sharding=("none", "fsdp", "hsdp"),
        dp_shard=(8, 24),
        recompute=("none",),
        virtual_stages=(1, 2),
    )
    return job, space


@pytest.mark.parametrize("which", ["small", "moe"])
def test_reasons_are_those_of_the_checks(which, job, space):
    job, space = (job, space) if which == "small" else moe_space()
    evaluator, rng = Evaluator(job, space), np.random.default_rng(0)
    seen = set()
    for index in range(len(evaluator.layouts)):
        table = evaluator.block(index)
        if not len(table):
            continue
        rows = rng.choice(len(table), min(len(table), 40), replace=False)
        reason, used = feasibility(table.take(rows), evaluator.costs)
        for row, why, n_bytes in zip(rows, reason, used, strict=True):
            plan = table.plan(int(row))
            broken = [*problems(plan, job.model, job.cluster)]
            assert bool(broken) == (why not in (FEASIBLE, MEMORY, HOST_MEMORY)), (broken, why, plan)
            if not broken:
                assert n_bytes == pytest.approx(replace(job, plan=plan).memory.total_bytes, rel=1e-12)
                assert (why == MEMORY) == (n_bytes > job.cluster.device.hbm_bytes)
            seen.add(int(why))
    assert len(seen) >= (2 if which == "small" else 6)


@pytest.mark.parametrize("host_gib", [80, 16384, None])
@pytest.mark.parametrize("offload", [{"offload_optimizer": 0.5}, {"offload_activations": 1.0}, {}])
def test_what_a_host_cannot_hold_is_told_apart_as_by_single_plans(host_gib, offload, job, space):
    """The space has ZeRO 0 and 1: states of all replicas of a node, or once."""
    host = None if host_gib is None else host_gib * 2.0**30
    own = replace(job, cluster=replace(job.cluster, host_bytes=host), plan=replace(job.plan, **offload))
    evaluator, rng, seen = Evaluator(own, replace(space, zero_stage=(0, 1))), np.random.default_rng(1), set()
    for index in range(len(evaluator.layouts)):
        table = evaluator.block(index)
        table = table.take(rng.choice(len(table), min(len(table), 40), replace=False))
        for row, why in enumerate(feasibility(table, evaluator.costs)[0]):
            one = replace(own, plan=table.plan(row))
            if why in (FEASIBLE, MEMORY, HOST_MEMORY):
                assert (why == FEASIBLE) == one.fits
                assert (why == MEMORY) == (not one.memory.fits)
                seen.add(int(why))
    assert (HOST_MEMORY in seen) == bool(offload and host_gib == 80)
    assert "host" in REASONS[HOST_MEMORY]


def test_a_host_that_is_too_small_is_named_where_nothing_fits(job, space):
    plan = replace(job.plan, offload_optimizer=1.0)
    small = replace(job, cluster=replace(job.cluster, host_bytes=2.0**30), plan=plan)
    with pytest.raises(PlanError, match="the host has too little memory"):
        Evaluator(small, space).bounds()
    knobs = {"tp": 2, "pp": 1, "cp": 1, "micro_batch": 1, "zero_stage": 1, "recompute": "full"}
    with pytest.raises(PlanError, match="of a host's memory"):
        AskTell(small, space).plan(**knobs)


def test_values_must_be_given_and_differ(space):
    with pytest.raises(PlanError, match="tp has no value"):
        replace(space, tp=())
    with pytest.raises(PlanError, match="names a value twice"):
        replace(space, cp=(1, 1))


def test_the_default_space_of_the_published_job_has_a_million_plans():
    job = load_job("gpt3_175b_1024")
    space = default_space(job, any_framework=True)
    assert Evaluator(job, space).first[-1] >= 1_000_000


def test_a_file_that_is_no_mapping_says_what_a_space_is(tmp_path, space):
    file = tmp_path / "space.yaml"
    file.write_text("- tp: [1, 2]\n")
    with pytest.raises(ConfigError, match=r"space.yaml:1:1: a space of plans is a mapping of knobs to lists"):
        read_space(file, space)

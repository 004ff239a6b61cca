"""Plans evaluated at once: as one by one, in their tails, and with the error of the model."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from prism_jax.calibration.band import case_of, joint_factors, model_factors
from prism_jax.calibration.calibration import shipped, uncalibrated
from prism_jax.core import together
from prism_jax.core.errors import PlanError
from prism_jax.job.load_job import load_job
from prism_jax.job.read_tables import lengths_of
from prism_jax.plan.packing import Data
from prism_jax.result.objective import OBJECTIVES, PlanObjective
from prism_jax.search import evaluate, pipeline, racing
from prism_jax.search.evaluate import Evaluator, TailScorer
from prism_jax.search.exhaustive import search
from prism_jax.search.plan_costs import lower_bound, peak_memory, table_cost
from prism_jax.search.plan_table import PlanTable
from prism_jax.search.racing import model_errors, prob_best, tail_values
from prism_jax.search.space import default_space
from prism_jax.simulate.inputs import deterministic
from prism_jax.simulate.predict import predict
from prism_jax.simulate.program import lower
from prism_jax.variability.config import preset
from prism_jax.variability.families import CONSTANT, LogNormal
from prism_jax.workload.catalog import model
from prism_jax.workload.transformer.routing import ExpertRouting
from prism_jax.workload.transformer.spec import TransformerSpec
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


@pytest.mark.parametrize("packing", ["padded", "masked", "balanced"])
def test_unlike_work_takes_the_time_that_predict_says_in_the_mean(packing):
    """Padding goes with the sequences of a micro-batch, the load of the busiest rank with ranks and tokens."""
    job = stated(load_job("deepseek_v3_2048"))
    assert isinstance(job.model, TransformerSpec)
    assert job.model.moe is not None
    spec = replace(job.model, moe=replace(job.model.moe, imbalance=1.0, routing=ExpertRouting(0.2)))
    data = Data(lengths_of({"kind": "log_normal", "cv": 1.0, "mean": 900}), packing)
    job = replace(job, model=spec, plan=replace(job.plan, data=data))
    knobs = {"tp": (1,), "pp": (8,), "cp": (1,), "ep": (8, 64), "micro_batch": (1, 2), "recompute": ("full",)}
    schedules = {"schedule": ("interleaved",), "virtual_stages": (2,), "overlap_pp": (1,)}
    evaluator = Evaluator(job, replace(default_space(job), **knobs, **schedules, sharding=("none",)))
    rng = np.random.default_rng(3)
    for index in range(len(evaluator.layouts)):
        table = evaluator.block(index)
        table = table.take(rng.choice(len(table), 4, replace=False))
        for row, time_s in enumerate(evaluator.step_times(table)):
            plan = table.plan(row)
            assert time_s == pytest.approx(deterministic(lower(replace(job, plan=plan), True)), rel=FLOAT32)


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


def test_on_an_accelerator_pipelines_of_one_shape_share_a_call_and_keep_their_bits(evaluator, screen, monkeypatch):
    known = screen.order()
    numbers = known[np.linspace(0, len(known) - 1, 40).astype(int)]
    one_by_one = TailScorer(evaluator, 3).samples(numbers, 32)
    for module in (evaluate, pipeline):
        monkeypatch.setattr(module, "on_accelerator", lambda: True)
    calls, original = [], pipeline._ends_of_blocks
    monkeypatch.setattr(
        pipeline, "_ends_of_blocks", lambda *a, **more: calls.append(a[0].shape) or original(*a, **more)
    )
    np.testing.assert_array_equal(TailScorer(evaluator, 3).samples(numbers, 32), one_by_one)
    n_pipeline = len({(plan.schedule, plan.pp, plan.n_micro_batch) for plan in map(evaluator.plan, numbers.tolist())})
    assert 2 * len(calls) <= n_pipeline
    assert all(shape[1] % 16 == 0 for shape in calls)  # levels that are fixed when it compiles


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


# --- Tail scores: those of `predict`, for less; and the same for the same seed however plans are put together --------


N_SEED = 8


def feasible(evaluator, n, seed=0):
    bound = evaluator.bounds().bound_s
    return np.sort(np.random.default_rng(seed).choice(np.flatnonzero(np.isfinite(bound)), n, replace=False))


@pytest.mark.parametrize("name", ["p50", "p95"])
def test_scores_are_those_of_predict(evaluator, job, name):
    """4.5 standard errors of both for 4 plans: a false alarm once in 40,000 runs; 0.1% for what averages out over a step."""
    numbers = feasible(evaluator, 4, seed=3)
    scores = np.stack(
        [
            PlanObjective(OBJECTIVES.named(name)).of(TailScorer(evaluator, s).samples(numbers, 512))
            for s in range(N_SEED)
        ]
    )
    for number, own in zip(numbers, scores.T, strict=True):
        plan = evaluator.plan(int(number))
        found = predict(replace(job, plan=plan), key=jax.random.key(1), n_samples=4096, pad=True)
        level = float(name[1:]) / 100
        error = np.hypot(own.std(ddof=1) / np.sqrt(N_SEED), found.mc_error(level))
        assert own.mean() == pytest.approx(found.quantile(level), abs=4.5 * error + 1e-3 * own.mean())


@pytest.mark.parametrize("links", [0.0, 0.1])
def test_a_score_does_not_depend_on_the_plans_beside_it(evaluator, links):
    """Not in a bit: processes that search together put plans together in other ways than one."""
    numbers, tree = feasible(evaluator, 60), evaluator.job.variability
    unlike = {
        name: replace(tree.of(name), node=LogNormal(links) if links else CONSTANT)
        for name in ("all_gather", "all_reduce", "p2p")
    }
    unlike["reduce_scatter"] = replace(
        unlike["all_reduce"], regime=LogNormal(0.2)
    )  # ZeRO-1 differs from ZeRO-0 beside it
    scorer = TailScorer(evaluator, 5, replace(tree, classes={**tree.classes, **unlike}))
    together = scorer.samples(numbers, 64)
    for part in (*np.split(np.arange(60), 60), np.arange(0, 60, 2), np.arange(40, 60)):
        np.testing.assert_array_equal(scorer.samples(numbers[part], 64), together[part])


def test_a_step_time_does_not_depend_on_the_plans_beside_it(evaluator, screen):
    numbers = np.flatnonzero(np.isfinite(screen.step_s))
    for some in (numbers[::7], numbers[1::50], *np.split(numbers[::40], len(numbers[::40]))):
        anew = replace(screen, step_s=np.full(screen.n_plans, np.nan))
        evaluator.simulate_plans(anew, some)
        np.testing.assert_array_equal(anew.step_s[some], screen.step_s[some])


def test_processes_that_share_have_about_as_much_work_and_give_the_same_tails(evaluator, screen, monkeypatch):
    numbers, seeds = screen.order()[:40], (3, 8, 5, 4)

    def values(own):
        return tail_values(evaluator, own, seeds, 32, lambda samples, _: samples.mean(axis=1))

    alone = values(numbers)
    some = TailScorer(evaluator, 8).samples(numbers, 32).mean(axis=1)
    np.testing.assert_array_equal(alone[:, 1], some)
    owned = []
    for module in (evaluate, racing, together):
        monkeypatch.setattr(module, "n_processes", lambda: 2)
    monkeypatch.setattr(
        together, "gathered_rows", lambda own, owner: owned.append((own, owner)) or np.zeros(len(owner))
    )
    for number in range(2):
        monkeypatch.setattr(together, "process_number", lambda number=number: number)
        values(numbers)
    (first, owner), (second, same) = owned
    np.testing.assert_array_equal(owner, same)
    np.testing.assert_array_equal(
        np.concatenate([first, second]), np.concatenate([alone.ravel()[owner == k] for k in (0, 1)])
    )
    assert 0.3 < owner.mean() < 0.7
    work = np.bincount(evaluator._owner_of_blocks(), np.diff(evaluator.first))
    assert 0.3 < work[0] / work.sum() < 0.7


def test_another_seed_gives_other_draws(evaluator):
    numbers = feasible(evaluator, 2)
    samples = [TailScorer(evaluator, seed).samples(numbers, 64) for seed in (0, 1)]
    assert (samples[0] != samples[1]).mean() > 0.9


def test_without_variability_every_sample_is_the_noise_free_time(evaluator):
    numbers = feasible(evaluator, 6)
    samples = TailScorer(evaluator, 0, preset("none")).samples(numbers, 16)
    for table, at in evaluator.tables(numbers):
        np.testing.assert_allclose(
            samples[at], np.broadcast_to(evaluator.step_times(table)[:, None], samples[at].shape), rtol=2e-6
        )


def test_more_variability_makes_a_longer_tail(evaluator):
    numbers = feasible(evaluator, 6)
    tree = preset("a100-default")
    p95 = [
        PlanObjective(OBJECTIVES.named("p95")).of(TailScorer(evaluator, 0, tree.scaled(k)).samples(numbers, 256))
        for k in (0.5, 1.0, 2.0)
    ]
    assert (p95[0] < p95[1]).all()
    assert (p95[1] < p95[2]).all()


def test_large_groups_are_scored_too(evaluator, job):
    plan = replace(job.plan, sharding="fsdp", dp=16, micro_batch=1)
    samples = TailScorer(evaluator, 0).samples_of(PlanTable.of(plan), 256)
    found = predict(replace(job, plan=plan), key=jax.random.key(1), n_samples=2048, pad=True)
    assert np.quantile(samples, 0.95) == pytest.approx(found.quantile(0.95), rel=5e-3)


# --- The model's error between plans: each plan's own is that of its prediction, what they share cancels -------------


@pytest.fixture(scope="module")
def plans(job):
    base = replace(job.plan, sharding="none", dp=16, tp=1)
    return [base, replace(base, recompute="full"), replace(base, tp=4, dp=4), base]


def factors(job, plans, n):
    cases = [case_of(job.model, job.cluster, plan, shipped(), job.framework) for plan in plans]
    return joint_factors(cases, shipped(), n_repeat=n)


def test_each_plan_is_as_uncertain_as_its_prediction(job, plans):
    """Quartiles of 16 x 96 draws each: standard error 4% of the spread or less."""
    joint = np.log(factors(job, plans, 16))
    for row, plan in enumerate(plans):
        alone = np.log(np.concatenate([
            model_factors(job.model, job.cluster, plan, shipped(), job.framework, seed) for seed in range(16)
        ]))  # fmt: skip
        spread = np.subtract(*np.quantile(alone, [0.75, 0.25]))
        assert np.quantile(joint[:, row], [0.25, 0.5, 0.75]) == pytest.approx(
            np.quantile(alone, [0.25, 0.5, 0.75]), abs=0.2 * spread
        )


def test_what_plans_share_cancels(job, plans):
    joint = np.log(factors(job, plans, 4))
    assert joint[:, 0] == pytest.approx(joint[:, 3], abs=1e-6)
    assert (np.abs(joint[:, 0] - joint[:, 1]) > 1e-6).mean() > 0.9
    for other in (1, 2):
        apart = np.hypot(joint[:, 0].std(), joint[:, other].std())  # if nothing were shared
        assert (joint[:, 0] - joint[:, other]).std() < 0.8 * apart


def test_without_calibration_nothing_is_in_doubt(job, plans):
    sure = replace(job, calibration=uncalibrated())
    assert model_errors(sure, plans, 0) == pytest.approx(1.0)


def test_the_probability_to_be_best_counts_both_errors():
    """Two plans, normal logarithms of both errors: the closed form of their difference (4,000 draws: 3 standard errors 0.024)."""
    rng = np.random.default_rng(0)
    known = np.array([np.full(8, 1.0), np.full(8, 1.05)])
    assert prob_best(known, np.ones((1, 2)), 0).tolist() == [1.0, 0.0]
    doubt = np.exp(0.05 * rng.normal(size=(200_000, 2)))
    assert prob_best(known, doubt, 0)[0] == pytest.approx(0.7549, abs=0.03)  # Phi(log 1.05 / (0.05 sqrt 2))


def test_the_gain_counts_what_the_model_does_not_know(job, space):
    few = replace(space, pp=(1, 2), schedule=("1f1b",))
    promise = search(job, few, top=2).promise
    assert promise is not None
    (low, high), (least, most) = promise.gain_interval, promise.model_interval
    assert least < low < promise.gain < high < most

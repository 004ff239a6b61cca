"""Tail scores: those of `predict`, for less; and the same for the same seed however plans are put together."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from prism_jax.result.objective import OBJECTIVES, PlanObjective
from prism_jax.search.evaluate import TailScorer
from prism_jax.search.plan_table import PlanTable
from prism_jax.simulate.predict import predict
from prism_jax.variability.config import preset

N_SEED = 8


def feasible(evaluator, n, seed=0):
    bound = evaluator.bounds().bound_s
    return np.sort(np.random.default_rng(seed).choice(np.flatnonzero(np.isfinite(bound)), n, replace=False))


@pytest.mark.parametrize("name", ["p50", "p95"])
def test_scores_are_those_of_predict(evaluator, job, name):
    """4.5 standard errors of both for 4 plans: a false alarm once in 40,000 runs; 0.1 % for what averages out over a step."""
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


def test_a_score_does_not_depend_on_the_plans_beside_it(evaluator):
    numbers = feasible(evaluator, 12)
    together = TailScorer(evaluator, 5).samples(numbers, 64)
    alone = np.concatenate([TailScorer(evaluator, 5).samples(numbers[k : k + 1], 64) for k in range(12)])
    np.testing.assert_allclose(together, alone, rtol=1e-12)


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


def test_objectives_order_as_they_should():
    samples = np.sort(np.random.default_rng(0).gamma(4.0, size=(3, 4000)), axis=1)
    p50, p95, p99, tail = (
        PlanObjective(OBJECTIVES.named(name)).of(samples) for name in ("p50", "p95", "p99", "cvar95")
    )
    assert (p50 < p95).all()
    assert (p95 < tail).all()
    assert (p95 < p99).all()
    assert PlanObjective(OBJECTIVES.named("mean")).of(samples) == pytest.approx([4.0] * 3, abs=5 * 2.0 / np.sqrt(4000))

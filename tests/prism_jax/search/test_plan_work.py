"""Work of micro-batches in a search: plans draw the work that `predict` draws, and last as long."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prism_jax.calibration.calibration import uncalibrated
from prism_jax.job.job import Job
from prism_jax.search.evaluate import Evaluator, TailScorer
from prism_jax.search.exhaustive import search
from prism_jax.search.local_search import local_search
from prism_jax.search.plan_costs import table_cost
from prism_jax.search.plan_knobs import PlanList
from prism_jax.search.plan_table import PlanTable
from prism_jax.search.space import PlanSpace, default_space
from prism_jax.simulate.predict import predict
from prism_jax.simulate.program import lower
from tests.support.jobs_with_work import JOBS, LONG, POPULAR, balanced, job

PROBS = (0.5, 0.95, 0.99)
SHAPE: dict[str, Any] = {"global_batch": 128, "dp": 8, "tp": 2, "pp": 4}
MORE = {
    "dualpipe": lambda: job("llama-3-8b", LONG, "padded", schedule="dualpipe", **SHAPE),
    "interleaved": lambda: job("mixtral-8x7b", gini=0.3, ep=4, schedule="interleaved", virtual_stages=2, **SHAPE),
}
EVERY = {**JOBS, **MORE, **POPULAR, "balanced": balanced}


def of_name(name: str) -> Job:
    return replace(EVERY[name](), calibration=uncalibrated())


@pytest.mark.parametrize("name", EVERY)
def test_plans_last_as_long_as_predict_says(name: str) -> None:
    """p50, p95 and p99 within 3.5 of the combined errors, and two thousandths for the calls that columns average."""
    own = of_name(name)
    evaluator, table, told = Evaluator(own, PlanList(())), PlanTable.of(own.plan), predict(own, key=1, n_samples=4096)
    every = np.array([np.quantile(TailScorer(evaluator, k).samples_of(table, 512)[0], PROBS) for k in range(8)])
    value, error = every.mean(axis=0), every.std(axis=0, ddof=1) / np.sqrt(len(every))
    for at, p in enumerate(PROBS):
        wanted = told.quantile(p)
        assert abs(value[at] - wanted) <= 3.5 * np.hypot(error[at], told.mc_error(p)) + 2e-3 * wanted, p


@pytest.mark.parametrize("name", EVERY)
def test_plans_draw_from_the_tables_that_predict_draws_from(name: str) -> None:
    own = of_name(name)
    evaluator, wanted = Evaluator(own, PlanList(())), lower(own).work
    assert evaluator.works is not None
    found = evaluator.works.of(table_cost(PlanTable.of(own.plan), evaluator.costs), 0)
    assert found is not None
    assert wanted is not None
    assert found.n_row == wanted.n_row
    for one, other in zip(found.sources, wanted.sources, strict=True):
        assert (one.name, one.n_fill) == (other.name, other.n_fill)
        np.testing.assert_array_equal(one.row, other.row)
        np.testing.assert_allclose(one.load, other.load, rtol=1e-6, atol=1e-9)


def test_plans_have_one_answer_beside_whichever_others_they_are_scored() -> None:
    own = of_name("both")
    space = replace(default_space(own), tp=(2,), pp=(2, 4), cp=(1,), ep=(1, 4), micro_batch=(1, 2), recompute=("full",))
    evaluator = Evaluator(own, space)
    feasible = np.flatnonzero(np.isfinite(evaluator.bounds().bound_s))
    numbers = feasible[np.linspace(0, len(feasible) - 1, 24).astype(int)]
    together = TailScorer(evaluator, 3).samples(numbers, 64)
    for at in (0, 11, len(numbers) - 1):
        alone = TailScorer(Evaluator(own, space), 3).samples(numbers[at : at + 1], 64)
        np.testing.assert_allclose(alone[0], together[at], rtol=2e-6)


SMALL: dict[str, Any] = {
    "cp": (1,),
    "ep": (1, 4),
    "micro_batch": (1, 2),
    "virtual_stages": (1,),
    "recompute": ("none",),
}


def small(own: Job) -> PlanSpace:
    return replace(default_space(own), tp=(1, 2), pp=(1, 2, 4), **SMALL)


@pytest.mark.parametrize("find", [search, local_search])
def test_a_found_plan_has_the_p95_that_predict_says(find: Any) -> None:
    """Within the errors that both state, and two thousandths."""
    own = of_name("padded")
    best = find(own, small(own), top=3).best
    told = predict(replace(own, plan=best.plan), key=5, n_samples=4096)
    assert told.deterministic_s < 0.8 * best.p95_s
    gap = abs(best.p95_s - told.quantile(0.95))
    assert gap <= 3.5 * np.hypot(best.value_error_s, told.mc_error(0.95)) + 2e-3 * best.p95_s


@pytest.mark.parametrize("find", [search, local_search])
def test_no_plan_of_the_space_has_a_smaller_tail_than_the_one_that_is_found(find: Any) -> None:
    """All plans scored on draws of their own; the noise-free times of the best ones are far apart."""
    own = of_name("bucketed")
    space = replace(
        default_space(own), **SMALL | {"micro_batch": (1, 2, 4, 8)}, tp=(1, 2), pp=(1, 2), schedule=("1f1b",)
    )
    best = find(own, space, top=3).best
    evaluator = Evaluator(own, space)
    screen = evaluator.bounds()
    numbers = np.flatnonzero(np.isfinite(screen.bound_s))
    score = np.quantile(TailScorer(evaluator, 77).samples(numbers, 64), 0.95, axis=1)
    first = numbers[np.argsort(score)[:8]]
    scorer, table = TailScorer(evaluator, 78), PlanTable.of(best.plan)
    assert (
        np.quantile(scorer.samples_of(table, 512)[0], 0.95)
        <= 1.02 * np.quantile(scorer.samples(first, 512), 0.95, axis=1).min()
    )
    fastest = np.argmin(np.where(np.isfinite(screen.bound_s), screen.bound_s, np.inf))
    assert np.quantile(scorer.samples(np.array([fastest]), 512)[0], 0.95) > 1.1 * best.p95_s


def test_plans_without_work_draw_none() -> None:
    """A packed job, and plans of a job with experts that do not share them out."""
    assert Evaluator(job("llama-3-8b", LONG, "packed", **SHAPE), PlanList(())).works is None
    own = job("mixtral-8x7b", gini=0.3, **SHAPE)
    evaluator = Evaluator(own, PlanList(()))
    assert evaluator.works is not None
    assert evaluator.works.of(table_cost(PlanTable.of(own.plan), evaluator.costs), 0) is None

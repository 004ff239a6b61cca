"""Objectives and prices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.core.errors import DataError, SpecError
from prism_jax.job.load_job import load_job
from prism_jax.result.objective import (
    OBJECTIVES,
    Cvar,
    Objective,
    Outcome,
    PlanFacts,
    PlanObjective,
    Quantile,
    plan_objective,
)
from prism_jax.result.prices import checked, price_of, prices_of

LEVELS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
TIMES = ("mean", *LEVELS, "cvar95")


def samples(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).gamma(4.0, size=shape)


def of(name: str, *args: object, **facts: object) -> np.ndarray:
    return OBJECTIVES.named(name).of(Outcome(*args, plan=PlanFacts(**facts)))


@pytest.mark.parametrize("n", [1, 7, 64, 1000, 1024])
def test_quantiles_and_mean_are_those_of_numpy(n):
    steps = samples(3, n)
    assert of("mean", steps) == pytest.approx(steps.mean(axis=-1))
    for name, p in LEVELS.items():
        assert of(name, steps) == pytest.approx(np.quantile(steps, p, axis=-1))


def test_cvar_is_the_mean_of_the_slowest_where_they_are_a_whole_number():
    steps = samples(3, 1000)
    assert of("cvar95", steps) == pytest.approx(np.sort(steps)[:, 950:].mean(axis=-1))


@pytest.mark.parametrize("n", [1, 10, 64, 1024, 1037])
def test_cvar_is_the_integral_of_the_empirical_quantile_function(n):
    """On a grid of which every sample covers as many points; the sample at the boundary counts in part."""
    steps, fine = samples(n), 200
    assert float(of("cvar95", steps)) == pytest.approx(
        np.sort(np.repeat(steps, fine))[-round(0.05 * n * fine) :].mean()
    )


@pytest.mark.parametrize("n", [5, 64, 1024])
def test_weights_of_sorted_samples_add_up_to_one(n):
    for statistic in (Quantile(0.5), Quantile(0.999), Cvar(0.95)):
        assert sum(statistic.weights(n)) == pytest.approx(1.0)


@pytest.mark.parametrize("name", TIMES)
def test_equal_weights_change_nothing(name):
    steps = samples(2, 37)
    assert of(name, steps, np.full(37, 3.0)) == pytest.approx(of(name, steps))
    assert of(name, steps[:, :1], np.ones(1)) == pytest.approx(steps[:, 0])


@pytest.mark.parametrize(("name", "rel"), [("mean", 1e-12), ("cvar95", 1e-12), ("p50", 0.02), ("p95", 0.02)])
def test_whole_weights_are_repeated_samples(name, rel):
    """Mean and cvar exactly; quantiles interpolate between different points."""
    steps, times = samples(400), np.random.default_rng(1).integers(1, 4, 400)
    assert float(of(name, steps, times.astype(float))) == pytest.approx(
        float(of(name, np.repeat(steps, times))), rel=rel
    )


@pytest.mark.parametrize("name", TIMES)
def test_the_same_under_jit_and_the_gradient_is_a_weight_per_sample(name):
    steps = samples(128)
    value = jax.jit(PlanObjective(OBJECTIVES.named(name)).of)(jnp.asarray(steps))
    assert float(value) == pytest.approx(float(of(name, steps)), rel=1e-5)
    smooth = jax.grad(PlanObjective(OBJECTIVES.named(name)).smoothed)(jnp.asarray(steps))
    assert float(smooth.sum()) == pytest.approx(1.0, rel=1e-5)
    if name in ("p50", "p95"):
        assert int((smooth > 1e-3).sum()) > 2


def test_order_of_the_tail():
    p50, p95, p99, p999 = (of(name, samples(3, 4000)) for name in ("p50", "p95", "p99", "p999"))
    assert (p50 < p95).all()
    assert (p95 < of("cvar95", samples(3, 4000))).all()
    assert (p95 < p99).all()
    assert (p99 < p999).all()


def test_money_per_token():
    facts = {"n_devices": np.array([8, 16]), "tokens_per_step": 1e6, "price_per_gpu_hour": 2.0}
    steps = np.array([[3600.0], [1800.0]])
    assert of("gpu_hours_per_mtoken", steps, **facts) == pytest.approx([8.0, 8.0])
    assert of("cost_per_mtoken", steps, **facts) == pytest.approx([16.0, 16.0])
    with pytest.raises(DataError, match="needs price_per_gpu_hour"):
        of("cost_per_mtoken", steps, n_devices=8, tokens_per_step=1e6)


def test_what_cannot_be_asked_is_said_before_anything_runs():
    plan = load_job("llama2_7b_fsdp_64").plan
    with pytest.raises(DataError, match="needs price_per_gpu_hour"):
        plan_objective("cost_per_mtoken", plan, 1)
    with pytest.raises(DataError, match="must be positive"):
        plan_objective("p95", plan, 1, -1.0)
    with pytest.raises(DataError, match="'p96' is unknown, did you mean"):
        plan_objective("p96", plan, 1)
    asked = plan_objective("cost_per_mtoken", plan, 4096, 2.0)
    assert asked.facts.tokens_per_step == 4096
    assert (asked.name, asked.unit) == ("cost_per_mtoken", "money")


def test_plans_may_differ_in_their_number_of_devices():
    asked = PlanObjective(OBJECTIVES.named("gpu_hours_per_mtoken"), PlanFacts(8, tokens_per_step=1e6))
    assert asked.of(np.full((2, 3), 3600.0), np.array([8, 16])) == pytest.approx([8.0, 16.0])


def test_text_is_of_what_is_asked_not_of_the_function():
    own = Objective("own", "of my own", lambda outcome: outcome.samples_s.mean(-1))
    assert PlanObjective(own).text == PlanObjective(Objective("own", "of my own", max)).text  # type: ignore[arg-type]
    assert PlanObjective(own).text != PlanObjective(Objective("own", "another", max)).text  # type: ignore[arg-type]


# --- Prices: one for all devices, or one for each --------------------------------------------------------------------


def test_forms() -> None:
    assert prices_of([]) is None
    assert prices_of(["2.5"]) == 2.5
    named = prices_of(["H200=2.5", "b200 = 4"])
    assert named == {"h200": 2.5, "b200": 4.0}
    assert [price_of(named, name) for name in ("h200", "a100-80gb")] == [2.5, None]
    assert price_of(2.5, "anything") == 2.5
    assert checked({"H200": 1.0}) == {"h200": 1.0}


@pytest.mark.parametrize(
    "texts", [["0"], ["-1"], ["inf"], ["nan"], ["x"], ["h200="], ["=2"], ["1", "2"], ["h200=1", "h200=2"]]
)
def test_what_is_no_price_is_refused(texts: list[str]) -> None:
    with pytest.raises(DataError, match="--price"):
        prices_of(texts)


def test_prices_from_python_are_checked() -> None:
    with pytest.raises(DataError, match="price 0"):
        checked(0.0)
    with pytest.raises(SpecError, match="unknown device"):
        checked({"foo": 1.0})

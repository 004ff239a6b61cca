"""Steps as a pure function of slowdowns, links, hardware and work: transformations, derivatives, draws, closed forms."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.job.job import Job
from prism_jax.plan.plan import device_layout
from prism_jax.simulate.predict import brute_force
from prism_jax.simulate.program import lower, lowered
from prism_jax.simulate.sensitivity import numbers_of, on_device
from prism_jax.simulate.step_time import step_quantile, step_time
from tests.support.jobs import EVERYTHING, make_job

JOB = replace(make_job(tp=2, pp=2, dp=4), variability=EVERYTHING)
PLAN = JOB.plan
N_NODE = -(-PLAN.n_devices // JOB.cluster.node_size)
N_SAMPLE, N_ORDER = 3, 200
NAMES = ("slowdown", "links", "hardware", "work")


def inputs(seed: int, n_sample: int = N_SAMPLE, job: Job = JOB) -> dict[str, Any]:
    rng, plan = np.random.default_rng(seed), job.plan
    sizes = {"slowdown": (plan.n_devices,), "links": (N_NODE,), "work": (plan.n_replica, plan.n_micro_batch)}
    made = {name: jnp.asarray(1.0 + rng.random((*size, n_sample)), float) for name, size in sizes.items()}
    return made | {
        "hardware": on_device(jax.tree.map(lambda x: x * (1.0 + 0.1 * rng.random()), numbers_of(job.cluster)))
    }


def times(given: dict[str, Any]) -> jax.Array:
    return step_time(JOB, **given)


def by_sample(given: dict[str, Any]) -> jax.Array:
    """One sample at a time."""
    axes = [{name: None if name == "hardware" else -1 for name in given}]
    alone = jax.vmap(lambda own: times({k: v if k == "hardware" else v[..., None] for k, v in own.items()})[0], axes)
    return alone(given)


compiled, sloped = jax.jit(times), jax.jit(jax.value_and_grad(lambda given: times(given).sum()))
WAYS: dict[str, Callable[[dict[str, Any]], jax.Array]] = {
    "eager": times,
    "jit": lambda given: compiled(given),
    "grad": lambda given: sloped(given)[0],
    "vmap": by_sample,
}


@pytest.mark.slow
def test_any_order_of_transformations_over_any_inputs_gives_the_same_numbers() -> None:
    """200 random orders, inputs and numbers; in every 25th nothing is known of the job before. To 1e-6."""
    rng = np.random.default_rng(0)
    for order in range(N_ORDER):
        names = [name for name in NAMES[1:] if rng.random() < 0.5] if order % 4 else [*NAMES[1:]]
        given = {name: value for name, value in inputs(order).items() if name in ("slowdown", *names)}
        if order % 25 == 0:
            lowered.cache_clear()
        found = {name: np.asarray(WAYS[name](given)) for name in rng.permutation([*WAYS]).tolist()}
        for name, value in found.items():
            right = found["eager"].sum() if name == "grad" else found["eager"]
            np.testing.assert_allclose(value, right, rtol=1e-6, err_msg=f"{name} of {names} in {[*found]}")


def test_nothing_that_is_traced_is_kept() -> None:
    given = inputs(1)
    lowered.cache_clear()
    with jax.checking_leaks():
        sloped(given)
    np.testing.assert_allclose(np.asarray(times(given)).sum(), float(sloped(given)[0]), rtol=1e-6)


def test_what_is_nominal_changes_nothing() -> None:
    plain = np.asarray(step_time(JOB, np.ones((PLAN.n_devices, 1))))
    ones = np.ones((PLAN.n_replica, PLAN.n_micro_batch, 1))
    given: dict[str, Any] = {"links": np.ones((N_NODE, 1)), "work": ones, "hardware": JOB.cluster}
    for name, value in given.items():
        np.testing.assert_allclose(np.asarray(step_time(JOB, **{name: value, "work": ones})), plain, rtol=1e-6)
    parts = {"tokens": ones, "attention": ones}
    np.testing.assert_allclose(np.asarray(step_time(JOB, work=parts)), plain, rtol=1e-6)


def test_twice_the_work_everywhere_is_as_twice_as_slow_gpus_but_for_the_optimizer() -> None:
    twice = np.full((PLAN.n_replica, PLAN.n_micro_batch, 1), 2.0)
    slow = float(step_time(JOB, np.full((PLAN.n_devices, 1), 2.0))[0])
    heavy = float(step_time(JOB, work=twice)[0])
    optimizer_s = float(lower(JOB).graph.end_compute_s.max())
    assert heavy == pytest.approx(slow - optimizer_s, rel=1e-5)


def test_a_slow_link_slows_the_step_of_the_groups_that_hold_it() -> None:
    """At least as much as no other node could; all links at twice their factor bound it."""
    slow = np.ones((N_NODE, 2))
    slow[0, 0], slow[:, 1] = 2.0, 2.0
    kinds = {"nic": slow, "link": slow}
    plain = float(step_time(JOB, np.ones((PLAN.n_devices, 1)))[0])
    one, every = np.asarray(step_time(JOB, links=kinds)).tolist()
    assert plain < one <= every


def test_what_is_drawn_is_what_brute_force_draws() -> None:
    """Median and p95 within 4.5 standard errors of both."""
    n = 2048
    drawn = np.asarray(step_time(JOB, work=np.ones((PLAN.n_replica, PLAN.n_micro_batch, n)), key=7))
    whole = brute_force(lower(JOB), jax.random.key(8), 4096)
    for p in (0.5, 0.95):
        spread = np.sqrt(p * (1 - p) / n)
        low, high = np.quantile(drawn, [p - spread, min(p + spread, 1.0)])
        error = np.hypot(0.5 * (high - low), whole.mc_error(p))
        assert abs(np.quantile(drawn, p) - whole.quantile(p)) < 4.5 * error


def test_one_key_gives_one_answer_and_what_is_given_is_not_drawn() -> None:
    given = inputs(2)
    once, again, other = (np.asarray(step_time(JOB, **given, key=key)) for key in (1, 1, 2))
    np.testing.assert_array_equal(once, again)
    assert (once != other).all()
    slower = np.asarray(step_time(JOB, **given | {"slowdown": 1.5 * given["slowdown"]}, key=1))
    assert (slower > once).all()


@pytest.mark.usefixtures("x64")
def test_p95_has_derivatives_in_everything_together() -> None:
    """Placement, links, hardware and work at once, along random directions; against central differences on the same draws."""
    p95 = step_quantile(JOB, 0.95, key=0, n_samples=64)
    at: Any = inputs(3, 1)
    both = jax.jit(jax.value_and_grad(lambda given: p95(**given)))
    value, gradient = both(at)
    rng, step = np.random.default_rng(4), 1e-6
    for name in NAMES:
        way = jax.tree.map(lambda own: own * rng.standard_normal(own.shape), at[name])
        ends = [
            both({**at, name: jax.tree.map(lambda own, w, s=s: own + s * step * w, at[name], way)})[0] for s in (1, -1)
        ]
        slope = sum(jnp.vdot(g, w) for g, w in zip(*map(jax.tree.leaves, (gradient[name], way)), strict=True))
        assert float(slope) == pytest.approx(float(ends[0] - ends[1]) / (2.0 * step), rel=1e-4, abs=1e-9 * float(value))


def test_a_gpu_costs_as_much_as_the_path_that_it_delays() -> None:
    """Only GPUs of the replica that decides the step have a derivative."""
    slowdown = jnp.ones((PLAN.n_devices, 1)).at[device_layout(PLAN)[0, 0, 1]].set(1.3)
    slope = np.asarray(jax.grad(lambda own: step_time(JOB, own)[0])(slowdown))[:, 0]
    assert set(np.flatnonzero(slope)) <= set(device_layout(PLAN)[:, :, 1].ravel().tolist())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"links": np.ones((N_NODE + 1, 1))}, r"links\[nic\] has shape"),
        ({"links": {"rails": np.ones((N_NODE, 1))}}, "unknown kind 'rails'"),
        ({"work": np.ones((PLAN.n_replica, 1))}, r"work\[tokens\] has shape"),
        ({"work": {"experts": np.ones((PLAN.n_replica, 1, PLAN.n_micro_batch, 1))}}, "has no experts"),
        ({"work": np.zeros((PLAN.n_replica, PLAN.n_micro_batch, 1))}, r"work\[tokens\]: 0 of replica 0, micro-batch 0"),
        ({}, "no slowdown, links or work given"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        step_time(JOB, **given)

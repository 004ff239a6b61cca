"""Symmetric and explicit replicas: the same law in two ways."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.plan.plan import device_layout
from prism_jax.result.distribution import StepTimeDistribution
from prism_jax.simulate.inputs import deterministic, known_gpus, unit_step
from prism_jax.simulate.known_replicas import every_known_replica
from prism_jax.simulate.predict import brute_force, symmetric
from prism_jax.simulate.program import Program, by_class, lower, lowered
from prism_jax.simulate.step_time import step_time
from prism_jax.variability.families import LogNormal, Normal, StudentT
from prism_jax.variability.family_registry import Mixture
from prism_jax.variability.tree import Stall, Variability
from tests.support.jobs import EVERYTHING, compute_varies, make_job, make_program, network_varies

QUANTILES = (0.05, 0.5, 0.95, 0.99)
N_RUN, N_STEP = 6, 8192

TREES = {
    "GPU spread": Variability("t", compute_varies(gpu=LogNormal(0.03))),
    "node spread": Variability("t", compute_varies(node=LogNormal(0.03))),
    "call noise": Variability("t", compute_varies(call=Normal(0.03))),
    "network regime": Variability("t", network_varies(regime=LogNormal(0.1))),
    "links": Variability("t", network_varies(node=LogNormal(0.1))),
    "calls of the network": Variability("t", network_varies(call=Normal(0.1))),
    "stalls": Variability(
        "t", compute_varies(call=Normal(0.03)), stalls=(Stall(0.05, 0.0, 0.2), Stall(0.0, 0.001, 0.5))
    ),
    "slow chips": Variability("t", compute_varies(gpu=Mixture(0.01, 0.02, 1.1, 0.02))),
    "heavy-tailed chips": Variability("t", compute_varies(gpu=StudentT(0.02, 3.0))),
    "everything": EVERYTHING,
}
SHAPES: dict[str, dict[str, object]] = {
    "one stage": {"pp": 1, "dp": 8},
    "one replica": {"dp": 1},
    "DualPipe": {"dp": 8, "schedule": "dualpipe"},
    "group of two nodes": {"dp": 4, "tp": 12},
    "group of four nodes": {"dp": 4, "tp": 32},
    "64 replicas": {"dp": 64},
}


def order_error(samples_s: np.ndarray, p: float) -> float:
    """Standard error of a quantile of independent samples, from the order statistics one standard error away."""
    step = np.sqrt(p * (1 - p) / len(samples_s))
    low, high = np.quantile(samples_s, [max(p - step, 0.0), min(p + step, 1.0)])
    return float(high - low) / 2


def assert_agree(runs: list[StepTimeDistribution], oracle: StepTimeDistribution) -> None:
    """|z| < 4.5 for every quantile, allowing 0.03% of the step for what interpolation leaves.

    Errors of the runs' mean have 5 degrees of freedom, so one comparison in 150 would fail by chance if they were
    all there is; the oracle's own error dominates, keys are fixed.
    """
    for p in QUANTILES:
        values = np.array([run.quantile(p) for run in runs])
        error = np.hypot(order_error(oracle.samples_s, p), values.std(ddof=1) / np.sqrt(len(values)))
        gap = abs(values.mean() - oracle.quantile(p))
        assert gap < 4.5 * error + 3e-4 * oracle.quantile(p), (p, values.mean(), oracle.quantile(p), error)


def compare(program: Program, n_step: int = N_STEP) -> None:
    runs = [symmetric(program, jax.random.key(100 + i), 2048) for i in range(N_RUN)]
    assert_agree(runs, brute_force(program, jax.random.key(3), n_step))


@pytest.mark.parametrize("name", TREES)
def test_agrees_with_brute_force_whatever_varies(name: str) -> None:
    compare(make_program(TREES[name], dp=8))


@pytest.mark.parametrize("name", SHAPES)
def test_agrees_with_brute_force_in_every_shape(name: str) -> None:
    compare(make_program(EVERYTHING, **SHAPES[name]), 4096)


@pytest.mark.parametrize("devices", [(5,), (0, 1, 2, 9, 20, 31)])
def test_agrees_with_brute_force_with_known_slow_gpus(devices: tuple[int, ...]) -> None:
    program = by_class(make_program(EVERYTHING, dp=8))
    known = known_gpus({"all": dict.fromkeys(devices, 1.1), "gemm": {3: 1.02}}, 32)
    own = every_known_replica(known, program.job.plan)
    runs = [symmetric(program, jax.random.key(100 + i), 2048, own) for i in range(N_RUN)]
    assert_agree(runs, brute_force(program, jax.random.key(3), N_STEP, known))


def test_all_replicas_may_be_known() -> None:
    program = by_class(make_program(EVERYTHING, dp=4))
    known = known_gpus({"all": {4 * replica // 2: 1.05 for replica in range(8)}}, 16)
    own = every_known_replica(known, program.job.plan)
    runs = [symmetric(program, jax.random.key(100 + i), 2048, own) for i in range(N_RUN)]
    assert_agree(runs, brute_force(program, jax.random.key(3), N_STEP, known))


@pytest.mark.parametrize(("law", "n"), [(symmetric, 2048), (brute_force, 1024)])
def test_reported_error_is_the_spread_over_seeds(law: Callable[..., Any], n: int) -> None:
    """Root mean square of the reported error against the spread of p95 over 24 seeds, within a factor of 1.8 either way.

    Seven and 23 degrees of freedom: the ratio leaves that range by chance once in a thousand.
    """
    program = make_program(EVERYTHING, dp=8)
    runs = [law(program, jax.random.key(seed), n) for seed in range(24)]
    for p in (0.5, 0.95):
        spread = np.std([run.quantile(p) for run in runs], ddof=1)
        reported = np.sqrt(np.mean([run.mc_error(p) ** 2 for run in runs]))
        assert 1 / 1.8 < reported / spread < 1.8


# --- step_time: slowdowns of every GPU in, step times out ------------------------------------------------------------


JOB = make_job(tp=2, pp=3, dp=2)
N = JOB.plan.n_devices


def slowed(devices: dict[int, float], n: int = N) -> jnp.ndarray:
    return jnp.ones((n, 1)).at[np.array([*devices]), 0].set(np.array([*devices.values()]))


def test_all_ones_are_the_deterministic_step() -> None:
    """Exactly that of the same arrays; predict adds classes up before rounding them, so to single precision only."""
    times = np.asarray(step_time(JOB, jnp.ones((N, 3))))
    assert (times == np.asarray(unit_step(by_class(lower(JOB)).arrays))).all()
    np.testing.assert_allclose(times, deterministic(lower(JOB)), rtol=1e-6)


def test_samples_are_independent_of_each_other() -> None:
    slowdown = jnp.asarray(np.random.default_rng(0).lognormal(0.0, 0.1, (N, 5)), jnp.float32)
    together = np.asarray(step_time(JOB, slowdown))
    alone = [float(step_time(JOB, slowdown[:, [i]])[0]) for i in range(5)]
    np.testing.assert_array_equal(together, np.asarray(alone, np.float32))


def test_one_slow_gpu_slows_the_step_as_much_as_its_whole_group() -> None:
    """Members of a stage wait for each other."""
    group = device_layout(JOB.plan)[:, 1, 0]
    one = float(step_time(JOB, slowed({int(group[0]): 1.2}))[0])
    all_of_it = float(step_time(JOB, slowed(dict.fromkeys(group.tolist(), 1.2)))[0])
    assert one == all_of_it
    assert 1.02 < one / deterministic(lower(JOB)) < 1.2


def test_a_slow_gpu_costs_the_same_in_every_replica() -> None:
    layout = device_layout(JOB.plan)
    times = [float(step_time(JOB, slowed({int(layout[0, 1, r]): 1.2}))[0]) for r in range(JOB.plan.n_replica)]
    assert len(set(times)) == 1


def test_all_gpus_slower_in_everything_scale_the_compute_only() -> None:
    unit, slow = (float(step_time(JOB, jnp.full((N, 1), f))[0]) for f in (1.0, 2.0))
    assert 1.5 < slow / unit <= 2.0


def test_a_mapping_slows_the_classes_it_names() -> None:
    slowdown = slowed({4: 1.3})
    unit, whole = float(step_time(JOB, jnp.ones((N, 1)))[0]), float(step_time(JOB, slowdown)[0])
    parts = {name: float(step_time(JOB, {name: slowdown})[0]) for name in ("gemm", "attention", "memory")}
    assert all(unit < time < whole for time in parts.values())
    assert float(step_time(JOB, dict.fromkeys(parts, slowdown))[0]) == whole


@pytest.mark.parametrize("order", [("tp", "cp", "dp", "pp"), ("tp", "pp", "cp", "dp"), ("dp", "pp", "cp", "tp")])
def test_devices_count_along_the_axis_order(order: tuple[str, ...]) -> None:
    """Slowing one device is slowing the place (tp rank, dp rank, stage) that the axis order gives it."""
    job = make_job(tp=2, pp=3, dp=2, axis_order=order)
    sizes = {"tp": 2, "cp": 1, "dp": 2, "pp": 3}
    layout = device_layout(job.plan)  # [member, stage, replica]
    assert sorted(layout.ravel().tolist()) == list(range(N))
    for device in range(N):
        place, rest = {}, device
        for axis in order:
            rest, place[axis] = divmod(rest, sizes[axis])
        assert layout[place["tp"], place["pp"], place["dp"]] == device


def test_groups_hold_the_dp_ranks_that_share_parameters() -> None:
    plan = make_job(tp=2, pp=1, dp=8, sharding="hsdp", dp_shard=4, zero_stage=3).plan
    layout = device_layout(plan)
    assert layout.shape == (8, 1, 2)
    assert set(layout[:, 0, 0].tolist()) == set(range(8))


def test_only_gpus_on_the_critical_path_have_a_gradient() -> None:
    """The slowest replica's slowest members: all others could be a little slower at no cost."""
    slowdown = slowed({2: 1.5, 3: 1.4})
    layout = device_layout(JOB.plan)
    replica = int(np.nonzero(layout == 2)[2][0])
    gradient = np.asarray(jax.grad(lambda s: step_time(JOB, s)[0])(slowdown))[:, 0]
    assert gradient[2] > 0.0
    assert gradient[3] == 0.0
    others = np.delete(layout, replica, axis=2).ravel()
    assert (gradient[others] == 0.0).all()
    h = 0.01
    rise = float(step_time(JOB, slowed({2: 1.5 + h, 3: 1.4}))[0] - step_time(JOB, slowed({2: 1.5 - h, 3: 1.4}))[0]) / (
        2 * h
    )
    assert gradient[2] == pytest.approx(rise, rel=2e-2)


@pytest.mark.parametrize(
    ("slowdown", "message"),
    [
        (jnp.ones((N + 1, 2)), "has shape"),
        (jnp.ones(N), "has shape"),
        ({"gem": jnp.ones((N, 1))}, "unknown kernel class 'gem'"),
        ({"gemm": jnp.ones((N, 2)), "memory": jnp.ones((N, 3))}, "as many samples"),
        ({}, "at least one"),
    ],
)
def test_slowdowns_that_do_not_fit_are_refused(untyped: None, slowdown: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        step_time(JOB, slowdown)  # type: ignore[arg-type]


def test_a_plain_list_is_an_array_too(untyped: None) -> None:
    assert step_time(JOB, [[1.0]] * N).shape == (1,)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_slowdowns_that_no_gpu_has_are_refused(value: float) -> None:
    slowdown = jnp.ones((N, 2)).at[3, 1].set(value)
    with pytest.raises(
        DataError, match=r"slowdown\[gemm\]: .* of GPU 3 in sample 1, but a slowdown is a positive number"
    ):
        step_time(JOB, slowdown)
    with pytest.raises(DataError, match=r"slowdown\[memory\]"):
        step_time(JOB, {"memory": slowdown})


WAYS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "eager": lambda slowdown: step_time(JOB, slowdown),
    "jit": lambda slowdown: jax.jit(lambda s: step_time(JOB, s))(slowdown),
    "vmap": lambda slowdown: jax.vmap(lambda s: step_time(JOB, s[:, None])[0], in_axes=1)(slowdown),
    "grad": lambda slowdown: jax.jit(jax.value_and_grad(lambda s: step_time(JOB, s).sum()))(slowdown)[1],
    "jvp": lambda slowdown: jax.jvp(lambda s: step_time(JOB, s), (slowdown,), (slowdown,))[1],
}


@pytest.mark.parametrize("first", WAYS)
def test_any_order_of_transformations_gives_the_same_numbers(first: str) -> None:
    """What is kept of a job is kept as numbers, whoever asks first; the step is homogeneous of degree one in what is slowed."""
    rng = np.random.default_rng(sorted(WAYS).index(first))
    slowdown = jnp.asarray(rng.lognormal(0.0, 0.1, (N, 3)), jnp.float32)
    lowered.cache_clear()
    with jax.checking_leaks():
        WAYS[first](slowdown)
    order = [first, *rng.permutation([name for name in WAYS if name != first]).tolist()]
    found = {name: np.asarray(WAYS[name](slowdown)) for name in order}
    lowered.cache_clear()
    right = np.asarray(step_time(JOB, slowdown))
    for name in ("eager", "jit", "vmap"):
        np.testing.assert_allclose(found[name], right, rtol=1e-6, err_msg=f"{name} in {order}")
    np.testing.assert_allclose((found["grad"] * slowdown).sum(axis=0), found["jvp"], rtol=1e-4)
    step = 1e-2
    numeric = (
        np.asarray(step_time(JOB, (1 + step) * slowdown)) - np.asarray(step_time(JOB, (1 - step) * slowdown))
    ) / (2 * step)
    np.testing.assert_allclose(found["jvp"], numeric, rtol=2e-3)

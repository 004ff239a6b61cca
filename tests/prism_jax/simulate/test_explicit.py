"""step_time: slowdowns of every GPU in, step times out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.plan.plan import device_layout
from prism_jax.simulate.inputs import deterministic, step_time, unit_step
from prism_jax.simulate.program import by_class, lower
from tests.support.jobs import make_job

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

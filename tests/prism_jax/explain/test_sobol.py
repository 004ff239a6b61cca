"""Sobol indices: closed forms, SciPy, steps whose indices are known, and the spread between allocations, found another way."""

import jax
import numpy as np
import pytest
from scipy import stats

from prism_jax.explain.sobol import GPUS, LINKS, PairedColumns, _steps, first_and_total, indices, step_sobol
from prism_jax.simulate.allocation import allocation_spread
from prism_jax.simulate.inputs import shared_of
from prism_jax.simulate.predict import symmetric
from prism_jax.variability.families import LogNormal, Normal
from prism_jax.variability.tree import Stall, Variability
from tests.support.jobs import EVERYTHING, compute_varies, make_program, network_varies

KEY = jax.random.key(0)


def pick_freeze(function, n_source, n, seed=0):
    """Values of a function of uniforms [source, sample] at both draws and with one source exchanged."""
    points = stats.qmc.Sobol(2 * n_source, rng=seed).random(n).T
    a, b = points[:n_source], points[n_source:]
    mixed = [np.where(np.arange(n_source)[:, None] == k, b, a) for k in range(n_source)]
    return function(a), function(b), np.stack([function(own) for own in mixed])


def ishigami(u):
    x = np.pi * (2.0 * u - 1.0)
    return np.sin(x[0]) + 7.0 * np.sin(x[1]) ** 2 + 0.1 * x[2] ** 4 * np.sin(x[0])


ISHIGAMI = np.array([0.3139, 0.4424, 0.0]), np.array([0.5576, 0.4424, 0.2437])  # a = 7, b = .1
MAXIMUM = np.array([0.4, 0.4]), np.array([0.6, 0.6])  # of two uniforms: Var E[max | x] = Var(x^2) / 4 = 1/45 of 1/18


@pytest.mark.parametrize(
    ("function", "expected"), [(ishigami, ISHIGAMI), (lambda u: u.max(axis=0), MAXIMUM)], ids=["Ishigami", "maximum"]
)
def test_indices_are_those_of_the_closed_form_and_of_scipy(function, expected) -> None:
    f_a, f_b, f_ab = pick_freeze(function, len(expected[0]), 1 << 13)
    first, total = first_and_total(f_a, f_b, f_ab)
    np.testing.assert_allclose(first, expected[0], atol=0.02)
    np.testing.assert_allclose(total, expected[1], atol=0.02)
    known = stats.sobol_indices(func={"f_A": f_a[None], "f_B": f_b[None], "f_AB": f_ab[:, None]}, n=len(f_a))
    np.testing.assert_allclose(first, known.first_order.ravel(), atol=1e-12)
    np.testing.assert_allclose(total, known.total_order.ravel(), atol=1e-12)


def test_errors_cover_the_closed_form() -> None:
    """Four standard errors, of 5 figures: one in some thousands is outside by chance."""
    parts = [pick_freeze(ishigami, 3, 1 << 10, seed) for seed in range(8)]
    found = indices(["x1", "x2", "x3"], *(np.stack(own) for own in zip(*parts, strict=True)))
    for k, name in enumerate(["x1", "x2", "x3"]):
        assert found.first[name] == pytest.approx(ISHIGAMI[0][k], abs=4.0 * found.first_error[name])
    assert found.remainder == pytest.approx(1.0 - ISHIGAMI[0].sum(), abs=4.0 * found.remainder_error)
    assert [*found.total] == ["x1", "x2", "x3"]  # largest first


def test_the_slowest_of_linear_columns_has_the_indices_of_a_plain_simulation() -> None:
    """T = max over n of x_r + 2 y_r: sources of columns mix in the maximum."""
    n_replica, n_column, n = 8, 1 << 13, 1 << 17
    program = make_program(Variability())
    shared = shared_of(program, np.zeros(1))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 2, n_column))
    times = {"a": x[0] + 2 * y[0], "b": x[1] + 2 * y[1], GPUS: x[1] + 2 * y[0], LINKS: x[0] + 2 * y[1]}
    columns = PairedColumns({name: own[None] for name, own in times.items()}, np.ones(n_column))
    found = first_and_total(*_steps(columns, [GPUS, LINKS], n_replica, shared, 1 << 14, rng))
    x, y = rng.normal(size=(2, 2, n, n_replica))
    f_a, f_b = ((x[k] + 2 * y[k]).max(axis=1) for k in range(2))
    expected = first_and_total(f_a, f_b, np.stack([(x[1] + 2 * y[0]).max(axis=1), (x[0] + 2 * y[1]).max(axis=1)]))
    np.testing.assert_allclose(found, expected, atol=0.035)
    assert expected[0].sum() < 0.98  # they interact


def test_factors_of_whole_steps_have_the_indices_of_a_product() -> None:
    """T = c W Y: S_W = E[Y]^2 Var W / Var(W Y), with Y = 1 + a stall of an exponential length."""
    prob, mean, cv = 0.2, 0.3, 0.05
    tree = Variability("t", step=LogNormal(cv), stalls=(Stall(prob, 0.0, mean),))
    found, _ = step_sobol(make_program(tree), KEY, n_column=64)
    one, two = 1.0 + prob * mean, 1.0 + 2.0 * prob * mean + 2.0 * prob * mean**2  # E[Y], E[Y^2]
    whole = (1.0 + cv**2) * two - one**2
    expected = {"step regime": one**2 * cv**2 / whole, "stalls": (two - one**2) / whole}
    for name, value in expected.items():
        assert found.first[name] == pytest.approx(value, abs=0.02)
    assert found.remainder == pytest.approx(1.0 - sum(expected.values()), abs=0.02)


@pytest.mark.parametrize("dp", [1, 64])
def test_what_varies_alone_explains_everything(dp: int) -> None:
    tree = Variability("t", compute_varies(gpu=LogNormal(0.03)))
    for found in step_sobol(make_program(tree, dp=dp), KEY, n_column=128, n_step=1024):
        assert [*found.first] == [GPUS]
        assert found.first[GPUS] == pytest.approx(1.0, abs=0.06)
        assert found.total[GPUS] == pytest.approx(1.0, abs=0.06)


def test_the_spread_is_that_of_the_prediction() -> None:
    """Importance weights of two draws together, against those of one."""
    program = make_program(EVERYTHING, dp=32)
    found, slow = step_sobol(program, KEY, n_column=512)
    assert found.sd == pytest.approx(np.std(symmetric(program, KEY, 2048).samples_s), rel=0.06)
    assert slow.sd == pytest.approx(np.sqrt(0.05 * 0.95), rel=0.01)
    assert all(found.total[name] > found.first[name] - 3.0 * found.first_error[name] for name in found.first)


def test_gpus_explain_what_lies_between_allocations() -> None:
    """The share of the variance between allocations of GPUs, which repeated columns give by Hoeffding's covariance."""
    tree = Variability(
        "t", {**compute_varies(gpu=LogNormal(0.02), call=Normal(0.02)), **network_varies(regime=LogNormal(0.1))}
    )
    program = make_program(tree, dp=16)
    share = allocation_spread(program, symmetric(program, KEY, 2048), KEY).share
    found, _ = step_sobol(program, KEY)
    assert 0.1 < share < 0.9
    assert found.first[GPUS] == pytest.approx(share, abs=0.02)

"""Collectives: the law held at a reference, its least-squares fit, residuals integrated out, weights of cells, and curves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

from inference.collectives.data import CollectivesData, from_frame
from inference.collectives.laws import Reference, from_reference, priors, to_reference, trusts
from inference.collectives.least_squares import drawn, fit_laws
from inference.collectives.predict import log_likelihood, residuals
from tests.inference.collectives.test_collectives import table, true_seconds

AT = Reference(hops=14.0, net_hops=2.0, bus=1.75, net_bus=1.9)


def small() -> CollectivesData:
    """Two scales of one fabric in a node, and another fabric."""
    sizes = 2.0 ** np.arange(14, 20)
    rows = [(op, n, size) for op, n in (("all_gather", 8), ("all_reduce", 4), ("all_reduce", 8)) for size in sizes]
    frame = pd.DataFrame(rows, columns=["op", "n_gpus", "message_bytes"])
    return from_frame(frame.assign(n_nodes=1, duration_s=1e-5 + frame["message_bytes"] / 1e11))


def test_law_at_a_reference_is_the_law_and_keeps_volumes() -> None:
    median = {name: prior.median + 0.3 for name, prior in priors("power").items()}
    with jax.enable_x64(True):
        held = to_reference(median, AT)
        assert {name: float(value) for name, value in from_reference(held, AT).items()} == pytest.approx(median)

        def change(x: jax.Array) -> jax.Array:
            return jnp.stack(list(from_reference(dict(zip(median, x, strict=True)), AT).values()))

        slope = jax.jacfwd(change)(jnp.array([float(value) for value in held.values()]))
        assert float(jnp.linalg.det(slope)) == pytest.approx(1.0)


def test_residuals_integrated_out_give_the_density_of_all_cells_together() -> None:
    data = small()
    profile, scale, variance, off = _spreads(data)
    with jax.enable_x64(True):
        found = float(log_likelihood(data, off, variance, jnp.asarray(scale), profile))
    covariance = _covariance(data, profile, scale) + np.diag(variance)
    any_covariance: Any = covariance  # SciPy's type knows numbers alone
    whole = multivariate_normal.logpdf(off, np.zeros(len(off)), any_covariance)
    assert found == pytest.approx(float(whole) + 0.5 * len(off) * np.log(2.0 * np.pi), rel=1e-9)


def test_drawn_residuals_have_the_mean_that_the_cells_say() -> None:
    data = small()
    profile, scale, variance, off = _spreads(data)
    n = 4000
    each = (np.tile(values, (n, 1)) for values in (off, variance, scale, profile))
    curve = residuals(data, *each, rng=np.random.default_rng(1))
    at_cell = curve[:, data.curve, data.knot] * (1.0 - data.weight) + curve[:, data.curve, data.knot + 1] * data.weight
    prior = _covariance(data, profile, scale)
    gain = prior @ np.linalg.inv(prior + np.diag(variance))
    spread = np.sqrt(np.diag(prior - gain @ prior))
    apart = (at_cell.mean(axis=0) - gain @ off) / (spread / np.sqrt(n))
    assert np.abs(apart).max() < 4.5  # 18 normal values: false alarm 1e-4
    assert at_cell.std(axis=0) == pytest.approx(spread, rel=0.06)


def test_least_squares_finds_latency_and_bandwidth_of_a_line() -> None:
    data = from_frame(table(scales=(8, 16)))
    (found,) = fit_laws("alpha_beta", data)
    p = drawn("alpha_beta", data, 0, found)
    assert len({fit.held.tobytes() for fit in (found, fit_laws("alpha_beta", data)[0])}) == 1
    latency = np.exp(p["log_base_s"]) + 14.0 * np.exp(p["log_hop_s"])
    assert latency[0] == pytest.approx(true_seconds(8, 0.0), rel=0.1)
    low, high = np.quantile(latency, [0.005, 0.995])
    assert low < true_seconds(8, 0.0) < high


def test_an_outlier_has_little_weight_and_a_knee_has_all() -> None:
    size: np.ndarray = 2.0 ** np.arange(3, 33, dtype=np.float64)
    one = np.zeros(len(size), dtype=np.int64)
    rng = np.random.default_rng(0)
    line = np.log(2e-5 + size / 1e11) + 0.01 * rng.standard_normal(len(size))
    outlier = line + 0.5 * (np.arange(len(size)) == 12)
    knee = line + 0.3 * (np.arange(len(size)) >= 15)
    assert trusts(one, one, size, outlier)[12] < 0.05
    assert np.median(trusts(one, one, size, outlier)) > 0.8
    assert trusts(one, one, size, knee)[14:17].min() > 0.05


def _spreads(data: CollectivesData) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    profile, off = 0.3 * rng.standard_normal(len(data.knots)), 0.1 * rng.standard_normal(len(data.log_s))
    return profile, np.array([0.05, 0.1, 0.07]), np.exp(rng.uniform(-8.0, -6.0, len(data.log_s))), off


def _covariance(data: CollectivesData, profile: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Of the residuals at all cells: curve 0 by itself, curve 2 one step from curve 1."""
    walked = np.diag(scale**2)
    walked[1, 2] = walked[2, 1] = scale[1] ** 2
    walked[2, 2] += scale[1] ** 2
    shape = np.exp(profile)[:, None] * data.smooth
    mixed = np.zeros((len(data.log_s), len(data.knots)))
    mixed[np.arange(len(mixed)), data.knot] += 1.0 - data.weight
    mixed[np.arange(len(mixed)), data.knot + 1] += data.weight
    return walked[np.ix_(data.curve, data.curve)] * (mixed @ shape @ shape.T @ mixed.T)

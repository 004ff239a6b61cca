"""Shapes of runs: quantile functions that rise, and sums of autocorrelated steps."""

import numpy as np
import pytest

from inference.steps.runs import (
    LEVELS,
    cdf,
    excess,
    gpu_class,
    ks_distance,
    lag_one,
    quantile,
    ratios,
    shape_of,
)


def test_quantile_function_never_falls():
    rng = np.random.default_rng(0)
    prob = np.linspace(1e-6, 1.0 - 1e-6, 999)
    for shape in rng.normal(-4.0, 2.0, (200, LEVELS.size)):
        assert np.all(np.diff(quantile(shape, prob)) >= 0.0)
        assert np.all(quantile(shape, prob) > 0.0)


def test_shape_gives_back_the_quantiles_it_was_made_of():
    steps = np.exp(0.02 * np.random.default_rng(1).standard_normal(4000))
    steps /= np.median(steps)
    shape = shape_of(steps)
    np.testing.assert_allclose(1.0 + excess(shape), np.quantile(steps, LEVELS), rtol=1e-12)
    np.testing.assert_allclose(ratios(shape), np.quantile(steps, [0.95, 0.99]), rtol=1e-12)
    np.testing.assert_allclose(quantile(shape, LEVELS), np.quantile(steps, LEVELS), rtol=1e-12)


def test_shape_of_a_constant_run_does_not_vary():
    shape = shape_of(np.ones(50))
    np.testing.assert_allclose(quantile(shape, np.array([0.001, 0.3, 0.999])), 1.0, atol=1e-9)
    assert lag_one(np.ones(50)) == 0.0


def test_cdf_is_that_of_normal_steps():
    steps = 1.0 + 0.01 * np.random.default_rng(2).standard_normal(200_000)
    shape = shape_of(steps / np.median(steps))
    values = np.sort(steps / np.median(steps))
    assert ks_distance(values, cdf(shape, values)) < 0.01


def test_lag_one_finds_the_autocorrelation():
    rng = np.random.default_rng(3)
    score = rng.standard_normal(4000)
    for i in range(1, score.size):
        score[i] = 0.6 * score[i - 1] + 0.8 * score[i]
    assert lag_one(np.exp(score)) == pytest.approx(0.6, abs=0.05)  # standard error .013


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NVIDIA H100-SXM5-80GB", "H100"),
        ("NVIDIA Blackwell GPU (GB200)", "GB200"),
        ("AMD Instinct MI300X 192GB HBM3", "MI300X"),
        ("NVIDIA A100-PCIe-80GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("something else", "something else"),
    ],
)
def test_gpu_models_are_told_from_their_names(name: str, found: str):
    assert gpu_class(name) == found

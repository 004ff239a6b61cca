"""The law of measured over predicted peaks: interval and probability against each other and against draws."""

from math import exp

import numpy as np
import pytest

from prism_jax.framework.base import WITHOUT_PEAKS, PeakLaw
from prism_jax.framework.frameworks import MEGATRON_CORE, NANOTRON

LAW = PeakLaw(1.02, 0.05, 1.05, 0.2)
GIB = 2.0**30


@pytest.mark.parametrize("has_experts", [False, True])
def test_interval_holds_90_percent_of_draws(has_experts: bool):
    median, sd = (1.05, 0.2) if has_experts else (1.02, 0.05)
    draws = 40 * GIB * median * np.exp(sd * np.random.default_rng(0).standard_normal(100_000))
    low, high = LAW.interval_bytes(40 * GIB, has_experts)
    inside = np.mean((draws >= low) & (draws <= high))
    assert abs(inside - 0.9) < 5 * np.sqrt(0.9 * 0.1 / draws.size)  # false alarms: 6e-7


@pytest.mark.parametrize("has_experts", [False, True])
def test_a_device_as_large_as_an_end_of_the_interval_is_exceeded_with_that_probability(has_experts: bool):
    low, high = LAW.interval_bytes(40 * GIB, has_experts)
    assert LAW.not_fit_prob(40 * GIB, low, has_experts) == pytest.approx(0.95, rel=1e-9)
    assert LAW.not_fit_prob(40 * GIB, high, has_experts) == pytest.approx(0.05, rel=1e-9)
    assert LAW.not_fit_prob(40 * GIB, 40 * GIB * (1.05 if has_experts else 1.02), has_experts) == pytest.approx(0.5)


def test_the_interval_scales_with_the_prediction():
    one, ten = (np.array(LAW.interval_bytes(n * GIB, False)) for n in (1, 10))
    assert ten == pytest.approx(10 * one, rel=1e-12)


def test_experts_widen_and_frameworks_without_peaks_are_widest():
    measured = (MEGATRON_CORE.peak_law, NANOTRON.peak_law)
    assert all(law.expert_log_sd > law.log_sd for law in (*measured, WITHOUT_PEAKS))
    assert all(WITHOUT_PEAKS.log_sd >= law.log_sd for law in measured)
    low, high = WITHOUT_PEAKS.interval_bytes(GIB, False)
    assert low * high == pytest.approx(GIB**2, rel=1e-9)
    assert high / GIB == pytest.approx(exp(1.6448536 * WITHOUT_PEAKS.log_sd), rel=1e-6)

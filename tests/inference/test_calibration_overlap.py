"""The overlap model is calibrated: truths drawn from its priors have uniform ranks among the draws of fits."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from inference.overlap import OverlapModel
from inference.overlap_data import COUNTERS, LONGEST, OverlapData, from_frame
from tests.inference.calibration import Calibration, Sites, calibrate

N_KERNEL, N_EACH = 25, 6
N_FIT = 100


def skeleton() -> OverlapData:
    """Kernels with features of their own, a third of the rows without communication beside them."""
    rng = np.random.default_rng(0)
    kernel = np.repeat(np.arange(N_KERNEL), N_EACH)
    alone = 10.0 ** rng.uniform(-5.5, -3.0, len(kernel))
    counters = {c.name: rng.uniform(5.0, 95.0, N_KERNEL)[kernel] for c in COUNTERS}
    rows = {"kernel": [f"k{i:02d}" for i in kernel], "duration_s": alone, "overlapped_s": alone, **counters}
    return from_frame(pd.DataFrame(rows).assign(overlap_ratio=np.tile([0.0, 0.5, 1.0], len(kernel) // 3)))


def measured(data: OverlapData, true: Sites, rng: np.random.Generator) -> OverlapData:
    """Log factors as `overlap_mixture` says: a call is held up, by a gamma variable, or it keeps its time, with noise."""
    of, ratio = data.kernel, data.overlap_ratio
    slope_logit = true["slope_logit_scale"] * true["slope_logit_raw"]
    slope_extra = true["slope_extra_scale"] * true["slope_extra_raw"]
    logit = true["base_logit"] + data.features @ slope_logit + (true["kernel_logit_scale"] * true["kernel_logit"])[of]
    extra = (
        true["base_log_extra"] + data.features @ slope_extra + (true["kernel_extra_scale"] * true["kernel_extra"])[of]
    )
    mean = ratio * np.exp(np.minimum(extra, np.log(LONGEST)))  # of a typical call no more than a factor 100
    held = (rng.random(len(of)) < 1.0 / (1.0 + np.exp(-logit))) & (ratio > 0.0)
    shape = 1.0 + true["shape_above_one"]
    noise = np.exp(true["log_noise"] + true["noise_slope"] * data.log_duration)
    calm = ratio * true["shift"] + noise * rng.standard_t(1.0 + true["tail_above_one"], len(of))
    return replace(data, log_factor=np.where(held, rng.gamma(shape, mean / shape), calm))


def run(n_fit: int = N_FIT) -> Calibration:
    data = skeleton()
    return calibrate(OverlapModel(), data, lambda true, rng: measured(data, true, rng), n_fit=n_fit, seed=21)


@pytest.mark.slow
def test_ranks_of_true_values_are_uniform() -> None:
    """Four numbers, each with a false-alarm rate of 1e-4: 4e-4 in all."""
    run().assert_uniform(OverlapModel.reported, max_failed=0.1)

"""Figures: what a study measures of one job, as plain numbers; NaN where nothing is known."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

from .._core.content import ByContent


@dataclass(frozen=True, eq=False)
class Figures(ByContent):
    """One job; seconds are per step and of an average GPU.

    Attributes:
        value, value_error: the objective in its unit, and its Monte Carlo standard error.
        model_low, model_high: factors of the predicted median between which 90 % of measured ones lie.
        tokens_per_s: of the median step; samples where the model counts these.
        exposed_*_s, hidden_*_s: communication by axis that the step waits for, and that runs beside compute.
        fits: 1 where the job fits into memory, 0 where it does not.
        gpu_watts, joules_per_token: of the GPUs alone.
        money_per_mtoken: of the mean step.
        target_prob: probability that the target is met, given what the cost model does not know.
    """

    n_devices: float
    value: float
    value_error: float
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    p50_error_s: float
    p95_error_s: float
    p99_error_s: float
    model_low: float
    model_high: float
    tokens_per_step: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    mfu: float
    hfu: float
    memory_bytes: float
    fits: float
    compute_s: float
    bubble_s: float
    waiting_s: float
    stalls_s: float
    exposed_tp_s: float
    exposed_cp_s: float
    exposed_ep_s: float
    exposed_dp_s: float
    exposed_pp_s: float
    hidden_tp_s: float
    hidden_cp_s: float
    hidden_ep_s: float
    hidden_dp_s: float
    gpu_watts: float = nan
    joules_per_token: float = nan
    money_per_mtoken: float = nan
    target_prob: float = nan

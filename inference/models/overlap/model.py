"""Slowdown of compute kernels under communication, from kernel features, with an honest answer for kernels never measured.

A mixture by row (`overlap_mixture`) with kernel effects and features. Known kernels are predicted by their own effects. For
others the fit asks itself (`overlap_rule`) whether features carry over to a kernel left out; if not, they get "no slowdown".
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array

from prism_jax.cost.measured import MeasuredTables
from prism_jax.system.hardware import Cluster

from ...model import Draws, Model, Score
from . import mixture as mixture, predict as predict, rule as rule
from .cost import measured_slowdown
from .data import COLUMNS, FEATURES, OverlapData, from_frame

# Odds of a call being held up: 1 in 5, 1 in 50 to 4 in 5 within two standard deviations.
BASE_LOGIT = (-1.5, 1.2)
# A call that is held up takes exp(0.4) = 1.5 times as long, 1.1 to 5 times within two standard deviations.
BASE_LOG_EXTRA = (-0.9, 0.7)
# Kernels differ by up to this much (standard deviations of logit and log extra): anything from alike to unrelated.
KERNEL_LOGIT_SCALE, KERNEL_EXTRA_SCALE = 1.5, 0.7
# Features by one standard deviation: odds by at most a factor exp(0.5) or so, unless the data insist; extra by half of that.
SLOPE_LOGIT_SCALE, SLOPE_EXTRA_SCALE = 0.5, 0.25
SHAPE_ABOVE_ONE = (
    0.0,
    0.7,
)  # log of shape - 1: coefficient of variation 0.5 to 0.9; above 1, so that no mass sits at zero
SHIFT_SCALE = 0.01  # kernels "not held up" may still take 1 % longer
LOG_NOISE = (-4.2, 1.0)  # log 0.015: repeats of one kernel under a profiler agree to 0.5-4 %
NOISE_SLOPE = (-0.3, 0.3)  # short kernels are timed less well; -0.5 is independent noise per second
TAIL_ABOVE_ONE = (0.7, 0.7)  # log of (degrees of freedom - 1): 2 to 9, heavy but with a mean


class Overlap(Model[OverlapData]):
    """The model by the name "overlap"."""

    name = "overlap"
    columns = COLUMNS
    reported = ("base_logit", "base_log_extra", "kernel_logit_scale", "log_noise")
    no_variability = (
        "an overlap fit describes a cost (how much longer kernels take beside communication), not a variability. "
        "`Fit.measured_cost` is that cost, `inference.models.overlap.predict.slowdown` that of single kernels."
    )

    def prepare(self, frame: pd.DataFrame) -> OverlapData:
        """Rows, standardised features, and whether the model beats "no slowdown" on kernels left out."""
        return rule.decide(from_frame(frame), self.program, self.start)

    def program(self, data: OverlapData) -> None:
        """Priors on the log scale, non-centred effects (most kernels have one row), and the mixture."""
        n_feature, n_kernel = data.features.shape[1], len(data.kernels)
        site = {
            "base_logit": numpyro.sample("base_logit", dist.Normal(*BASE_LOGIT)),
            "base_log_extra": numpyro.sample("base_log_extra", dist.Normal(*BASE_LOG_EXTRA)),
            "kernel_logit_scale": numpyro.sample("kernel_logit_scale", dist.HalfNormal(KERNEL_LOGIT_SCALE)),
            "kernel_extra_scale": numpyro.sample("kernel_extra_scale", dist.HalfNormal(KERNEL_EXTRA_SCALE)),
            "slope_logit_scale": numpyro.sample("slope_logit_scale", dist.HalfNormal(SLOPE_LOGIT_SCALE)),
            "slope_extra_scale": numpyro.sample("slope_extra_scale", dist.HalfNormal(SLOPE_EXTRA_SCALE)),
            "slope_logit_raw": numpyro.sample("slope_logit_raw", dist.Normal().expand([n_feature])),
            "slope_extra_raw": numpyro.sample("slope_extra_raw", dist.Normal().expand([n_feature])),
            "shape_above_one": numpyro.sample("shape_above_one", dist.LogNormal(*SHAPE_ABOVE_ONE)),
            "shift": numpyro.sample("shift", dist.HalfNormal(SHIFT_SCALE)),
            "log_noise": numpyro.sample("log_noise", dist.Normal(*LOG_NOISE)),
            "noise_slope": numpyro.sample("noise_slope", dist.Normal(*NOISE_SLOPE)),
            "tail_above_one": numpyro.sample("tail_above_one", dist.LogNormal(*TAIL_ABOVE_ONE)),
        }
        effect_logit = jnp.asarray(numpyro.sample("kernel_logit", dist.Normal().expand([n_kernel])))[data.kernel]
        effect_extra = jnp.asarray(numpyro.sample("kernel_extra", dist.Normal().expand([n_kernel])))[data.kernel]
        at = mixture.terms(site, data.features, data.log_duration, effect_logit, effect_extra)
        density = mixture.log_density(jnp.asarray(data.log_factor), jnp.asarray(data.overlap_ratio), at)
        numpyro.factor("log_factor", jnp.where(data.used, density, 0.0).sum())

    def start(self, data: OverlapData) -> dict[str, Any]:
        """Prior centres; noise from the quartiles of rows that took no more than a tenth longer."""
        calm = data.log_factor[np.abs(data.log_factor) < 0.1]
        spread = float(np.subtract(*np.quantile(calm, [0.75, 0.25]))) / 1.35 if len(calm) > 3 else 0.0
        n_feature, n_kernel = data.features.shape[1], len(data.kernels)
        return {
            "base_logit": np.asarray(BASE_LOGIT[0]),
            "base_log_extra": np.asarray(BASE_LOG_EXTRA[0]),
            "kernel_logit_scale": np.asarray(0.7),
            "kernel_extra_scale": np.asarray(0.4),
            "slope_logit_scale": np.asarray(0.2),
            "slope_extra_scale": np.asarray(0.1),
            "slope_logit_raw": np.zeros(n_feature),
            "slope_extra_raw": np.zeros(n_feature),
            "shape_above_one": np.asarray(1.0),
            "shift": np.asarray(0.002),
            "log_noise": np.asarray(np.log(max(spread, 0.002))),
            "noise_slope": np.asarray(NOISE_SLOPE[0]),
            "tail_above_one": np.asarray(2.0),
            "kernel_logit": np.zeros(n_kernel),
            "kernel_extra": np.zeros(n_kernel),
        }

    def describe(self, data: OverlapData, draws: Draws) -> dict[str, Any]:
        """Effect sizes, whether "no slowdown" is beaten, kernels that are held up, and the sentence that says so."""
        slopes = np.asarray(draws["slope_logit_scale"])[:, None] * np.asarray(draws["slope_logit_raw"])
        odds = np.exp(np.quantile(slopes, [0.05, 0.5, 0.95], axis=0))
        return {
            "n_rows": len(data.kernel),
            "n_overlapped": int((data.overlap_ratio > 0.0).sum()),
            "n_kernels": len(data.kernels),
            "held_up_prob": predict.interval(1.0 / (1.0 + np.exp(-np.asarray(draws["base_logit"])))),
            "noise": predict.interval(np.exp(np.asarray(draws["log_noise"]))),
            "odds_per_standard_deviation": {name: odds[:, i].tolist() for i, name in enumerate(FEATURES)},
            "slowdown_by_kernel": predict.by_kernel(data, draws, jax.random.key(0)),
            "leave_one_kernel_out": {
                "mape": data.mape_model,
                "mape_no_slowdown": data.mape_none,
                "gain": data.gain,
                "gain_error": data.gain_error,
                "n_kernels": data.n_judged,
            },
            "beats_no_slowdown": data.beats,
            "verdict": predict.sentence(data),
        }

    def measured_cost(
        self, data: OverlapData, draws: Draws, cluster: Cluster, dtype: str, n_draw: int, key: Array
    ) -> MeasuredTables:
        """What compute loses beside communication."""
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
        return measured_slowdown(data, draws, cluster.device, n_draw, rng)

    def score(self, data: OverlapData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[Score]:
        """Relative error of the time under overlap and of "no slowdown" by left-out group, over rows with overlap."""
        return predict.scores(data, draws, left_out, column, key)

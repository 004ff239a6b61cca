"""Ratio of the tail of a job to that of a preset of variability: draws of a posterior over measured systems.

A draw is a system that was not measured. Its p95 and p99 lie `exp(log ratio)` times as far above the median as the preset has
them; in between, the log ratio goes by normal score, beyond it is that of the nearer level. Draws come in pairs of opposite
signs, so that the quantile of the preset is their median.

Source: `variability/presets/tails.json`, written by `experiments/variability_presets/tails.py`, which also scores it with
systems left out; the model is `experiments/variability_presets/tail_model.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import ndtri

from ..core.arrays import Float, Floats
from ..system.catalog import load_json
from .distribution import Guarantee, StepTimes, quantile

PRESETS = ("a100-default", "b200-default", "h100-default", "mi300x-default", "v100-longhorn")  # of training steps
N_NEW = 8  # pairs of systems for every draw of the posterior
SCORES = ndtri((0.95, 0.99))
N_LEVEL = 2000  # levels at which a probability is read


@dataclass(frozen=True)
class TailDraws:
    """Equally likely tails of a job of one size.

    Attributes:
        log_ratio: ln of the excess over the median at p95 and p99, over that of the preset, [draw, 2].
    """

    log_ratio: Float[np.ndarray, "draw 2"]

    def ratios(self, p: float) -> Floats:
        """[draw] ratios of the excess of the quantile `p` over the median; 1 up to the median."""
        if p <= 0.5:
            return np.ones(len(self.log_ratio))
        return np.exp(self._log_ratios(np.array([p]))[:, 0])

    def _log_ratios(self, levels: Floats) -> Floats:
        """[draw, level] of levels above the median."""
        share = np.clip((ndtri(levels) - SCORES[0]) / (SCORES[1] - SCORES[0]), 0.0, 1.0)
        low, high = self.log_ratio[:, :1], self.log_ratio[:, 1:]
        return low + share * (high - low)

    def quantiles(self, times: StepTimes, p: float) -> Floats:
        """[draw] quantile `p` of the step time, seconds, on as many systems."""
        median_s = times.quantile(0.5)
        return median_s + (times.quantile(p) - median_s) * self.ratios(p)

    def prob_slower(self, times: StepTimes, fraction: float) -> float:
        """P(step > (1 + fraction) x median) on a system that was not measured: the mean over draws."""
        levels = 0.5 + 0.5 * (np.arange(N_LEVEL) + 0.5) / N_LEVEL
        excess = quantile(times.samples_s, levels) / times.quantile(0.5) - 1.0
        return 0.5 * float((excess * np.exp(self._log_ratios(levels)) > fraction).mean())

    def guarantee(self, times: StepTimes, p: float, confidence: float) -> Guarantee:
        """Bound that a fraction `p` of steps does not exceed with `confidence`, on a system that was not measured.

        Raises:
            DataError: too little was simulated to bound the quantile of the preset.
        """
        own, median_s = times.guarantee(p, confidence), times.quantile(0.5)
        bound_s = median_s + (own.bound_s - median_s) * float(np.quantile(self.ratios(p), confidence))
        return Guarantee(p, confidence, bound_s, "systems")


@cache
def tail_draws(n_devices: int) -> TailDraws:
    """Tails of a job of `n_devices` devices on systems that were not measured."""
    kept = load_json("prism_jax.variability", "tails.json")
    kind, growth, alike = (np.repeat(np.array(kept[name]), N_NEW) for name in ("kind", "growth", "alike"))
    scale = np.repeat(np.array(kept["scale"]), N_NEW, axis=0)
    rng, n = np.random.default_rng(0), len(kind)
    first, second = rng.standard_normal((2, n)) / np.sqrt(rng.chisquare(kept["tail"], n) / kept["tail"])
    wide = np.exp(growth * (np.log2(n_devices) - kept["reference_log2_gpus"]))
    both = np.stack([first, alike * first + np.sqrt(1.0 - alike**2) * second], axis=1)
    log_ratio = (kept["new_kind"] * kind * rng.standard_normal(n))[:, None] + wide[:, None] * scale * both
    return TailDraws(np.concatenate([log_ratio, -log_ratio]))

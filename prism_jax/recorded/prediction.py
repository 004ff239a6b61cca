"""TracePrediction: the distribution of the steps that were not recorded, and how sure the recorded ones make us of it.

Two questions have two answers. *What is the p95 of this job?* The median of the p95 over refits, with an interval of the refits.
*What p95 will the next n steps show?* A sample of n steps scatters too, so the answer is the median p95 of samples of n drawn
steps, with a wider interval; that one is to be compared with the p95 of n measured steps.

Estimate and interval are quantiles of the same values, so an estimate never lies outside its interval. A mean would: where one
refit in forty gives a rare step much weight, it is larger than nearly all of the values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._typing import Floats
from ..result.guarantee import Guarantee, refit_bound
from ..result.step_times import SampleStatistics


@dataclass(frozen=True)
class TracePrediction(SampleStatistics):
    """Predicted steps.

    Attributes:
        step_s: [refit, draw] step times, seconds; refits differ by how the recorded steps are weighted.
    """

    step_s: Floats

    @property
    def samples_s(self) -> Floats:
        """All draws, sorted: the predictive distribution."""
        return np.sort(self.step_s, axis=None)

    @property
    def by_fleet_s(self) -> Floats:
        """[refit, draw] step times, seconds: of the one recorded fleet, each row as one reweighting of its steps sees it.

        Draws of a refit are independent of each other: the recorded order of steps is not kept.
        """
        return self.step_s

    def quantile(self, p: float) -> float:
        """Long-run quantile: median over refits, seconds."""
        return float(np.median(np.quantile(self.step_s, p, axis=1)))

    def interval(self, p: float, level: float = 0.9) -> tuple[float, float]:
        """Interval of the long-run quantile from the few recorded steps, seconds."""
        return _central(np.quantile(self.step_s, p, axis=1), level)

    def mc_error(self, p: float) -> float:
        """Standard error of `quantile(p)` from the finite number of refits and draws, seconds.

        Half the distance of the order statistics one binomial standard deviation to either side of the median.
        """
        found = np.quantile(self.step_s, p, axis=1)
        off = 0.5 / np.sqrt(len(found))
        low, high = np.quantile(found, [max(0.5 - off, 0.0), min(0.5 + off, 1.0)])
        return float(high - low) / 2.0

    def guarantee(self, p: float = 0.95, confidence: float = 0.99) -> Guarantee:
        """Upper confidence bound of the long-run quantile, from the spread over refits."""
        return refit_bound(np.quantile(self.step_s, p, axis=1), p, confidence)

    def expected(self, p: float, n_step: int) -> float:
        """What the p-quantile of the next `n_step` steps is as likely to exceed as not, seconds."""
        return float(np.median(self._of_samples(p, n_step)))

    def expected_interval(self, p: float, n_step: int, level: float = 0.9) -> tuple[float, float]:
        """Interval that contains the p-quantile of the next `n_step` steps with probability `level`, seconds."""
        return _central(self._of_samples(p, n_step), level)

    def _of_samples(self, p: float, n_step: int) -> Floats:
        n_refit, n_draw = self.step_s.shape
        n_step = min(n_step, n_draw)
        n_sample = n_draw // n_step
        return np.quantile(self.step_s[:, : n_sample * n_step].reshape(n_refit * n_sample, n_step), p, axis=1)


def _central(values: Floats, level: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return float(low), float(high)


def ks_distance(a: Floats, b: Floats) -> float:
    """Largest difference between the empirical distribution functions of two samples, 0-1."""
    a, b = np.sort(a, axis=None), np.sort(b, axis=None)
    x = np.concatenate([a, b])
    above = np.searchsorted(a, x, side="right") / a.size - np.searchsorted(b, x, side="right") / b.size
    return float(np.abs(above).max())

"""Defines RunOutcome, when a job is done and where the time went, with errors; and what changes of the job would save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan

import numpy as np

from ..core.arrays import Floats
from ..result.distribution import check_prob

BUCKETS = (
    "useful", "stragglers", "slow_phases", "checkpoint", "failure", "rework", "restart", "planned_stops",
)  # fmt: skip
"""Where time goes, in the words of Google's goodput library: `useful` and seven kinds of badput."""


@dataclass(frozen=True)
class RunChange:
    """A change, and the seconds of expected time that it saves; the interval is chosen anew unless it was stated."""

    what: str
    saves_s: float


@dataclass(frozen=True)
class Response:
    """The answer at one mean time between failures: best interval, expected time, share of it in kept steps."""

    mtbf_h: float
    interval_s: float
    expected_s: float
    goodput: float


@dataclass(frozen=True)
class Estimate:
    """A figure and its Monte Carlo standard error; not finite where some worlds never end."""

    value: float = nan
    error: float = nan


@dataclass(frozen=True)
class RunOutcome:
    """A job in many worlds; [world].

    Attributes:
        time_s: wall time, seconds.
        seconds: bucket -> seconds; they add up to the time of every world.
        waiting_s: part of `failure`: for nodes to come back from repair.
        n_failure: interruptions.
        clock_s: the wall time as the simulation's own clock has it, in its precision.
        expected_s: wall time that each world's rates and level of the step lead to: what is not known, without chance.
    """

    time_s: Floats
    seconds: Mapping[str, Floats]
    waiting_s: Floats
    n_failure: Floats
    clock_s: Floats
    expected_s: Floats

    @property
    def mean_s(self) -> float:
        """Mean wall time, seconds."""
        return float(self.time_s.mean())

    def quantile(self, p: float) -> float:
        """Wall time that a share `p` of the worlds does not exceed, seconds."""
        return float(np.quantile(self.time_s, check_prob(p)))

    def mc_error(self, p: float) -> float:
        """Monte Carlo standard error of `quantile(p)`.

        Source: Maritz, Jarrett, A note on estimating the variance of the sample median, JASA 73 (1978), for any p: the order
        statistics are weighed as the p-quantile of as many draws would be one of them. Errors
        from batches of 1,000 worlds are a third too small for p99, since a batch holds too few of the slowest ones.
        """
        from scipy.special import betainc  # not for every run

        ordered = np.sort(self.time_s)
        n = len(ordered)
        at = check_prob(p) * n + 0.5
        weights = np.diff(betainc(at, n + 1.0 - at, np.linspace(0.0, 1.0, n + 1)))
        mean_s = float(weights @ ordered)
        return float(np.sqrt(weights @ (ordered - mean_s) ** 2))

    def band(self, level: float = 0.9) -> tuple[float, float]:
        """Interval of the expected time over what is not known, seconds: rates, and the level of the step."""
        low, high = np.quantile(self.expected_s, (0.5 - 0.5 * level, 0.5 + 0.5 * level))
        return float(low), float(high)

    def prob_by(self, deadline_s: float) -> tuple[float, float]:
        """Probability that the job is done by the deadline, and its Monte Carlo standard error."""
        on_time = self.time_s <= deadline_s
        return float(on_time.mean()), float(on_time.std() / np.sqrt(len(on_time)))

    @property
    def goodput(self) -> Floats:
        """Share of the wall time in steps that are kept, at the pace of the fleet; [world]."""
        return (self.seconds["useful"] + self.seconds["stragglers"]) / self.time_s

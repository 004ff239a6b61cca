"""Two levels of recovery: a copy in memory for interruptions that lose no node, a remote one for those that do.

Work is done in intervals of D, each followed by a copy into memory; every k-th is written to storage, too. A soft interruption
(rate λ_s, outage R_s) loses the interval, a hard one (λ_h, R_h) all intervals since the last remote copy; either may strike
during an outage. With λ = λ_s + λ_h, p = λ_s / λ, an interval and its copies of span s, q = e^{-λs}, x = 1 - e^{-λR_s}, and the
chance β = (1 - x) / (1 - x p) that a soft outage ends before a hard interruption, the chance that an interval is done before a
hard interruption is r = q / (1 - (1 - q) p β), and k intervals take

    E = (r^{-k} - 1) / (1 - r) · (c + (1 - r) (e^{λR_h} - 1) / λ)
    c = ((1 - q) + (1 - q) p x / (1 - x p)) / (λ (1 - (1 - q) p β))

which for p = 0 and k = 1 is the form of `renewal.py`. The wait for the remote copy is spread over its k intervals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize_scalar

from .reliability import HOUR_S

if TYPE_CHECKING:
    from .run import TrainingRun

MOST_INTERVALS = 4096  # between two remote copies
HOPELESS = 500.0  # logarithm of a time that nobody waits for


@dataclass(frozen=True)
class TwoLevels:
    """Settings of both levels, all in one unit of time.

    Attributes:
        soft_rate, hard_rate: interruptions per time that lose no node, and that lose some.
        local_blocking, remote_blocking: that training waits for a copy into memory, and for a remote one beside it.
        soft_outage, hard_outage: from an interruption to the first new step.
        soft_noticed, hard_noticed: from an interruption to the outage, in which no other strikes.
    """

    soft_rate: float
    hard_rate: float
    local_blocking: float
    remote_blocking: float
    soft_outage: float
    hard_outage: float
    soft_noticed: float = 0.0
    hard_noticed: float = 0.0

    def expected_time(self, work: float, interval: float, per_remote: int) -> float:
        """Expected wall time of `work`; infinite where it does not end in practice.

        Args:
            interval: of work between copies into memory.
            per_remote: intervals between remote copies.
        """
        span = interval + self.local_blocking + self.remote_blocking / per_remote
        rate = self.soft_rate + self.hard_rate
        if rate == 0.0:
            return work / interval * span
        p = self.soft_rate / rate
        fails, again = -np.expm1(-rate * span), -np.expm1(-rate * self.soft_outage)
        over = (1.0 - again) / (1.0 - again * p)
        tries = 1.0 - fails * p * over
        hard = fails * (1.0 - p * over) / tries  # 1 - r: an interval ends in a hard interruption
        once = (fails + fails * p * again / (1.0 - again * p)) / (rate * tries)
        with np.errstate(over="ignore", divide="ignore"):
            each = once + hard * np.expm1(rate * self.hard_outage) / rate
            rounds = np.expm1(-per_remote * np.log1p(-hard)) / hard if hard > 1e-14 else float(per_remote)
        noticed = 1.0 + self.soft_rate * self.soft_noticed + self.hard_rate * self.hard_noticed
        return float(work / (interval * per_remote) * rounds * each * noticed)

    def best(self, least_remote: float = 0.0) -> tuple[float, int]:
        """Interval and intervals per remote copy of the least expected time.

        Args:
            least_remote: work between remote copies at least: the last one has to be loadable.
        """
        found = []
        for k in np.unique(np.geomspace(1, MOST_INTERVALS, 49).astype(int)).tolist():
            copies = max(self.local_blocking + self.remote_blocking / k, 1e-9)
            least = max(least_remote / k, copies * 1e-3)
            told = minimize_scalar(
                self._log_time, args=(k,), bounds=(np.log(least), np.log(least) + 21.0), method="bounded"
            )
            found.append((float(told.fun), float(np.exp(told.x)), k))  # type: ignore[attr-defined]
        _, interval, k = min(found)
        return interval, k

    def _log_time(self, log_interval: float, per_remote: int) -> float:
        """Logarithm of the time of one unit of work; where it does not end, something large that grows with the interval."""
        time = self.expected_time(1.0, float(np.exp(log_interval)), per_remote)
        return min(float(np.log(time)), HOPELESS + log_interval)


def two_levels_of(run: TrainingRun) -> TwoLevels | None:
    """The run with a copy in memory beside its checkpoints; None where the seconds of one are not known or nothing is soft."""
    copy_s, checkpoint = run.checkpoint.memory_s, run.checkpoint
    hazards = [(hazard, hazard.rate_h(run.n_gpus, run.node_size) / HOUR_S) for hazard in run.reliability.hazards]
    soft, hard = ([(h, rate) for h, rate in hazards if (h.nodes_lost == 0.0) == is_soft] for is_soft in (True, False))
    soft_rate, hard_rate = (sum(rate for _, rate in kind) for kind in (soft, hard))
    if copy_s is None or soft_rate == 0.0:
        return None
    soft_s, hard_s = (
        sum(h.noticed_s * rate for h, rate in kind) / whole if whole > 0.0 else 0.0
        for kind, whole in ((soft, soft_rate), (hard, hard_rate))
    )
    return TwoLevels(
        soft_rate,
        hard_rate,
        copy_s,
        0.0 if checkpoint.background_s > 0.0 else checkpoint.blocking_s,
        run.outage_s - checkpoint.load_s + copy_s,
        run.outage_s + checkpoint.background_s,
        soft_s,
        hard_s,
    )


def two_level_time_s(run: TrainingRun) -> tuple[float, float, int] | None:
    """Expected seconds of the run with two levels, the interval and the intervals per remote copy; None as above.

    Notes: as in `TrainingRun.expected_s`, with planned stops as a share of the work and slow phases as their mean pace.
    """
    levels = two_levels_of(run)
    if levels is None:
        return None
    interval_s, k = levels.best(max(run.checkpoint.background_s - run.checkpoint.blocking_s, 0.0))
    interval_s = max(interval_s, run.steps.mean_s)
    pace = run.slowdown + run.recovery.planned_share
    return levels.expected_time(run.n_steps * run.steps.mean_s * pace, interval_s, k), interval_s, k

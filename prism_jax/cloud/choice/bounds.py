"""Bounds of candidates that hold world by world: what a job takes and costs if nothing interrupts it, at the least price."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._typing import Floats
from .candidate import Candidate
from .wish import Wish

TOO_SLOW = "too slow for the deadline even if nothing interrupts it"
TOO_DEAR = "above the budget even at the least price without interruptions"
NEVER = "without an end in sight: it works longer than {days:g} days"
MOST_WORK_S = 366 * 86400.0


@dataclass(frozen=True)
class Bound:
    """Of one candidate.

    Attributes:
        time_s, cost_usd: means over worlds, at most those of any simulation; late_s: the same of the p95.
        reason: why it cannot be feasible; empty if it can.
    """

    time_s: float
    late_s: float
    cost_usd: float
    reason: str


def bound_of(candidate: Candidate, factors: Floats, wish: Wish) -> Bound:
    """Bound in the worlds of `factors`."""
    task = candidate.task
    busy_s = task.work_s * factors + task.n_interval * task.blocking_s
    time_s, cost_usd = (
        busy_s + (task.restart_s if task.first_s is None else task.first_s),
        busy_s * candidate.least_usd_per_s,
    )
    reason = ""
    if float(time_s.mean()) > MOST_WORK_S:
        reason = NEVER.format(days=MOST_WORK_S / 86400.0)
    elif float((time_s * LEAST <= wish.deadline_s).mean()) < wish.prob:
        reason = TOO_SLOW
    elif float((cost_usd * LEAST <= wish.budget_usd).mean()) < wish.prob:
        reason = TOO_DEAR
    late_s = float(np.quantile(time_s, 0.95, method="lower"))
    return Bound(float(time_s.mean()) * LEAST, late_s * LEAST, float(cost_usd.mean()) * LEAST, reason)


LEAST = 1.0 - 1e-4  # worlds are simulated in single precision

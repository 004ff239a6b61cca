"""Restart now, or wait for a slow phase to end? Ski rental: act when the seconds lost reach the cost of a restart.

Nobody knows how long a phase lasts. Whoever acts at that moment pays at most twice what the best decision in hindsight would
have cost (and the loss of one step), and no rule without a forecast promises less.

Source: Karlin, Manasse, Rudolph, Sleator, "Competitive snoopy caching" (1988); for slow phases of jobs, arXiv:2410.12588.
"""

from __future__ import annotations

import numpy as np

from ..._typing import Floats


def act_at(lost_s: Floats, cost_s: float) -> int | None:
    """Index of the step after which to act; None if the loss stays below the cost.

    Args:
        lost_s: [step] seconds lost by every step of the phase.
        cost_s: seconds that a restart takes.
    """
    reached = np.flatnonzero(np.cumsum(lost_s) >= cost_s)
    return int(reached[0]) if len(reached) else None

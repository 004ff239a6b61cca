"""Spot while there is slack, on demand from when there is none to the end.

Source: Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines" (NSDI 2024), section 4: the safety net. A job
that waits goes on demand when time left <= work left + restart. One that finds spot takes it only if it can lose an interval
and still change over; one that runs on spot stays until it is lost. The paper's machines on demand never fail; ours do, so that
slack for one failure is kept, too (`failures = 0`: the paper's rule).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from .base import ON_DEMAND, SPOT, WAIT, Use, View

ROUNDING_S = 60.0  # of a clock in single precision


@dataclass(frozen=True)
class SpotWithFallback:
    """Spot while there is slack, on demand from when there is none to the end.

    Attributes:
        failures: of machines on demand that there is slack for.
    """

    name: str = "spot_with_fallback"
    failures: float = 1.0
    needs_spot: bool = True
    needs_on_demand: bool = True
    uses: tuple[Use, Use, Use] = (Use(0.0, 0.0, 0.0), Use(1.0, 1.0, 0.0), Use(1.0, 0.0, 1.0))

    def place(self, view: View) -> Any:
        """See `Policy`."""
        slack_s = self._slack_s(view)
        stays = (view.place == ON_DEMAND) & (slack_s < jnp.inf)
        enough = (view.place == SPOT) | (slack_s > view.at_risk_s + view.restart_s)
        waits = jnp.where(slack_s > 0.0, WAIT, ON_DEMAND)
        return jnp.where(stays, ON_DEMAND, jnp.where(view.spot_up & enough, SPOT, waits))

    def changes_in_s(self, view: View) -> Any:
        """A job that waits loses slack second by second."""
        return jnp.where(view.place == WAIT, jnp.maximum(self._slack_s(view), 0.0), jnp.inf)

    def _slack_s(self, view: View) -> Any:
        """Seconds that may be waited before the job must go on demand."""
        failure_s = view.at_risk_s + view.restart_s
        return view.time_left_s - view.work_left_s - view.restart_s - self.failures * failure_s - ROUNDING_S

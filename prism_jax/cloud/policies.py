"""Policies, which decide where a job runs, and the information they may use; one that ships is a line of `POLICIES`.

A job may run on demand from start to end, on spot whenever there is some (and else wait), or with a part of the nodes on demand
at all times and the rest on spot while there is some; or on spot while there is slack, on demand from when there is none.

Source: Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines" (NSDI 2024), section 4: the safety net. A job
that waits goes on demand when time left <= work left + restart. One that finds spot takes it only if it can lose an interval
and still change over; one that runs on spot stays until it is lost. The paper's machines on demand never fail; ours do, so that
slack for one failure is kept, too (`failures = 0`: the paper's rule).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp

from ..core.registry import Registry

WAIT, SPOT, ON_DEMAND = 0, 1, 2  # places


class SpotView(NamedTuple):
    """Information that a policy has at a moment; arrays of one shape, seconds.

    Attributes:
        spot_up: whether all spot nodes are there.
        place: where the job is.
        time_left_s: until the deadline; infinite where there is none.
        work_left_s: time of the unsaved work on all nodes, checkpoints included.
        restart_s: from the decision to move to the first new step.
        at_risk_s: largest loss in addition to the restart: one interval with its checkpoint.
    """

    spot_up: Any
    place: Any
    time_left_s: Any
    work_left_s: Any
    restart_s: Any
    at_risk_s: Any


class Use(NamedTuple):
    """Pace of the job in one place, over that on all nodes, and the shares of the nodes that are paid for."""

    pace: float
    spot: float
    on_demand: float


class SpotPolicy(Protocol):
    """A rule by which a job moves. Written with `jax.numpy`; instances are hashable, since they are static in compiled code.

    Attributes:
        name: in reports.
        needs_spot, needs_on_demand: which prices it pays.
        uses: of WAIT, SPOT and ON_DEMAND.
    """

    @property
    def name(self) -> str: ...

    @property
    def needs_spot(self) -> bool: ...

    @property
    def needs_on_demand(self) -> bool: ...

    @property
    def uses(self) -> tuple[Use, Use, Use]: ...

    def place(self, view: SpotView) -> Any:
        """Returns the place where the job is to be now: WAIT, SPOT or ON_DEMAND; SPOT only where `spot_up`."""
        ...

    def changes_in_s(self, view: SpotView) -> Any:
        """Seconds until `place` would say otherwise though nothing has happened; infinite where it never would."""
        ...


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

    def place(self, view: SpotView) -> Any:
        """Returns the place as `SpotPolicy` states."""
        slack_s = self._slack_s(view)
        stays = (view.place == ON_DEMAND) & (slack_s < jnp.inf)
        enough = (view.place == SPOT) | (slack_s > view.at_risk_s + view.restart_s)
        waits = jnp.where(slack_s > 0.0, WAIT, ON_DEMAND)
        return jnp.where(stays, ON_DEMAND, jnp.where(view.spot_up & enough, SPOT, waits))

    def changes_in_s(self, view: SpotView) -> Any:
        """A job that waits loses slack second by second."""
        return jnp.where(view.place == WAIT, jnp.maximum(self._slack_s(view), 0.0), jnp.inf)

    def _slack_s(self, view: SpotView) -> Any:
        """Seconds that may be waited before the job must go on demand."""
        failure_s = view.at_risk_s + view.restart_s
        return view.time_left_s - view.work_left_s - view.restart_s - self.failures * failure_s - ROUNDING_S


class SteadyPolicy:
    """Base of policies that never say otherwise before something happens."""

    def changes_in_s(self, view: SpotView) -> Any:
        """Returns infinity: the place never changes."""
        return jnp.full_like(view.work_left_s, jnp.inf)


HALF = (Use(0.0, 0.0, 0.0), Use(1.0, 0.5, 0.5), Use(0.5, 0.0, 0.5))


@dataclass(frozen=True)
class OnDemandMixture(SteadyPolicy):
    """Half of the nodes on demand; where spot is lost the job goes on with them, at half the pace and the same batch."""

    name: str = "mixture"
    needs_spot: bool = True
    needs_on_demand: bool = True
    uses: tuple[Use, Use, Use] = field(default=HALF)

    def place(self, view: SpotView) -> Any:
        """Returns the place as `SpotPolicy` states."""
        return jnp.where(view.spot_up, SPOT, ON_DEMAND)


@dataclass(frozen=True)
class OnDemand(SteadyPolicy):
    """On demand from start to end."""

    name: str = "on_demand"
    needs_spot: bool = False
    needs_on_demand: bool = True
    uses: tuple[Use, Use, Use] = (Use(0.0, 0.0, 0.0), Use(1.0, 0.0, 1.0), Use(1.0, 0.0, 1.0))

    def place(self, view: SpotView) -> Any:
        """Returns the place as `SpotPolicy` states."""
        return jnp.full_like(view.place, ON_DEMAND)


@dataclass(frozen=True)
class Spot(SteadyPolicy):
    """Spot whenever there is some; else the job waits."""

    name: str = "spot"
    needs_spot: bool = True
    needs_on_demand: bool = False
    uses: tuple[Use, Use, Use] = (Use(0.0, 0.0, 0.0), Use(1.0, 1.0, 0.0), Use(0.0, 0.0, 0.0))

    def place(self, view: SpotView) -> Any:
        """Returns the place as `SpotPolicy` states."""
        return jnp.where(view.spot_up, SPOT, WAIT)


def _shipped() -> Iterable[SpotPolicy]:

    return (OnDemand(), Spot(), SpotWithFallback(), OnDemandMixture())


POLICIES: Registry[SpotPolicy] = Registry("policy", _shipped)
"""Policies that a search of the cloud may choose from."""

"""Policy: what decides where a job runs; View: what it may know; Use: what a place is in pace and nodes."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

WAIT, SPOT, ON_DEMAND = 0, 1, 2  # places


class View(NamedTuple):
    """What is known at a moment; arrays of one shape, seconds.

    Attributes:
        spot_up: whether all spot nodes are there.
        place: where the job is.
        time_left_s: until the deadline; infinite where there is none.
        work_left_s: that what is not saved takes on all nodes, checkpoints included.
        restart_s: from the decision to move to the first new step.
        at_risk_s: that a loss costs at most besides the restart: one interval with its checkpoint.
    """

    spot_up: Any
    place: Any
    time_left_s: Any
    work_left_s: Any
    restart_s: Any
    at_risk_s: Any


class Use(NamedTuple):
    """What a place is: pace of the job, over that on all nodes, and shares of the nodes that are paid for."""

    pace: float
    spot: float
    on_demand: float


class Policy(Protocol):
    """A rule by which a job moves. Written with `jax.numpy`; instances are hashable, since they are static in compiled code.

    Attributes:
        name: what reports call it.
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

    def place(self, view: View) -> Any:
        """Where the job is to be now: WAIT, SPOT or ON_DEMAND; SPOT only where `spot_up`."""
        ...

    def changes_in_s(self, view: View) -> Any:
        """Seconds until `place` would say otherwise though nothing has happened; infinite where it never would."""
        ...

"""State of the worlds of a job on nodes that come and go, and their step from one event to the next; JAX.

An event is the end of a piece of a path, a failure, the end of the job, or a moment at which the policy says otherwise though
nothing has happened. Between events a job runs at one pace, so that whole intervals are counted, not simulated. Time is
relative: seconds left of the piece and until the failure, seconds into the interval; single precision then suffices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, UInt32

from ...horizon.events.draws import uniform_pair
from ..policies.base import ON_DEMAND, SPOT, WAIT, Policy, View

SLACKENED_S = 1.0  # that a moment of change is passed by, so that rounding cannot stop the clock


class Figures(eqx.Module):
    """Numbers of a task that all worlds share, and [world] those that differ."""

    n_interval: Float[Any, ""]
    blocking_s: Float[Any, ""]
    restart_s: Float[Any, ""]
    first_s: Float[Any, ""]
    failures_s: Float[Any, ""]
    deadline_s: Float[Any, ""]
    interval_s: Float[Any, " world"]


class Pieces(eqx.Module):
    """Paths as lengths; [piece, world]."""

    length_s: Float[Any, "piece world"]
    usable: Bool[Any, "piece world"]
    price: Float[Any, "piece world"]


class State(eqx.Module):
    """Every leaf [world].

    Attributes:
        piece, left_s: which piece of the path, and seconds left of it.
        saved: intervals.
        into_s: of the running interval and its checkpoint, at the pace of all nodes.
        place: WAIT, SPOT or ON_DEMAND.
        restart_s: left until steps are done again.
        failure_s: seconds of use until the next failure.
        clock_s, spot_s, on_demand_s: wall time, time of all nodes on spot (weighted by the price of pieces) and on demand.
        n_lost: times that the job was interrupted.
        active: not done.
    """

    piece: Int[Array, " world"]
    left_s: Float[Array, " world"]
    saved: Float[Array, " world"]
    into_s: Float[Array, " world"]
    place: Int[Array, " world"]
    restart_s: Float[Array, " world"]
    failure_s: Float[Array, " world"]
    clock_s: Float[Array, " world"]
    spot_s: Float[Array, " world"]
    on_demand_s: Float[Array, " world"]
    n_lost: Float[Array, " world"]
    active: Bool[Array, " world"]


class Here(NamedTuple):
    """What a world sees of its path at a moment."""

    up: Array
    price: Array


@dataclass(frozen=True)
class Turn:
    """One step of all worlds."""

    policy: Policy
    figures: Figures
    pieces: Pieces
    key: UInt32[Array, "2"]
    index: UInt32[Array, " world"]

    def start(self) -> State:
        """Before anything is rented."""
        zero = jnp.zeros_like(self.figures.interval_s)
        count = jnp.zeros(zero.shape, jnp.int32)
        life_s = self._life(jnp.zeros((), jnp.uint32))
        first_s = self.pieces.length_s[0]
        return State(count, first_s, zero, zero, count, zero, life_s, zero, zero, zero, zero, zero == 0.0)

    def next_event(self, state: State, turn: UInt32[Array, ""]) -> State:
        """Every active world after its next event."""
        here = self._here(state)
        moved = self._moved(state, here)
        view = self._view(moved, here)
        pace, spot, on_demand = (self._of_place(moved.place, k) for k in range(3))
        runs = moved.place != WAIT
        cycle_s = self.figures.interval_s + self.figures.blocking_s
        todo_s = (self.figures.n_interval - moved.saved) * cycle_s - moved.into_s
        finish_s = jnp.where(pace > 0.0, moved.restart_s + todo_s / jnp.where(pace > 0.0, pace, 1.0), jnp.inf)
        failure_s = jnp.where(runs, moved.failure_s, jnp.inf)
        change_s = self.policy.changes_in_s(view) + SLACKENED_S
        step_s = jnp.minimum(jnp.minimum(moved.left_s, finish_s), jnp.minimum(failure_s, change_s))
        stuck = jnp.isinf(step_s)
        step_s = jnp.where(stuck, 0.0, step_s)
        finished, failed = finish_s <= step_s, (failure_s <= step_s) & (finish_s > step_s)
        worked_s = jnp.maximum(step_s - moved.restart_s, 0.0) * pace
        cycles = jnp.where(runs, jnp.floor((moved.into_s + worked_s) / cycle_s), 0.0)
        into_s = jnp.maximum(moved.into_s + worked_s - cycles * cycle_s, 0.0)
        life_s = jnp.where(failed, self._life(turn), jnp.where(runs, moved.failure_s - step_s, moved.failure_s))
        ends = moved.left_s <= step_s
        piece = jnp.where(ends, jnp.minimum(moved.piece + 1, len(self.pieces.length_s) - 1), moved.piece)
        left_s = jnp.where(ends, self._at(self.pieces.length_s, piece), moved.left_s - step_s)
        after = State(
            piece=piece,
            left_s=jnp.where(ends & (piece == moved.piece), jnp.inf, left_s),
            saved=moved.saved + cycles,
            into_s=jnp.where(failed, 0.0, into_s),
            place=moved.place,
            restart_s=jnp.where(failed, self.figures.restart_s, jnp.maximum(moved.restart_s - step_s, 0.0)),
            failure_s=life_s,
            clock_s=moved.clock_s + jnp.where(stuck, jnp.inf, step_s),
            spot_s=moved.spot_s + step_s * spot * here.price,
            on_demand_s=moved.on_demand_s + step_s * on_demand,
            n_lost=moved.n_lost + failed.astype(step_s.dtype),
            active=~(finished | stuck),
        )
        return _where(state.active, after, state)

    def _moved(self, state: State, here: Here) -> State:
        """Where the policy wants the job; a loss destroys the running interval, a move costs a checkpoint more."""
        lost = (state.place == SPOT) & ~here.up
        into_s = jnp.where(lost, 0.0, state.into_s)
        asked = replace(state, into_s=into_s, place=jnp.where(lost, WAIT, state.place))
        place = self.policy.place(self._view(asked, here)).astype(jnp.int32)
        moves = (place != state.place) | lost
        begins = (state.clock_s == 0.0) & (state.n_lost == 0.0)
        start_s = jnp.where(begins, self.figures.first_s, self.figures.restart_s)
        restart_s = jnp.where(place == WAIT, 0.0, start_s)
        leaves = ~lost & (state.place != WAIT) & (state.restart_s <= 0.0)
        restart_s = restart_s + jnp.where(leaves, self.figures.blocking_s, 0.0)
        return replace(
            asked,
            place=place,
            restart_s=jnp.where(moves, restart_s, state.restart_s),
            n_lost=state.n_lost + lost.astype(into_s.dtype),
        )

    def _view(self, state: State, here: Here) -> View:
        own = self.figures
        cycle_s = own.interval_s + own.blocking_s
        left_s = (own.n_interval - state.saved) * cycle_s - state.into_s
        return View(
            spot_up=here.up,
            place=state.place,
            time_left_s=own.deadline_s - state.clock_s,
            work_left_s=left_s,
            restart_s=jnp.broadcast_to(own.restart_s, left_s.shape),
            at_risk_s=cycle_s,
        )

    def _here(self, state: State) -> Here:
        return Here(self._at(self.pieces.usable, state.piece), self._at(self.pieces.price, state.piece))

    def _at(self, values: Array, piece: Array) -> Array:
        return jnp.take_along_axis(values, piece[None], axis=0)[0]

    def _of_place(self, place: Array, k: int) -> Array:
        uses = self.policy.uses
        on_demand = jnp.where(place == ON_DEMAND, uses[ON_DEMAND][k], uses[WAIT][k])
        return jnp.where(place == SPOT, uses[SPOT][k], on_demand)

    def _life(self, turn: UInt32[Array, ""]) -> Array:
        u, _ = uniform_pair(self.key, "cloud failure", self.index, turn)
        rate = self.figures.failures_s
        return jnp.where(rate > 0.0, -jnp.log(u) / jnp.where(rate > 0.0, rate, 1.0), jnp.inf)


def _where(active: Array, after: State, before: State) -> State:
    leaves = {name: jnp.where(active, getattr(after, name), getattr(before, name)) for name in State.__annotations__}
    return State(**leaves)

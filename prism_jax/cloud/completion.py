"""Simulates a task under a policy on nodes that come and go: when it is done, and how long nodes were paid by spot and on demand.

A task is intervals of work, each followed by a checkpoint, and what a restart takes. An event is the end of a piece of a path, a
failure, the end of the job, or a moment at which the policy says otherwise though nothing has happened. Between events a job runs
at one pace, so that whole intervals are counted, not simulated. Time is relative: seconds left of the piece and until the
failure, seconds into the interval; single precision then suffices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int, UInt32

from ..core.arrays import Floats
from ..core.errors import Problem, SpecError
from ..graph.draws import key_words
from ..horizon.run import best_interval, expected_time
from ..horizon.worlds import uniform_pair
from .policies import ON_DEMAND, SPOT, WAIT, SpotPolicy, SpotView
from .spot import Paths

MOST_INTERVALS = 10_000_000
SELDOM_S = 6 * 3600.0  # between checkpoints where nothing is said of failures: nobody leaves them out


@dataclass(frozen=True)
class SpotTask:
    """A job on a number of nodes.

    Attributes:
        work_s: of all steps on all nodes.
        n_interval: number of intervals of the work, all of one length.
        blocking_s: training pause for the checkpoint behind every interval.
        restart_s: from available nodes to the first new step: start of the machines, load of the checkpoint.
        failures_s: interruptions per second by hardware and software, whatever the nodes are paid by.
        first_s: the first start, where it is not a restart; None: it is. 0: the job runs already.

    Raises:
        SpecError: a figure is out of range.
    """

    work_s: float
    n_interval: int
    blocking_s: float = 0.0
    restart_s: float = 0.0
    failures_s: float = 0.0
    first_s: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.work_s < 1e12:
            raise SpecError.of(Problem("work_s", f"{self.work_s:g}, but it must be above 0 and below 1e12"))
        if not 1 <= self.n_interval <= MOST_INTERVALS:
            raise SpecError.of(Problem("n_interval", f"{self.n_interval:,}, but it must be 1 to {MOST_INTERVALS:,}"))
        for field in ("blocking_s", "restart_s", "failures_s"):
            if not 0.0 <= getattr(self, field) < 1e10:
                text = f"{getattr(self, field):g}, but it must be at least 0 and below 1e10"
                raise SpecError.of(Problem(field, text))

    @classmethod
    def cut(
        cls,
        work_s: float,
        interval_s: float | None,
        blocking_s: float,
        restart_s: float,
        failures_s: float,
        losses_s: float = 0.0,
    ) -> SpotTask:
        """Cuts the work into intervals of about that many seconds; None: the best for `failures_s` and `losses_s` together."""
        if interval_s is None:
            interval_s = min(float(best_interval(blocking_s, failures_s + losses_s)), SELDOM_S)
        wanted = max(interval_s, blocking_s, 1e-3 * work_s / MOST_INTERVALS)
        return cls(work_s, int(min(max(ceil(work_s / wanted), 1), MOST_INTERVALS)), blocking_s, restart_s, failures_s)

    @property
    def interval_s(self) -> float:
        """Seconds of work between checkpoints."""
        return self.work_s / self.n_interval

    @property
    def cycle_s(self) -> float:
        """Seconds of an interval with its checkpoint."""
        return self.interval_s + self.blocking_s

    def expected_s(self, losses_s: float = 0.0, down_s: float = 0.0) -> float:
        """Expected wall time by the exact renewal form, the first start included.

        Args:
            losses_s: losses of nodes per second, at a constant rate.
            down_s: mean seconds until nodes are to be had again; hardware is replaced at once.
        """
        rate = self.failures_s + losses_s
        waited_s = down_s * losses_s / rate if rate > 0.0 else 0.0
        rest_s = expected_time(self.work_s, self.interval_s, self.blocking_s, self.restart_s, rate, waited_s)
        return float(rest_s) + self._first_start_s(rate, waited_s)

    def _first_start_s(self, rate: float, waited_s: float) -> float:
        """Restarts until one is not interrupted."""
        first_s = self.restart_s if self.first_s is None else self.first_s
        if rate == 0.0 or first_s == 0.0:
            return first_s
        return float(expected_time(first_s, first_s, 0.0, 0.0, rate, waited_s))


SLACKENED_S = 1.0  # that a moment of change is passed by, so that rounding cannot stop the clock


class CompletionFigures(eqx.Module):
    """Numbers of a task that all worlds share, and [world] those that differ."""

    n_interval: Float[Any, ""]
    blocking_s: Float[Any, ""]
    restart_s: Float[Any, ""]
    first_s: Float[Any, ""]
    failures_s: Float[Any, ""]
    deadline_s: Float[Any, ""]
    interval_s: Float[Any, " world"]


class PathPieces(eqx.Module):
    """Paths as lengths; [piece, world]."""

    length_s: Float[Any, "piece world"]
    usable: Bool[Any, "piece world"]
    price: Float[Any, "piece world"]


class SpotState(eqx.Module):
    """State of all worlds; every leaf is [world].

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
    """State of a world's path at a moment."""

    up: Array
    price: Array


@dataclass(frozen=True)
class SpotTurn:
    """One simulated step of all worlds."""

    policy: SpotPolicy
    figures: CompletionFigures
    pieces: PathPieces
    key: UInt32[Array, "2"]
    index: UInt32[Array, " world"]

    def start(self) -> SpotState:
        """Returns the state before anything is rented."""
        zero = jnp.zeros_like(self.figures.interval_s)
        count = jnp.zeros(zero.shape, jnp.int32)
        life_s = self._life(jnp.zeros((), jnp.uint32))
        first_s = self.pieces.length_s[0]
        return SpotState(count, first_s, zero, zero, count, zero, life_s, zero, zero, zero, zero, zero == 0.0)

    def next_event(self, state: SpotState, turn: UInt32[Array, ""]) -> SpotState:
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
        after = SpotState(
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

    def _moved(self, state: SpotState, here: Here) -> SpotState:
        """Moves the job to the place that the policy wants; a loss destroys the running interval, a move costs a checkpoint
        more.
        """
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

    def _view(self, state: SpotState, here: Here) -> SpotView:
        own = self.figures
        cycle_s = own.interval_s + own.blocking_s
        left_s = (own.n_interval - state.saved) * cycle_s - state.into_s
        return SpotView(
            spot_up=here.up,
            place=state.place,
            time_left_s=own.deadline_s - state.clock_s,
            work_left_s=left_s,
            restart_s=jnp.broadcast_to(own.restart_s, left_s.shape),
            at_risk_s=cycle_s,
        )

    def _here(self, state: SpotState) -> Here:
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


def _where(active: Array, after: SpotState, before: SpotState) -> SpotState:
    leaves = {
        name: jnp.where(active, getattr(after, name), getattr(before, name)) for name in SpotState.__annotations__
    }
    return SpotState(**leaves)


MOST_TURNS = 200_000  # events of a world
MOST_WORLDS = 2500  # that run together: their pieces take 25 MB, and none waits for the longest of all
FEWEST_PIECES = 64  # of paths that are more than one piece
MOST_EVENTS = 5_000  # failures of a world on average; more is no job


@dataclass(frozen=True)
class Ran:
    """Times and interruptions of the simulated worlds; [world].

    Attributes:
        time_s: wall time; infinite where the job is never done.
        spot_s: time of all nodes on spot, weighted by the price of each piece.
        on_demand_s: time of all nodes on demand.
        n_lost: interruptions.
    """

    time_s: Floats
    spot_s: Floats
    on_demand_s: Floats
    n_lost: Floats

    def cost_usd(self, on_demand_usd_per_h: float, spot_usd_per_h: float) -> Floats:
        """Money [world] at prices of all nodes together; a price that is not paid may be NaN."""
        spot = np.where(self.spot_s > 0.0, self.spot_s * spot_usd_per_h, 0.0)
        on_demand = np.where(self.on_demand_s > 0.0, self.on_demand_s * on_demand_usd_per_h, 0.0)
        return (spot + on_demand) / 3600.0


def simulate(
    task: SpotTask,
    paths: Paths,
    policy: SpotPolicy,
    factors: Floats,
    deadline_s: float = np.inf,
    *,
    key: Array,
) -> Ran:
    """Runs every world to its end.

    Args:
        paths: of the spot nodes; a world of them is a world of the answer.
        factors: [world] on the time of every step: what is not known of it.
        deadline_s: known to the policy; infinite: none.
        key: typed PRNG key; the same key gives the same failures whatever the policy.

    Raises:
        SpecError: the job is interrupted so often that it makes no progress.
    """
    if task.failures_s * task.expected_s() > MOST_EVENTS:
        raise SpecError(
            f"the job hardly makes progress: a failure every {1.0 / task.failures_s:,.4g} s. Check the reliability, or shorten "
            "the interval between checkpoints."
        )
    real = jnp.result_type(float)
    first_s = task.restart_s if task.first_s is None else task.first_s
    numbers = (task.n_interval, task.blocking_s, task.restart_s, first_s, task.failures_s)
    names = ("n_interval", "blocking_s", "restart_s", "first_s", "failures_s", "deadline_s")
    shared = {name: np.asarray(value, real) for name, value in zip(names, (*numbers, deadline_s), strict=True)}
    interval_s, program, words = np.asarray(task.interval_s * factors, real), _program(policy), key_words(key)
    n_chunk = -(-paths.n_worlds // MOST_WORLDS)
    width = -(-paths.n_worlds // n_chunk)
    found = np.empty((4, paths.n_worlds))
    for start in np.minimum(np.arange(n_chunk) * width, paths.n_worlds - width):  # one shape: the last two may overlap
        own = slice(start, start + width)
        figures = CompletionFigures(**shared, interval_s=interval_s[own])
        found[:, own] = program(figures, _pieces(paths, own), words, np.arange(start, start + width, dtype=np.uint32))
    return Ran(*found)


def _pieces(paths: Paths, own: slice) -> PathPieces:
    """Returns some worlds padded to a power of four by pieces of no length in the last state, so that few shapes are compiled."""
    until_s, n, real = paths.until_s[:, own], 1, jnp.result_type(float)
    n_own = len(until_s)
    while n < n_own:
        n = max(4 * n, FEWEST_PIECES)
    pieces = PathPieces(*(np.zeros((n, until_s.shape[1]), kind) for kind in (real, bool, real)))
    pieces.length_s[:n_own] = np.diff(until_s, axis=0, prepend=0.0)
    pieces.usable[:n_own] = paths.n_up[:, own] >= paths.n_nodes
    pieces.price[:n_own] = paths.price[:, own]
    for state in (pieces.usable, pieces.price):
        state[n_own:] = state[n_own - 1]
    return pieces


@lru_cache(maxsize=64)
def _program(policy: SpotPolicy) -> Any:
    """One compiled loop per policy and shape."""

    def run(figures: CompletionFigures, pieces: PathPieces, key: Array, index: Array) -> tuple[Array, ...]:
        turn = SpotTurn(policy, figures, pieces, key, index)

        def goes_on(carry: tuple[Any, Array]) -> Array:
            return carry[0].active.any() & (carry[1] < MOST_TURNS)

        def step(carry: tuple[Any, Array]) -> tuple[Any, Array]:
            return turn.next_event(*carry), carry[1] + jnp.uint32(1)

        state, _ = lax.while_loop(goes_on, step, (turn.start(), jnp.uint32(1)))
        time_s = jnp.where(state.active, jnp.inf, state.clock_s)
        return time_s, state.spot_s, state.on_demand_s, state.n_lost

    return jax.jit(run)

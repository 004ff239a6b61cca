"""Where every world stands, and what a stretch of time between two events does to it."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array
from jax.tree_util import register_dataclass
from jaxtyping import Bool, Float, Int

from .worlds import Worlds


@register_dataclass
@dataclass(frozen=True)
class Losses:
    """Seconds [world] spent on what is no step: they and the time of the steps that are kept make up the clock.

    Attributes:
        detection_s: until interruptions were noticed.
        waiting_s: for nodes to come back from repair.
        rework_s: steps, and parts of checkpoints, that were done and lost.
        restart_s: restarts, loads and warm-up.
        slow_s: that kept steps took longer in slow phases, or on fewer nodes.
    """

    detection_s: Float[Array, " world"]
    waiting_s: Float[Array, " world"]
    rework_s: Float[Array, " world"]
    restart_s: Float[Array, " world"]
    slow_s: Float[Array, " world"]


@register_dataclass
@dataclass(frozen=True)
class State:
    """Times are left over, not dates, so that single precision does.

    Attributes:
        done: intervals whose checkpoint is made.
        work_s, stop_s, slow_s: of the current interval: work without slow phases, wait for its checkpoint and planned stops,
            and what slow phases have added.
        last_slow_s: what slow phases added to the interval before.
        kept_s: since the last checkpoint of this life; infinite if there is none.
        restart_left_s, life_left_s: until the first new step, and until the next interruption, of this `cause`.
        repair_s, group: until each group of nodes is back, and its size; [slot, world].
        onset_s, phase_s, slowdown: per kind of slow phase: until the next begins, until the present one ends; [slow, world].
        shrink: slowdown by missing nodes.
        clock_s, n_failure, active: wall time; interruptions; whether the job goes on.
    """

    done: Int[Array, " world"]
    work_s: Float[Array, " world"]
    stop_s: Float[Array, " world"]
    slow_s: Float[Array, " world"]
    last_slow_s: Float[Array, " world"]
    kept_s: Float[Array, " world"]
    restart_left_s: Float[Array, " world"]
    life_left_s: Float[Array, " world"]
    cause: Int[Array, " world"]
    repair_s: Float[Array, "slot world"]
    group: Float[Array, "slot world"]
    onset_s: Float[Array, "slow world"]
    phase_s: Float[Array, "slow world"]
    slowdown: Float[Array, "slow world"]
    shrink: Float[Array, " world"]
    clock_s: Float[Array, " world"]
    n_failure: Int[Array, " world"]
    active: Bool[Array, " world"]
    lost: Losses

    @property
    def pace(self) -> Float[Array, " world"]:
        """Slowdown now: of the slowest member, since steps are synchronous, and of nodes that are missing."""
        worst = jnp.where(self.phase_s > 0.0, self.slowdown, 1.0).max(axis=0, initial=1.0)
        return worst * self.shrink

    @property
    def n_down(self) -> Float[Array, " world"]:
        """Nodes in repair."""
        return jnp.where(self.repair_s > 0.0, self.group, 0.0).sum(axis=0)


def before_first(worlds: Worlds, done: Int[Array, " world"]) -> Float[Array, " world"]:
    """Where an interval starts: at zero, but the first as if what it lacks were done."""
    return jnp.where(done == 0, worlds.interval_s - worlds.first_s, 0.0)


@dataclass(frozen=True)
class Ahead:
    """Seconds of a cycle (interval, checkpoint, planned stops) at the present pace, of the rest of this one, and of all."""

    cycle_s: Float[Array, " world"]
    rest_s: Float[Array, " world"]
    all_s: Float[Array, " world"]


def ahead(worlds: Worlds, state: State) -> Ahead:
    """What is left to be done, without interruptions."""
    stop_s, pace = worlds.checkpoint_s + worlds.planned_s, state.pace
    cycle_s = worlds.interval_s * pace + stop_s
    rest_s = (worlds.interval_s - state.work_s) * pace + stop_s - state.stop_s
    more = (worlds.n_interval - state.done - 1).astype(cycle_s.dtype)
    return Ahead(cycle_s, rest_s, state.restart_left_s + rest_s + more * cycle_s)


@dataclass(frozen=True)
class Progress:
    """What a world has done after a stretch of running."""

    done: Int[Array, " world"]
    work_s: Float[Array, " world"]
    stop_s: Float[Array, " world"]
    slow_s: Float[Array, " world"]
    last_slow_s: Float[Array, " world"]
    kept_s: Float[Array, " world"]
    kept_slow_s: Float[Array, " world"]


def run_on(
    worlds: Worlds, state: State, run_s: Float[Array, " world"], plan: Ahead, finished: Bool[Array, " world"]
) -> Progress:
    """Steps and checkpoints of `run_s` seconds at the present pace; all that is left where the job is `finished`."""
    extra = state.pace - 1.0
    completes = finished | (run_s >= plan.rest_s)
    beyond_s = jnp.where(completes, run_s - plan.rest_s, 0.0)
    more = jnp.maximum(jnp.floor(beyond_s / plan.cycle_s), 0.0)
    n_new = jnp.where(completes, 1 + more.astype(jnp.int32), 0)
    n_new = jnp.where(finished, worlds.n_interval - state.done, n_new)
    more = jnp.maximum(n_new - 1, 0).astype(run_s.dtype)
    left_s = jnp.where(completes, jnp.clip(beyond_s - more * plan.cycle_s, 0.0, plan.cycle_s), run_s)
    left_s = jnp.where(finished, 0.0, left_s)
    work_s, stop_s = (jnp.where(completes, 0.0, x) for x in (state.work_s, state.stop_s))
    new_work_s = jnp.minimum(left_s, (worlds.interval_s - work_s) * state.pace) / state.pace
    this_slow_s = state.slow_s + (worlds.interval_s - state.work_s) * extra
    whole_slow_s = worlds.interval_s * extra
    return Progress(
        done=state.done + n_new,
        work_s=work_s + new_work_s,
        stop_s=stop_s + left_s - new_work_s * state.pace,
        slow_s=jnp.where(completes, 0.0, state.slow_s) + new_work_s * extra,
        last_slow_s=jnp.where(completes, jnp.where(more > 0.0, whole_slow_s, this_slow_s), state.last_slow_s),
        kept_s=jnp.where(completes, left_s, state.kept_s + run_s),
        kept_slow_s=jnp.where(completes, this_slow_s + more * whole_slow_s, 0.0),
    )

"""Takes every world through one turn of the loop: to its next event, through what the stretch of time before it does, and on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax.numpy as jnp
from jax import Array
from jax.tree_util import register_dataclass
from jaxtyping import Bool, Float, Int, UInt32

from .worlds import ProgramKey, RunConstants, RunDraws, next_failure, next_onset, of_cause, repair_time, slow_phase


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
class RunState:
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


def before_first(worlds: RunDraws, done: Int[Array, " world"]) -> Float[Array, " world"]:
    """Work done where an interval starts: zero, but in the first as if what it lacks were done."""
    return jnp.where(done == 0, worlds.interval_s - worlds.first_s, 0.0)


@dataclass(frozen=True)
class Ahead:
    """Seconds of a cycle (interval, checkpoint, planned stops) at the present pace, of the rest of this one, and of all."""

    cycle_s: Float[Array, " world"]
    rest_s: Float[Array, " world"]
    all_s: Float[Array, " world"]


def ahead(worlds: RunDraws, state: RunState) -> Ahead:
    """Work and time that remain, without interruptions."""
    stop_s, pace = worlds.checkpoint_s + worlds.planned_s, state.pace
    cycle_s = worlds.interval_s * pace + stop_s
    rest_s = (worlds.interval_s - state.work_s) * pace + stop_s - state.stop_s
    more = (worlds.n_interval - state.done - 1).astype(cycle_s.dtype)
    return Ahead(cycle_s, rest_s, state.restart_left_s + rest_s + more * cycle_s)


def run_on(
    worlds: RunDraws, state: RunState, run_s: Float[Array, " world"], plan: Ahead, finished: Bool[Array, " world"]
) -> tuple[RunState, Float[Array, " world"]]:
    """Steps and checkpoints of `run_s` seconds at the present pace; all that is left where the job is `finished`.

    Returns:
        the state with these done, and seconds that slow phases added to steps which are now kept.
    """
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
    after = replace(
        state,
        done=state.done + n_new,
        work_s=work_s + new_work_s,
        stop_s=stop_s + left_s - new_work_s * state.pace,
        slow_s=jnp.where(completes, 0.0, state.slow_s) + new_work_s * extra,
        last_slow_s=jnp.where(completes, jnp.where(more > 0.0, whole_slow_s, this_slow_s), state.last_slow_s),
        kept_s=jnp.where(completes, left_s, state.kept_s + run_s),
    )
    return after, jnp.where(completes, this_slow_s + more * whole_slow_s, 0.0)


@dataclass(frozen=True)
class RunRules:
    """The rules by which worlds go on.

    Attributes:
        key: words of the key.
        index: number of each world, for its random numbers.
    """

    setting: RunConstants
    shape: ProgramKey
    worlds: RunDraws
    key: UInt32[Array, "2"]
    index: UInt32[Array, " world"]

    def start(self) -> RunState:
        """Initial state."""
        worlds, shape = self.worlds, self.shape
        zero = jnp.zeros_like(worlds.interval_s)
        count = jnp.zeros_like(worlds.n_interval)
        none = jnp.zeros((shape.n_slot, zero.shape[0]), zero.dtype)
        slow = jnp.zeros((shape.n_slow, zero.shape[0]), zero.dtype)
        first = jnp.zeros((), jnp.uint32)
        life_s, cause = self._next_failure(first)
        return RunState(
            done=count,
            work_s=before_first(worlds, count),
            stop_s=zero,
            slow_s=zero,
            last_slow_s=zero,
            kept_s=jnp.full_like(zero, jnp.inf),
            restart_left_s=zero,
            life_left_s=life_s,
            cause=cause,
            repair_s=none,
            group=none,
            onset_s=jnp.stack([self._next_onset(i, first) for i in range(shape.n_slow)]) if shape.n_slow else slow,
            phase_s=slow,
            slowdown=slow + 1.0,
            shrink=zero + 1.0,
            clock_s=zero,
            n_failure=count,
            active=worlds.n_interval > 0,
            lost=Losses(zero, zero, zero, zero, zero),
        )

    def next_event(self, state: RunState, turn: UInt32[Array, ""]) -> RunState:
        """Every world after its next event, those that have ended included."""
        plan = ahead(self.worlds, state)
        waits = self._waits(state)
        running_s = jnp.minimum(state.life_left_s, plan.all_s)
        step_s = jnp.where(waits, jnp.inf, running_s)
        if self.shape.n_slow:
            phase = jnp.where(state.phase_s > 0.0, state.phase_s, jnp.inf)
            step_s = jnp.minimum(step_s, jnp.minimum(state.onset_s, phase).min(axis=0))
        if self.shape.n_slot:
            back_s = jnp.where(state.repair_s > 0.0, state.repair_s, jnp.inf).min(axis=0)
            step_s = jnp.where(waits, jnp.minimum(step_s, back_s), step_s)
        finished = ~waits & (plan.all_s <= step_s)
        failed = ~waits & ~finished & (state.life_left_s <= step_s)
        after = self._advanced(state, plan, step_s, waits, finished)
        after = self._after_failure(after, failed, turn)
        return self._with_slow_phases(after, turn) if self.shape.n_slow else after

    def _next_failure(self, turn: UInt32[Array, ""]) -> tuple[Array, Array]:
        threats = self.setting.threats
        return next_failure(self.worlds.scale_s, threats.shape, self.shape.n_constant, self.key, self.index, turn)

    def _next_onset(self, kind: int, turn: UInt32[Array, ""]) -> Float[Array, " world"]:
        return next_onset(self.setting.slow, kind, self.key, self.index, turn)

    def _waits(self, state: RunState) -> Bool[Array, " world"]:
        """Whether a world cannot start for want of nodes."""
        if self.shape.n_slot == 0 or self.shape.shrinks:
            return jnp.zeros_like(state.active)
        return state.n_down > self.setting.n_spare

    def _advanced(
        self,
        state: RunState,
        plan: Ahead,
        step_s: Float[Array, " world"],
        waits: Bool[Array, " world"],
        finished: Bool[Array, " world"],
    ) -> RunState:
        """State after `step_s` seconds of waiting or of running."""
        restart_s = jnp.where(waits, 0.0, jnp.minimum(state.restart_left_s, step_s))
        run_s = jnp.where(waits, 0.0, step_s - restart_s)
        after, kept_slow_s = run_on(self.worlds, state, run_s, plan, finished)
        lost = state.lost
        return replace(
            after,
            restart_left_s=state.restart_left_s - restart_s,
            life_left_s=jnp.where(waits, state.life_left_s, state.life_left_s - step_s),
            repair_s=jnp.maximum(state.repair_s - step_s[None], 0.0),
            onset_s=state.onset_s - step_s[None],
            phase_s=jnp.maximum(state.phase_s - step_s[None], 0.0),
            clock_s=state.clock_s + step_s,
            active=state.active & ~finished,
            lost=replace(
                lost,
                waiting_s=lost.waiting_s + jnp.where(waits, step_s, 0.0),
                restart_s=lost.restart_s + restart_s,
                slow_s=lost.slow_s + kept_slow_s,
            ),
        )

    def _after_failure(self, state: RunState, failed: Bool[Array, " world"], turn: UInt32[Array, ""]) -> RunState:
        """State after a failure, where `failed`: loses work since the last loadable checkpoint, repairs nodes, restarts."""
        worlds, threats = self.worlds, self.setting.threats
        undone = failed & (state.kept_s < worlds.background_s)
        again_s = jnp.where(state.done == 1, worlds.first_s, worlds.interval_s) + worlds.checkpoint_s + worlds.planned_s
        redo_s = jnp.where(undone, again_s + state.last_slow_s, 0.0)
        begun_s = state.work_s - before_first(worlds, state.done) + state.slow_s + state.stop_s
        done = state.done - undone.astype(state.done.dtype)
        noticed_s = jnp.where(failed, of_cause(threats.noticed_s, state.cause), 0.0)
        repair_s, group = self._taken_out(state, failed, noticed_s, turn)
        life_s, cause = self._next_failure(turn)
        lost = state.lost
        after = replace(
            state,
            done=done,
            work_s=jnp.where(failed, before_first(worlds, done), state.work_s),
            stop_s=jnp.where(failed, 0.0, state.stop_s),
            slow_s=jnp.where(failed, 0.0, state.slow_s),
            kept_s=jnp.where(failed, jnp.inf, state.kept_s),
            life_left_s=jnp.where(failed, life_s, state.life_left_s),
            cause=jnp.where(failed, cause, state.cause),
            repair_s=repair_s,
            group=group,
            onset_s=state.onset_s - noticed_s[None],
            phase_s=jnp.maximum(state.phase_s - noticed_s[None], 0.0),
            clock_s=state.clock_s + noticed_s,
            n_failure=state.n_failure + failed.astype(state.n_failure.dtype),
            lost=replace(
                lost,
                detection_s=lost.detection_s + noticed_s,
                rework_s=lost.rework_s + redo_s + jnp.where(failed, begun_s, 0.0),
                slow_s=lost.slow_s - jnp.where(undone, state.last_slow_s, 0.0),
            ),
        )
        return self._restarting(after, failed)

    def _restarting(self, state: RunState, failed: Bool[Array, " world"]) -> RunState:
        """The restart ahead: longer where nodes must be waited for; on fewer nodes where the job shrinks."""
        missing = (
            jnp.maximum(state.n_down - self.setting.n_spare, 0.0)
            if self.shape.n_slot
            else jnp.zeros_like(state.clock_s)
        )
        restart_s = jnp.where(missing > 0.0, self.worlds.restart_s, self.worlds.swap_s)
        after = replace(state, restart_left_s=jnp.where(failed, restart_s, state.restart_left_s))
        if not self.shape.shrinks:
            return after
        left = jnp.maximum(self.setting.n_node - missing, 1.0)
        return replace(after, shrink=jnp.where(failed, self.setting.n_node / left, state.shrink))

    def _taken_out(
        self, state: RunState, failed: Bool[Array, " world"], noticed_s: Float[Array, " world"], turn: UInt32[Array, ""]
    ) -> tuple[Array, Array]:
        """Groups of nodes in repair: the lost one takes the slot whose nodes are back, or are back first."""
        if self.shape.n_slot == 0:
            return state.repair_s, state.group
        threats = self.setting.threats
        nodes = jnp.where(failed, of_cause(threats.nodes_lost, state.cause), 0.0)
        own_s = repair_time(threats, state.cause, self.key, self.index, turn)
        left_s = jnp.maximum(state.repair_s - noticed_s[None], 0.0)
        slots = jnp.arange(self.shape.n_slot, dtype=jnp.int32)[:, None]
        takes = (slots == left_s.argmin(axis=0).astype(jnp.int32)[None]) & (nodes > 0.0)[None]
        repair_s = jnp.where(takes, jnp.maximum(own_s - noticed_s, 0.0)[None], left_s)
        return repair_s, jnp.where(takes, nodes[None], state.group)

    def _with_slow_phases(self, state: RunState, turn: UInt32[Array, ""]) -> RunState:
        """Phases that begin; those of a kind that overlap are one, as bad as the worst and as long as the last."""
        onset, phase, slowdown = [], [], []
        for kind in range(self.shape.n_slow):
            begins = state.onset_s[kind] <= 0.0
            factor, length_s = slow_phase(self.setting.slow, kind, self.key, self.index, turn)
            now = jnp.where(state.phase_s[kind] > 0.0, state.slowdown[kind], 1.0)
            onset.append(jnp.where(begins, self._next_onset(kind, turn), state.onset_s[kind]))
            phase.append(jnp.where(begins, jnp.maximum(state.phase_s[kind], length_s), state.phase_s[kind]))
            slowdown.append(jnp.where(begins, jnp.maximum(now, factor), state.slowdown[kind]))
        return replace(state, onset_s=jnp.stack(onset), phase_s=jnp.stack(phase), slowdown=jnp.stack(slowdown))

"""One turn of the loop: every world goes to its next event, and through it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, UInt32

from .draws import next_failure, next_onset, of_cause, repair_time, slow_phase
from .state import Ahead, Losses, State, ahead, before_first, run_on
from .worlds import Setting, Shape, Worlds


@dataclass(frozen=True)
class Turn:
    """The rules by which worlds go on.

    Attributes:
        key: words of the key.
        index: number of each world, for its random numbers.
    """

    setting: Setting
    shape: Shape
    worlds: Worlds
    key: UInt32[Array, "2"]
    index: UInt32[Array, " world"]

    def start(self) -> State:
        """Before the first step."""
        worlds, shape = self.worlds, self.shape
        zero = jnp.zeros_like(worlds.interval_s)
        count = jnp.zeros_like(worlds.n_interval)
        none = jnp.zeros((shape.n_slot, zero.shape[0]), zero.dtype)
        slow = jnp.zeros((shape.n_slow, zero.shape[0]), zero.dtype)
        first = jnp.zeros((), jnp.uint32)
        life_s, cause = self._next_failure(first)
        return State(
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

    def next_event(self, state: State, turn: UInt32[Array, ""]) -> State:
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

    def _waits(self, state: State) -> Bool[Array, " world"]:
        """Whether a world cannot start for want of nodes."""
        if self.shape.n_slot == 0 or self.shape.shrinks:
            return jnp.zeros_like(state.active)
        return state.n_down > self.setting.n_spare

    def _advanced(
        self,
        state: State,
        plan: Ahead,
        step_s: Float[Array, " world"],
        waits: Bool[Array, " world"],
        finished: Bool[Array, " world"],
    ) -> State:
        """After `step_s` seconds of waiting or of running."""
        restart_s = jnp.where(waits, 0.0, jnp.minimum(state.restart_left_s, step_s))
        run_s = jnp.where(waits, 0.0, step_s - restart_s)
        done = run_on(self.worlds, state, run_s, plan, finished)
        lost = state.lost
        return replace(
            state,
            done=done.done,
            work_s=done.work_s,
            stop_s=done.stop_s,
            slow_s=done.slow_s,
            last_slow_s=done.last_slow_s,
            kept_s=done.kept_s,
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
                slow_s=lost.slow_s + done.kept_slow_s,
            ),
        )

    def _after_failure(self, state: State, failed: Bool[Array, " world"], turn: UInt32[Array, ""]) -> State:
        """Where `failed`: work since the last checkpoint that can be loaded is lost, nodes go to repair, a restart begins."""
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

    def _restarting(self, state: State, failed: Bool[Array, " world"]) -> State:
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
        self, state: State, failed: Bool[Array, " world"], noticed_s: Float[Array, " world"], turn: UInt32[Array, ""]
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

    def _with_slow_phases(self, state: State, turn: UInt32[Array, ""]) -> State:
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

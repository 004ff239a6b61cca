"""Simulates a training run in many worlds, from event to event: interruptions, slow phases, nodes that come back, the end.

All worlds advance together, each to its own next event. A world in which little happens is done early and waits for the others;
the cost is that of the world with most events. Between two events a world runs at one pace, so that whole intervals are counted,
not simulated: a million steps cost what their interruptions cost.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Bool, Key, UInt32
from scipy.special import gamma

from ..core.arrays import Floats
from ..core.errors import SpecError
from ..graph.draws import key_words
from ..simulate.columns import compiler_options
from .events import Losses, RunRules, RunState
from .outcome import RunOutcome
from .reliability import HOUR_S, Hazard, n_down_law
from .run import TrainingRun
from .worlds import ProgramKey, RunConstants, RunDraws, SlowArrays, Threats

MOST_WORLDS = 8192  # of a chunk: its state stays in the second-level cache
MOST_TURNS = 1_000_000  # a world with more events than that is not going to end


@dataclass(frozen=True)
class Lost:
    """Times and losses of the simulated worlds; [world].

    Attributes:
        clock_s: wall time, summed up on its own; infinite where a world did not end.
        n_failure: interruptions.
        seconds: `Losses` by name, without what the kept intervals take.
    """

    clock_s: Floats
    n_failure: Floats
    seconds: dict[str, Floats]


def simulate(
    worlds: RunDraws, setting: RunConstants, shape: ProgramKey, key: Key[Array, ""], most_turns: int = MOST_TURNS
) -> Lost:
    """Runs every world to its end.

    Args:
        worlds: what differs between them; the last axis of every leaf is theirs.
        setting: what they share.
        shape: what decides which program is compiled.
        key: typed PRNG key; the same key gives the same worlds, however many run together.
        most_turns: events of a world, after which it counts as one that does not end.
    """
    n_world = worlds.interval_s.shape[0]
    n_device = len(jax.devices())
    n_chunk = n_device * -(-n_world // (n_device * MOST_WORLDS))
    width = -(-n_world // n_chunk)
    index = np.minimum(np.arange(n_chunk * width), n_world - 1).reshape(n_chunk, width)
    chunked = jax.tree.map(lambda leaf: _as_computed(np.moveaxis(np.asarray(leaf)[..., index], -2, 0)), worlds)
    shared = jax.tree.map(lambda leaf: _as_computed(np.asarray(leaf)), setting)
    program = _compiled(shape, n_device, jax.default_backend())
    found = program(shared, key_words(key), np.uint32(most_turns), chunked, index.astype(np.uint32))
    told = {name: np.asarray(leaf, float).ravel()[:n_world] for name, leaf in found.items()}
    clock_s = np.where(told.pop("active") > 0.0, np.inf, told.pop("clock_s"))
    return Lost(clock_s, told.pop("n_failure"), told)


def _as_computed(leaf: np.ndarray) -> np.ndarray:
    """Casts to the precision of the simulation, still in NumPy: on the device each shape would need a program of its own."""
    return leaf.astype(np.int32 if leaf.dtype.kind == "i" else jnp.result_type(float))


@lru_cache(maxsize=64)
def _compiled(shape: ProgramKey, n_device: int, backend: str) -> Any:
    """One program per shape: chunks one after the other, spread over the devices."""

    def run(setting: RunConstants, key: Array, most_turns: Array, worlds: RunDraws, index: Array) -> dict[str, Array]:
        return lax.map(lambda one: _one_chunk(setting, shape, key, most_turns, *one), (worlds, index))

    mesh = Mesh(np.array(jax.devices()[:n_device]), ("device",))
    split, whole = PartitionSpec("device"), PartitionSpec()
    specs = (whole, whole, whole, split, split)
    sharded = jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=split, check_vma=False)
    return jax.jit(sharded, compiler_options=compiler_options(backend))


def _one_chunk(
    setting: RunConstants,
    shape: ProgramKey,
    key: Array,
    most_turns: Array,
    worlds: RunDraws,
    index: UInt32[Array, " world"],
) -> dict[str, Array]:
    """Every world of a chunk to its end; what is told of it by name."""
    step = RunRules(setting, shape, worlds, key, index)

    def goes_on(carry: tuple[Array, RunState]) -> Bool[Array, ""]:
        return carry[1].active.any() & (carry[0] < most_turns)

    def turn(carry: tuple[Array, RunState]) -> tuple[Array, RunState]:
        number, state = carry
        after = step.next_event(state, number)
        frozen = jax.tree.map(lambda new, old: jnp.where(state.active, new, old), after, state)
        return number + jnp.uint32(1), frozen

    state = lax.while_loop(goes_on, turn, (jnp.uint32(1), step.start()))[1]
    told = {item.name: getattr(state.lost, item.name) for item in fields(Losses)}
    return told | {"clock_s": state.clock_s, "n_failure": state.n_failure, "active": state.active}


SLOTS = (2, 4, 8, 16, 32, 64, 128, 256)
MOST_EVENTS = 200_000  # of a world, on average
LEAST_SHARE = 1e-3  # of the time in kept steps; below, a job does not end in practice
RARELY = 1e-6  # that more groups are in repair than there are slots


def simulated_run(run: TrainingRun, *, key: Array, n_world: int = 10_000) -> RunOutcome:
    """The run in `n_world` worlds: each draws its rates, the level and the sum of its steps, and then its events.

    Raises:
        SpecError: the job makes no progress worth speaking of.
    """
    _check_progress(run)
    rng = np.random.default_rng(np.asarray(key_words(key)).tolist())
    hazards = _in_order(run)
    n_constant = sum(hazard.shape == 1.0 for hazard in hazards)
    score = rng.standard_normal((len(hazards), n_world))
    level = np.ones(n_world) if run.level is None else np.quantile(run.level, rng.random(n_world))
    work_s = run.steps.draws_s(run.n_steps, n_world, rng) * level
    rate_s = _rates(run, hazards)[:, None] * np.exp(np.array([[h.log_sd] for h in hazards]).reshape(-1, 1) * score)
    expected_s = run.expected_s(rate_s=rate_s.sum(axis=0), step_factor=work_s / (run.n_steps * run.steps.mean_s))
    _check_worlds(expected_s * rate_s.sum(axis=0), hazards)
    worlds = _worlds(run, hazards, rate_s, work_s)
    shape = ProgramKey(n_constant, len(run.reliability.slow_phases), _slots(run), run.recovery.policy == "shrink")
    found = simulate(worlds, _setting(run, hazards), shape, key)
    if not np.isfinite(found.clock_s).all():
        raise SpecError(_no_progress(run))
    n_interval = np.asarray(worlds.n_interval, float)
    useful_s = run.n_steps * run.steps.noise_free_s * level
    seconds = {
        "useful": useful_s,
        "stragglers": work_s - useful_s,
        "slow_phases": found.seconds["slow_s"],
        "checkpoint": n_interval * run.checkpoint.blocking_s,
        "failure": found.seconds["detection_s"] + found.seconds["waiting_s"],
        "rework": found.seconds["rework_s"],
        "restart": found.seconds["restart_s"],
        "planned_stops": n_interval * np.asarray(worlds.planned_s),
    }
    time_s = np.sum(list(seconds.values()), axis=0)
    return RunOutcome(time_s, seconds, found.seconds["waiting_s"], found.n_failure, found.clock_s, expected_s)


def _check_progress(run: TrainingRun) -> None:
    expected_s = run.expected_s()
    share = run.n_steps * run.steps.mean_s / expected_s
    if not share >= LEAST_SHARE or not expected_s * run.rate_s <= MOST_EVENTS:
        raise SpecError(_no_progress(run))
    onsets = sum(phase.rate_h(run.n_gpus, run.node_size) for phase in run.reliability.slow_phases)
    if not expected_s * onsets / HOUR_S <= MOST_EVENTS:
        text = f"slow phases begin {expected_s * onsets / HOUR_S:.2g} times; at most {MOST_EVENTS:,} are simulated"
        raise SpecError(f"{text}. Join frequent short phases into the variability of the step.")


def _check_worlds(n_events: Floats, hazards: list[Hazard]) -> None:
    """Refuses rates that are known so little that some worlds would never end."""
    without_end = ~(n_events <= MOST_EVENTS)
    if without_end.any():
        widest = max(hazards, key=lambda hazard: hazard.log_sd)
        raise SpecError(
            f"with the rates that are possible the job would be interrupted more than {MOST_EVENTS:,} times in "
            f"{without_end.mean():.1%} of worlds: {widest.cause} is known to a factor of {np.exp(widest.log_sd):.2g} (log_sd "
            f"{widest.log_sd:.2g}). State its rate more closely, or shorten the interval or the restart."
        )


def _no_progress(run: TrainingRun) -> str:
    cycle_s = run.interval_s + run.checkpoint.blocking_s + run.outage_s
    return (
        f"the job hardly makes progress: interruptions come every {1.0 / run.rate_s:,.4g} s on average, and restart, interval "
        f"and checkpoint take {cycle_s:,.4g} s; it would be interrupted {run.expected_s() * run.rate_s:.2g} times. Shorten the "
        "interval or the restart, or check the rates."
    )


def _in_order(run: TrainingRun) -> list[Hazard]:
    """Hazards that can strike, those of constant rate in front; one that never does where there is none."""
    found = [hazard for hazard in run.reliability.hazards if hazard.rate_h(run.n_gpus, run.node_size) > 0.0]
    return sorted(found, key=lambda hazard: hazard.shape != 1.0) or [Hazard("none")]


def _rates(run: TrainingRun, hazards: list[Hazard]) -> Floats:
    return np.array([hazard.rate_h(run.n_gpus, run.node_size) / HOUR_S for hazard in hazards])


def _worlds(run: TrainingRun, hazards: list[Hazard], rate_s: Floats, work_s: Floats) -> RunDraws:
    """Intervals are whole steps, the first of them what is left over."""
    n_interval = -(-run.n_steps // run.interval_steps)
    first = run.n_steps - (n_interval - 1) * run.interval_steps
    step_s = work_s / run.n_steps
    same = np.ones_like(work_s)
    warmup_s = run.recovery.warmup_s(1.0) * step_s + run.checkpoint.load_s
    mean_life = np.array([gamma(1.0 + 1.0 / hazard.shape) for hazard in hazards])[:, None]
    with np.errstate(divide="ignore"):
        scale_s = 1.0 / (rate_s * mean_life)
    return RunDraws(
        scale_s=scale_s,
        n_interval=np.full(len(work_s), n_interval),
        interval_s=run.interval_steps * step_s,
        first_s=first * step_s,
        checkpoint_s=run.checkpoint.blocking_s * same,
        planned_s=run.recovery.planned_share * run.n_steps / n_interval * step_s,
        background_s=run.checkpoint.background_s * same,
        restart_s=run.recovery.restart_s + warmup_s,
        swap_s=run.recovery.quickest_s() + warmup_s,
    )


def _setting(run: TrainingRun, hazards: list[Hazard]) -> RunConstants:
    phases = run.reliability.slow_phases

    def figures(items: object, name: str) -> Floats:
        return np.array([getattr(item, name) for item in items], float)  # type: ignore[attr-defined]

    names = ("shape", "noticed_s", "nodes_lost", "repair_s", "repair_log_sd")
    between_s = [HOUR_S / max(phase.rate_h(run.n_gpus, run.node_size), 1e-12) for phase in phases]
    slow = SlowArrays(
        np.array(between_s),
        figures(phases, "slowdown") - 1.0,
        *(figures(phases, name) for name in ("slowdown_log_sd", "duration_s", "duration_log_sd")),
    )
    threats = Threats(*(figures(hazards, name) for name in names))
    return RunConstants(threats, slow, np.array(float(run.n_node)), np.array(float(run.n_spare)))


def _slots(run: TrainingRun) -> int:
    """Groups of nodes that may be in repair at once, one more for the group that is being waited for."""
    law = n_down_law(run.reliability, run.n_gpus, run.node_size, run.n_spare)
    if len(law) == 1:
        return 0
    most = int(np.searchsorted(np.cumsum(law), 1.0 - RARELY)) + 2
    return next((slots for slots in SLOTS if slots >= most), SLOTS[-1])

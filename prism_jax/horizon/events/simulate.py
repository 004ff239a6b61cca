"""The loop over events: interruptions, onsets and ends of slow phases, nodes that come back, the end of the job.

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

from ..._typing import Floats
from ...graph.random import key_words
from ...simulate.columns import compiler_options
from .state import Losses, State
from .turn import Turn
from .worlds import Setting, Shape, Worlds

MOST_WORLDS = 8192  # of a chunk: its state stays in the second-level cache
MOST_TURNS = 1_000_000  # a world with more events than that is not going to end


@dataclass(frozen=True)
class Lost:
    """What became of the worlds; [world].

    Attributes:
        clock_s: wall time, summed up on its own; infinite where a world did not end.
        n_failure: interruptions.
        seconds: `Losses` by name, without what the kept intervals take.
    """

    clock_s: Floats
    n_failure: Floats
    seconds: dict[str, Floats]


def simulate(worlds: Worlds, setting: Setting, shape: Shape, key: Key[Array, ""], most_turns: int = MOST_TURNS) -> Lost:
    """Runs every world to its end.

    Args:
        worlds: what differs between them; the last axis of every leaf is theirs.
        setting: what they share.
        shape: what decides which program is compiled.
        key: typed PRNG key; the same key gives the same worlds, however many run beside them.
        most_turns: events of a world, after which it counts as one that does not end.
    """
    n_world = worlds.interval_s.shape[0]
    n_device = len(jax.devices())
    n_chunk = n_device * -(-n_world // (n_device * MOST_WORLDS))
    width = -(-n_world // n_chunk)
    index = np.minimum(np.arange(n_chunk * width), n_world - 1).reshape(n_chunk, width)
    chunked = jax.tree.map(lambda leaf: _on_device(np.moveaxis(np.asarray(leaf)[..., index], -2, 0)), worlds)
    shared = jax.tree.map(lambda leaf: _on_device(np.asarray(leaf)), setting)
    program = _compiled(shape, n_device, jax.default_backend())
    turns = jnp.asarray(most_turns, jnp.uint32)
    found = program(shared, key_words(key), turns, chunked, jnp.asarray(index, jnp.uint32))
    told = {name: np.asarray(leaf, float).ravel()[:n_world] for name, leaf in found.items()}
    clock_s = np.where(told.pop("active") > 0.0, np.inf, told.pop("clock_s"))
    return Lost(clock_s, told.pop("n_failure"), told)


def _on_device(leaf: np.ndarray) -> Array:
    return jnp.asarray(leaf, jnp.int32 if leaf.dtype.kind == "i" else jnp.result_type(float))


@lru_cache(maxsize=64)
def _compiled(shape: Shape, n_device: int, backend: str) -> Any:
    """One program per shape: chunks one after the other, spread over the devices."""

    def run(setting: Setting, key: Array, most_turns: Array, worlds: Worlds, index: Array) -> dict[str, Array]:
        return lax.map(lambda one: _one_chunk(setting, shape, key, most_turns, *one), (worlds, index))

    mesh = Mesh(np.array(jax.devices()[:n_device]), ("device",))
    split, whole = PartitionSpec("device"), PartitionSpec()
    specs = (whole, whole, whole, split, split)
    sharded = jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=split, check_vma=False)
    return jax.jit(sharded, compiler_options=compiler_options(backend))


def _one_chunk(
    setting: Setting, shape: Shape, key: Array, most_turns: Array, worlds: Worlds, index: UInt32[Array, " world"]
) -> dict[str, Array]:
    """Every world of a chunk to its end; what is told of it by name."""
    step = Turn(setting, shape, worlds, key, index)

    def goes_on(carry: tuple[Array, State]) -> Bool[Array, ""]:
        return carry[1].active.any() & (carry[0] < most_turns)

    def turn(carry: tuple[Array, State]) -> tuple[Array, State]:
        number, state = carry
        after = step.next_event(state, number)
        frozen = jax.tree.map(lambda new, old: jnp.where(state.active, new, old), after, state)
        return number + jnp.uint32(1), frozen

    state = lax.while_loop(goes_on, turn, (jnp.uint32(1), step.start()))[1]
    told = {item.name: getattr(state.lost, item.name) for item in fields(Losses)}
    return told | {"clock_s": state.clock_s, "n_failure": state.n_failure, "active": state.active}

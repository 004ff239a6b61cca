"""Makes the inputs of a simulation (the job cut into intervals, outages, what interrupts and slows it) and its random numbers.

Counters of the numbers are (world, turn of the loop), so that no draw depends on how worlds are spread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, UInt32

from ..graph.draws import threefry2x32


@dataclass(frozen=True)
class ProgramKey:
    """Settings that decide which program is compiled; the rest is numbers.

    Attributes:
        n_constant: threats of constant rate, which stand in front; the others age since the last start.
        n_slow: kinds of slow phases.
        n_slot: groups of nodes that can be in repair at once; 0: none ever is.
        shrinks: the job goes on with fewer nodes instead of waiting for some.
    """

    n_constant: int
    n_slow: int
    n_slot: int
    shrinks: bool = False


class Threats(eqx.Module):
    """Causes of interruptions; figures as in `reliability.Hazard`."""

    shape: Float[Any, " threat"]
    noticed_s: Float[Any, " threat"]
    nodes_lost: Float[Any, " threat"]
    repair_s: Float[Any, " threat"]
    repair_log_sd: Float[Any, " threat"]


class SlowArrays(eqx.Module):
    """Kinds of slow phases; figures as in `reliability.SlowPhase`, seconds between onsets."""

    between_s: Float[Any, " slow"]
    excess: Float[Any, " slow"]
    excess_log_sd: Float[Any, " slow"]
    duration_s: Float[Any, " slow"]
    duration_log_sd: Float[Any, " slow"]


class RunConstants(eqx.Module):
    """Constants that all worlds share.

    Attributes:
        n_node, n_spare: nodes of the job, and idle ones in addition.
    """

    threats: Threats
    slow: SlowArrays
    n_node: Float[Any, ""]
    n_spare: Float[Any, ""]


class RunDraws(eqx.Module):
    """Numbers that differ from world to world.

    Attributes:
        scale_s: of the Weibull law of the time from a start to each threat: the mean where its shape is one.
        n_interval: intervals of work, each followed by a checkpoint.
        interval_s, first_s: work of an interval without slow phases, and of the first, which holds what is left over.
        checkpoint_s: seconds that training pauses to write one.
        planned_s: of planned stops that fall on one interval.
        background_s: from the end of the wait until a checkpoint can be loaded; at most an interval.
        restart_s: from the start after an interruption to the first new step, in which the next one may strike.
        swap_s: as `restart_s`, where no node had to be waited for.
    """

    scale_s: Float[Any, "threat world"]
    n_interval: Int[Any, " world"]
    interval_s: Float[Any, " world"]
    first_s: Float[Any, " world"]
    checkpoint_s: Float[Any, " world"]
    planned_s: Float[Any, " world"]
    background_s: Float[Any, " world"]
    restart_s: Float[Any, " world"]
    swap_s: Float[Any, " world"]


_TWO_M24 = 2.0**-24


def uniform_pair(
    key: UInt32[Array, "2"], name: str, world: UInt32[Array, " world"], turn: UInt32[Array, ""]
) -> tuple[Float[Array, " world"], Float[Array, " world"]]:
    """Two uniforms in (0, 1) for each world, by the name of what they are for."""
    word = jnp.uint32(crc32(name.encode()))
    bits = threefry2x32(key[0] ^ word, key[1], world, jnp.broadcast_to(turn, world.shape))
    real = jnp.result_type(float)
    first, second = ((x >> jnp.uint32(8)).astype(real) * _TWO_M24 + 0.5 * _TWO_M24 for x in bits)
    return first, second


def normal_pair(
    key: UInt32[Array, "2"], name: str, world: UInt32[Array, " world"], turn: UInt32[Array, ""]
) -> tuple[Float[Array, " world"], Float[Array, " world"]]:
    """Two standard normals for each world (Box and Muller)."""
    u, v = uniform_pair(key, name, world, turn)
    radius, angle = jnp.sqrt(-2.0 * jnp.log(u)), 2.0 * jnp.pi * v
    return radius * jnp.cos(angle), radius * jnp.sin(angle)


def next_failure(
    scale_s: Float[Array, "threat world"],
    shape: Float[Array, " threat"],
    n_constant: int,
    key: UInt32[Array, "2"],
    world: UInt32[Array, " world"],
    turn: UInt32[Array, ""],
) -> tuple[Float[Array, " world"], Int[Array, " world"]]:
    """Seconds from a start to the next interruption, and its cause.

    Threats of constant rate, which stand in front, share one exponential, and a second draw tells whose it is; others have
    one each.
    """
    u, v = uniform_pair(key, "failure", world, turn)
    rates = 1.0 / scale_s[:n_constant]
    total = rates.sum(axis=0)
    time_s = jnp.where(total > 0.0, -jnp.log(u) / jnp.where(total > 0.0, total, 1.0), jnp.inf)
    cause = jnp.zeros_like(world, dtype=jnp.int32)
    below = jnp.zeros_like(total)
    for i in range(n_constant - 1):
        below = below + rates[i]
        cause = cause + (v * total > below).astype(jnp.int32)
    for i in range(n_constant, shape.shape[0]):
        w, _ = uniform_pair(key, f"failure {i}", world, turn)
        own_s = scale_s[i] * (-jnp.log(w)) ** (1.0 / shape[i])
        cause = jnp.where(own_s < time_s, jnp.int32(i), cause)
        time_s = jnp.minimum(time_s, own_s)
    return time_s, cause


def of_cause(values: Float[Array, " threat"], cause: Int[Array, " world"]) -> Float[Array, " world"]:
    """The value of each world's cause; a chain of selections, which vectorises where a gather does not."""
    found = jnp.zeros_like(cause, dtype=values.dtype)
    for i in range(values.shape[0]):
        found = jnp.where(cause == i, values[i], found)
    return found


def repair_time(
    threats: Threats,
    cause: Int[Array, " world"],
    key: UInt32[Array, "2"],
    world: UInt32[Array, " world"],
    turn: UInt32[Array, ""],
) -> Float[Array, " world"]:
    """Seconds until the nodes that an interruption took are back."""
    score, _ = normal_pair(key, "repair", world, turn)
    return of_cause(threats.repair_s, cause) * jnp.exp(of_cause(threats.repair_log_sd, cause) * score)


def slow_phase(
    slow: SlowArrays, kind: int, key: UInt32[Array, "2"], world: UInt32[Array, " world"], turn: UInt32[Array, ""]
) -> tuple[Float[Array, " world"], Float[Array, " world"]]:
    """Slowdown (1 or more) and seconds of a phase that begins."""
    first, second = normal_pair(key, f"slow phase {kind}", world, turn)
    slowdown = 1.0 + slow.excess[kind] * jnp.exp(slow.excess_log_sd[kind] * first)
    return slowdown, slow.duration_s[kind] * jnp.exp(slow.duration_log_sd[kind] * second)


def next_onset(
    slow: SlowArrays, kind: int, key: UInt32[Array, "2"], world: UInt32[Array, " world"], turn: UInt32[Array, ""]
) -> Float[Array, " world"]:
    """Seconds to the next onset of a kind of slow phase."""
    u, _ = uniform_pair(key, f"onset {kind}", world, turn)
    return -jnp.log(u) * slow.between_s[kind]

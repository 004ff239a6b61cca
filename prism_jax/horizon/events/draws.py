"""Random numbers of the worlds: counters are (world, turn of the loop), so that no draw depends on how worlds are spread."""

from __future__ import annotations

from zlib import crc32

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, UInt32

from ...graph.random import threefry2x32
from .worlds import SlowArrays, Threats

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

"""Traversal of a host program: when hosts and streams are free, as a pure jitted scan over calls, batched over ranks and draws.

    call        host = host + gap, then + call
    kernel      start = max(stream, host before the call + LAUNCH_S); stream = start + busy
    collective  start of its rank = max(both streams, host + LAUNCH_S); it ends busy after the start of the last rank, everywhere
    copy, wait  the host waits for that copy, or for all streams; a join makes both streams wait for each other

Source: the two-stream traversal of the universal multi-GPU performance model (arXiv 2404.12674, algorithm 1), with waits that its
traces show instead of those that its rules guess.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .program import Action, HostProgram

LAUNCH_S = (
    5e-6  # from a call to the start of its kernel on an idle stream: the floor that profiles of V100 and A100 show
)


class Traversal(NamedTuple):
    """Seconds on the clock of `HostProgram.start_s`.

    Attributes:
        end_s: [..., rank] end of the step: host and both streams are done.
        waited_s: [..., rank] in collectives for the last rank.
    """

    end_s: Float[Array, "*draw rank"]
    waited_s: Float[Array, "*draw rank"]

    @property
    def step_s(self) -> Float[Array, " *draw"]:
        """End of the last rank."""
        return self.end_s.max(axis=-1)


def traverse(
    program: HostProgram,
    busy_s: Float[ArrayLike, "*draw rank call"] | None = None,
    host_s: Float[ArrayLike, "*draw rank call"] | None = None,
) -> Traversal:
    """Runs a program once for every draw.

    Args:
        busy_s: drawn seconds of what is started; the program's own if not given.
        host_s: drawn seconds of the host before each call; the program's own if not given.
    """
    busy = jnp.asarray(program.busy_s if busy_s is None else busy_s)
    gap = jnp.asarray(program.gap_s if host_s is None else host_s)
    shape = jnp.broadcast_shapes(busy.shape, gap.shape)
    flat = [jnp.broadcast_to(each, shape).reshape(-1, *shape[-2:]) for each in (busy, gap)]
    end_s, waited_s = _traverse(
        jnp.asarray(program.action), jnp.asarray(program.stream), jnp.asarray(program.call_s),
        jnp.asarray(program.start_s), *flat,
    )  # fmt: skip
    return Traversal(end_s.reshape(shape[:-1]), waited_s.reshape(shape[:-1]))


@jax.jit
@partial(jax.vmap, in_axes=(None, None, None, None, 0, 0))
def _traverse(
    action: Array, stream: Array, call_s: Array, start_s: Array, busy_s: Array, gap_s: Array
) -> tuple[Array, Array]:
    def step(state: tuple[Array, Array, Array], column: tuple[Array, ...]) -> tuple[tuple[Array, Array, Array], None]:
        host, streams, waited = state
        kind, lane, gap, call, busy = column
        host = host + gap
        both = streams.max(axis=-1)
        is_collective = kind == Action.COLLECTIVE
        free = jnp.where(is_collective, both, jnp.take_along_axis(streams, lane[:, None], axis=-1)[:, 0])
        ready = jnp.maximum(free, host + LAUNCH_S)
        last = jnp.max(jnp.where(is_collective, ready, -jnp.inf))
        begin = jnp.where(is_collective, last, ready)
        end = begin + busy
        starts = (kind == Action.KERNEL) | (kind == Action.COPY) | is_collective
        own = (jnp.arange(2, dtype=lane.dtype)[None, :] == lane[:, None]) & starts[:, None]
        streams = jnp.where(own, end[:, None], streams)
        streams = jnp.where((kind == Action.JOIN)[:, None], both[:, None], streams)
        host = jnp.where(kind == Action.WAIT, jnp.maximum(host, both), host) + call
        host = jnp.where(kind == Action.COPY, jnp.maximum(host, end), host)
        return (host, streams, waited + jnp.where(is_collective, begin - ready, 0.0)), None

    first = (start_s, jnp.zeros((len(start_s), 2)) + start_s[:, None], jnp.zeros_like(start_s))
    columns = (action.T, stream.T, gap_s.T, call_s.T, busy_s.T)
    (host, streams, waited), _ = lax.scan(step, first, columns)
    return jnp.maximum(host, streams.max(axis=-1)), waited

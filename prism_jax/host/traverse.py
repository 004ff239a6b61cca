"""Traversal of a host program: when hosts and streams are free, as a pure jitted scan over calls, batched over ranks and draws.

    call        host = host + gap, then + call
    kernel      start = max(stream, host before the call + LAUNCH_S); stream = start + busy
    collective  start of its rank = max(its stream, communication, host + LAUNCH_S); it ends busy after the start of the last
    copy, wait  the host waits for that copy, for its stream, or for all streams
    join        its stream waits for communication

Source: the two-stream traversal of the universal multi-GPU performance model (arXiv 2404.12674, algorithm 1), with waits that its
traces show instead of those that its rules guess, and a third stream for copies and input that run at the same time as both.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .program import COMMUNICATION, N_STREAM, Action, HostProgram

LAUNCH_S = (
    5e-6  # from a call to the start of its kernel on an idle stream: the floor that profiles of V100 and A100 show
)


class Traversal(NamedTuple):
    """Seconds on the clock of `HostProgram.start_s`.

    Attributes:
        end_s: [..., rank] end of the step: host and streams are done.
        waited_s: [..., rank] in collectives for the last rank.
    """

    end_s: Float[Array, "*draw rank"]
    waited_s: Float[Array, "*draw rank"]

    @property
    def step_s(self) -> Float[Array, " *draw"]:
        """End of the last rank."""
        return self.end_s.max(axis=-1)


def traverse(program: HostProgram, busy_s: Float[ArrayLike, "*draw rank call"] | None = None) -> Traversal:
    """Runs a program once for every draw.

    Args:
        busy_s: drawn seconds of what is started; the program's own if not given.
    """
    drawn_s = jnp.asarray(program.busy_s if busy_s is None else busy_s)
    own = [jnp.asarray(getattr(program, name)) for name in ("action", "stream", "gap_s", "call_s", "start_s")]
    found = _traverse(*own, drawn_s.reshape(-1, *drawn_s.shape[-2:]))
    end_s, waited_s = (each.T.reshape(*drawn_s.shape[:-2], program.n_rank) for each in found)
    return Traversal(end_s, waited_s)


class _State(NamedTuple):
    """[rank, draw] when hosts and streams are free, and seconds in waiting."""

    host: Array
    streams: tuple[Array, ...]
    waited: Array


@jax.jit
def _traverse(
    action: Array, stream: Array, gap_s: Array, call_s: Array, start_s: Array, busy_s: Array
) -> tuple[Array, Array]:
    """[rank, draw] ends and waits; of the arguments [rank, call] only `busy_s` [draw, rank, call] is drawn."""
    start = jnp.broadcast_to(start_s[:, None], (len(start_s), len(busy_s))).astype(
        jnp.result_type(start_s, busy_s, gap_s)
    )
    first = _State(start, (start,) * N_STREAM, jnp.zeros_like(start))
    per_rank = (each.T[:, :, None] for each in (action, stream, gap_s, call_s))
    last, _ = lax.scan(_step, first, (*per_rank, busy_s.T))
    return jnp.maximum(last.host, _latest(last.streams)), last.waited


def _latest(streams: tuple[Array, ...]) -> Array:
    return reduce(jnp.maximum, streams)


def _step(state: _State, column: tuple[Array, ...]) -> tuple[_State, None]:
    """One call of every rank."""
    kind, lane, gap, call, busy = column
    host, streams = state.host + gap, state.streams
    mine = reduce(lambda found, i: jnp.where(lane == i, streams[i], found), range(1, N_STREAM), streams[0])
    both = jnp.maximum(mine, streams[COMMUNICATION])
    is_collective = kind == Action.COLLECTIVE
    ready = jnp.maximum(jnp.where(is_collective, both, mine), host + LAUNCH_S)
    last = jnp.max(jnp.where(is_collective, ready, -jnp.inf), axis=0)
    begin = jnp.where(is_collective, last, ready)
    end = begin + busy
    is_start = (kind == Action.KERNEL) | (kind == Action.COPY) | is_collective
    on = jnp.where(is_collective, COMMUNICATION, lane)
    is_join = kind == Action.JOIN
    awaited = jnp.where(kind == Action.WAIT, mine, jnp.where(kind == Action.WAIT_ALL, _latest(streams), host))
    host = jnp.maximum(host, awaited) + call
    host = jnp.where(kind == Action.COPY, jnp.maximum(host, end), host)
    streams = tuple(
        jnp.where(is_start & (on == i), end, jnp.where(is_join & (lane == i), both, each))
        for i, each in enumerate(streams)
    )
    return _State(host, streams, state.waited + jnp.where(is_collective, begin - ready, 0.0)), None

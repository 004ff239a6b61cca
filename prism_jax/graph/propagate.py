"""The max-plus engine: end times of every lane, as a pure jitted scan over levels; an op lasts as long as its slowest member.

At level t lane l starts when it is free and its predecessors' results have arrived, runs for its slowest member's compute plus
its exposed communication, and writes its end time into a ring buffer of the last few levels:

    start = max(end[t-1, l], max_d(end[dep_d] + lag_d))        end = start + max_members(compute) + communication

Columns (last axis) are independent random draws of one replica. The `score` axis carries several values of the network regime
at once: they share every random number, which costs next to nothing compared with making those numbers.

The end of the step is a sum of the seconds along one path, of what decided each start, and so is its derivative. Where one is
asked for, the scan keeps the deciders (a byte per op), the path is walked back, and the seconds of the ops and transfers on it,
in a few levels at once, are what JAX differentiates, forwards or backwards; nothing is kept of an op but its place. A path has
one op per level and column, so this costs less than the step. Random numbers are made again.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from ..core.arrays import Complex64, Float, Int, Int32, Integer, UInt32, Values, namespace
from ..core.kernels import NETWORK_AXES
from .draws import Either, ScoreChain, both, normal_pairs, traced_record, word_pairs
from .members import Members, OpNoise, PlaceNoise
from .step_graph import cell

HAND_OVER = NETWORK_AXES.index("pp")
PATH_CELLS = 1 << 12  # ops of paths that are differentiated at once: their numbers stay in the second-level cache


@traced_record
class GraphArrays:
    """A StepGraph on the device; the last part of `compute_s` is the one that does not vary between GPUs.

    Attributes:
        compute_s: [level, lane, part] noise-free seconds.
        call_sd: [level, lane] standard deviation over mean of one call's compute residual.
        comm_s: [level, lane, used] noise-free seconds.
        comm_sd: [level, lane] the same for communication.
        p2p_sd: [] the same for transfers between lanes.
        dep: [level, lane, dep] row of the ring buffer; the last row always holds zero ("no predecessor").
        lag_s: [level, lane, dep] point-to-point seconds.
        end_compute_s: [lane, part] seconds after the last op.
        end_comm_s: [lane] exposed seconds across replicas.
        n_used: [] levels to run, for graphs padded to a common shape; None to run them all.
        depth: levels the ring buffer holds.
        axes: network axis of every used axis of comm_s.
    """

    compute_s: Float[Either, "level lane part"]
    call_sd: Float[Either, "level lane"]
    comm_s: Float[Either, "level lane used"]
    comm_sd: Float[Either, "level lane"]
    p2p_sd: Float[Either, ""]
    dep: Int32[Either, "level lane dep"]
    lag_s: Float[Either, "level lane dep"]
    end_compute_s: Float[Either, "lane part"]
    end_comm_s: Float[Either, " lane"]
    n_used: Int32[Either, ""] | None
    depth: int = field(metadata={"static": True})
    axes: tuple[int, ...] = field(metadata={"static": True})


@traced_record
class CommFactors:
    """Factors of communication.

    Attributes:
        link: [axis, lane, column] factor of a group's links; the last two axes are p2p and the end of the step.
        regime: [score, axis] factor of the step's network regime.
        edge: [lane, column] least factor of the hand-over between a lane and the one before it, the last before the first; None
            where no link is known.
    """

    link: Float[Either, "axis lane column"]
    regime: Float[Either, "score axis"]
    edge: Float[Either, "lane column"] | None = None

    def handed(self, source: Int[Either, "*cell lane"]) -> Float[Either, "*any lane column"]:
        """Factor of a hand-over to each lane from the lane `source`, or a row of the ring buffer that holds its end."""
        if self.edge is None:
            return self.link[-2]
        xp, n_lane = namespace(source, self.edge), self.edge.shape[0]
        between = _edge(source, np.arange(n_lane, dtype=np.int32), n_lane)
        return xp.maximum(self.link[-2], xp.asarray(self.edge)[between])

    def handed_at(self, source: Int[Either, "*op"], lane: Int[Either, "*op"], column: Int[Either, " column"]) -> Values:
        """Factor of a hand-over from `source` of single ops on `lane`."""
        link = self.link[HAND_OVER][lane, column]
        if self.edge is None:
            return link
        return jnp.maximum(link, jnp.asarray(self.edge)[_edge(source, lane, len(self.edge)), column])

    def sent(self) -> Float[Either, "lane column"]:
        """Factor of blocking sends of a lane: that of the slower of its two hand-overs."""
        if self.edge is None:
            return self.link[-2]
        xp = namespace(self.edge)
        return xp.maximum(self.link[-2], xp.maximum(self.edge, xp.roll(self.edge, -1, axis=0)))


def _edge(source: Either, lane: Either, n_lane: int) -> Either:
    """Place in `CommFactors.edge` of a hand-over to `lane` from a row of the ring buffer."""
    xp, source = namespace(source, lane), source % n_lane
    return xp.where(abs(source - lane) == 1, xp.maximum(source, lane), 0)


@traced_record
class CallNoise:
    """Residuals from call to call; `None` chains mean no residual.

    Attributes:
        key_data: the two words of this chunk's key.
        compute: standardised residual (mean 0, sd 1) of an op's compute as a function of a normal score.
        comm: standardised residual of its communication.
        comm_key: of the draws of communication; None for `key_data`.
    """

    key_data: UInt32[Either, "2"]
    compute: ScoreChain | None
    comm: ScoreChain | None
    comm_key: UInt32[Either, "2"] | None = None


@traced_record
class WorkFactors:
    """Factors of the work of micro-batches; compute goes with it, communication and the end of the step do not.

    Attributes:
        excess: [factor_row, column] factor - 1.
        row, share: of every op, as `graph.build.WorkTerms` has them.
    """

    excess: Float[Either, "factor_row column"]
    row: Int32[Either, "level lane term"]
    share: Float[Either, "level lane term"]


def propagate(
    graph: GraphArrays,
    members: Members,
    network: CommFactors,
    noise: CallNoise | None,
    work: WorkFactors | None = None,
) -> Float[Either, "score column"]:
    """End of the step without the wait for other replicas, seconds; every micro-batch holds the mean of `work` if None.

    Notes: differentiable, forwards and backwards, in every real number; but not padded graphs.
    """
    if graph.n_used is not None:
        return lane_ends(graph, members, network, noise, work)[0].max(axis=0)
    return _step_end(graph, members, network, noise, work)


@jax.custom_jvp
def _step_end(*step: Any) -> Float[Array, "score column"]:
    return lane_ends(*step)[0].max(axis=0)


@functools.partial(_step_end.defjvp, symbolic_zeros=True)
def _along_path(step: tuple[Any, ...], change: tuple[Any, ...]) -> tuple[Array, Array]:
    """The end, and its change as that of the seconds on the path that decided it."""
    end_s, by = lane_ends(*step, decided=True)
    path = _walk_back(step[0], by, end_s.argmax(axis=0))
    leaves, structure = jax.tree.flatten(step)
    changes = jax.tree.leaves(change, is_leaf=lambda leaf: isinstance(leaf, SymbolicZero))
    moving = [k for k, own in enumerate(changes) if not isinstance(own, SymbolicZero)]

    def seconds(*values: Array) -> Array:
        changed = dict(zip(moving, values, strict=True))
        return _path_seconds(path, *structure.unflatten([changed.get(k, own) for k, own in enumerate(leaves)]))

    _, along = jax.jvp(seconds, [leaves[k] for k in moving], [changes[k] for k in moving])
    return end_s.max(axis=0), along


def lane_ends(
    graph: GraphArrays,
    members: Members,
    network: CommFactors,
    noise: CallNoise | None,
    work: WorkFactors | None,
    *,
    decided: bool = False,
) -> tuple[Float[Array, "lane score column"], Any]:
    """Returns the times at which lanes end all their work, seconds, and the deciders of the starts of ops [level, lane, score,
    column].

    Deciders are as those of `step_graph.decide`: 0 for the lane's previous op, d + 1 for predecessor d.
    """
    n_lane, n_column = network.link.shape[1:]
    n_score = network.regime.shape[0]
    dtype = network.link.dtype

    def body(carry: tuple[Array, Array], x: tuple[Array, ...]) -> tuple[tuple[Array, Array], Array | None]:
        free, ring = carry
        level, dep, compute_s, call_sd, comm_s, comm_sd, lag_s, *terms = x
        words = _words(noise, members, level, n_lane, n_column)
        chain = None if noise is None else noise.compute
        own = None if words is None or chain is None else OpNoise(call_sd, words, chain)
        duration_s = members.duration(compute_s, own)
        if work is not None:
            duration_s = duration_s * _work(jnp.asarray(work.excess), *terms)
        score_value = _comm_score(noise, words, dtype)
        residual = 1.0 if score_value is None else 1.0 + comm_sd[:, None] * score_value
        varied = 1.0 if score_value is None else 1.0 + graph.p2p_sd * score_value
        transfer = [network.handed(dep[:, d]) * varied for d in range(dep.shape[1])]
        ends, by = [], []
        for score in range(n_score):
            op_s = duration_s + residual * _comm_seconds(graph.axes, comm_s, network, score)
            arrivals = [
                ring[dep[:, d], score] + lag_s[:, d, None] * network.regime[score, -2] * transfer[d]
                for d in range(dep.shape[1])
            ]
            ends.append(cell(free[:, score], arrivals, op_s, jnp.maximum)[1])
            by.append(_decider(free[:, score], arrivals) if decided else None)
        end = jnp.stack(ends, axis=1)
        row = (level % graph.depth) * n_lane
        kept = jnp.stack(by, axis=1) if decided else None
        return (end, lax.dynamic_update_slice_in_dim(ring, end, row, 0)), kept

    free = jnp.zeros((n_lane, n_score, n_column), dtype)
    ring = jnp.zeros((graph.depth * n_lane + 1, n_score, n_column), dtype)
    rows, by = _level_rows(graph, work), None
    if graph.n_used is None:
        (free, _), by = lax.scan(body, (free, ring), rows)
    else:
        free, _ = lax.fori_loop(0, graph.n_used, lambda i, carry: body(carry, _row(rows, i))[0], (free, ring))
    end_s = free + members.duration(graph.end_compute_s)[:, None]
    return end_s + graph.end_comm_s[:, None, None] * network.regime[None, :, -1, None] * network.link[-1][:, None], by


def _level_rows(graph: GraphArrays, work: WorkFactors | None) -> tuple[Array, ...]:
    """Returns the inputs that differ from level to level, along the leading axis."""
    level = jnp.arange(len(graph.compute_s), dtype=jnp.int32)
    rows = level, graph.dep, graph.compute_s, graph.call_sd, graph.comm_s, graph.comm_sd, graph.lag_s
    return tuple(jnp.asarray(own) for own in (rows if work is None else (*rows, work.row, work.share)))


def _decider(free: Array, arrivals: Sequence[Array]) -> Integer[Array, "lane column"]:
    """Returns the index of the event that decides the start of each op; of those that arrive together the first counts."""
    by = jnp.zeros(free.shape, jnp.uint8)
    for d, arrival in enumerate(arrivals):
        by, free = jnp.where(arrival > free, jnp.uint8(d + 1), by), jnp.maximum(free, arrival)
    return by


class _Path(NamedTuple):
    """The ops that decided the end of a step.

    Attributes:
        lane: [level, score, column] that runs the path's op there; the number of lanes where it has none.
        by: [level, score, column] what decided its start.
        last: [score, column] lane that ends the step.
    """

    lane: Integer[Array, "level score column"]
    by: Integer[Array, "level score column"]
    last: Integer[Array, "score column"]


def _walk_back(graph: GraphArrays, by: Array, last: Integer[Array, "score column"]) -> _Path:
    """Returns the path to the end of lanes `last`, from the deciders of all starts."""
    n_level, n_lane = by.shape[:2]
    kept = jnp.uint8 if n_lane < 256 else jnp.uint16

    def body(carry: tuple[Array, Array], x: tuple[Array, ...]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        (level, lane), (now, by, dep) = carry, x
        runs = level == now
        own = jnp.where(runs, jnp.take_along_axis(by, lane[None], axis=0)[0], 0)
        row = dep[lane, jnp.maximum(own, 1) - 1]
        sent = now - 1 - (now - 1 - row // n_lane) % graph.depth  # level of that row of the ring
        before = jnp.where(own > 0, sent, jnp.where(runs, now - 1, level)), jnp.where(own > 0, row % n_lane, lane)
        return before, (jnp.where(runs, lane, n_lane).astype(kept), own)

    last = last.astype(jnp.int32)
    rows = jnp.arange(n_level, dtype=jnp.int32), by, jnp.asarray(graph.dep)
    _, (lane, decided) = lax.scan(body, (jnp.full_like(last, n_level - 1), last), rows, reverse=True)
    return _Path(lane, decided, last)


def _path_seconds(
    path: _Path,
    graph: GraphArrays,
    members: Members,
    network: CommFactors,
    noise: CallNoise | None,
    work: WorkFactors | None,
) -> Float[Array, "score column"]:
    """Seconds of all ops and transfers on a path, a few levels at once."""
    n_level, n_score, n_column = path.lane.shape
    n_lane, column = network.link.shape[1], jnp.arange(n_column)
    n_row = min(n_level, max(1, PATH_CELLS // (n_score * n_column)))

    def regime(axis: int, link: Array) -> Array:
        return jnp.broadcast_to(network.regime[:, axis, None], link.shape) * link

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def some(x: tuple[Array, ...]) -> Float[Array, "score column"]:
        lane, by, level, *rows = x
        runs, lane = lane < n_lane, jnp.where(lane < n_lane, lane, 0).astype(jnp.int32)
        at = jnp.arange(n_row)[:, None, None], lane
        dep, compute_s, call_sd, comm_s, comm_sd, lag_s, *terms = (own[at] for own in rows)
        words = _words(noise, members, level[:, None, None, None], n_lane, n_column)
        chain = None if noise is None else noise.compute
        own = None
        if words is not None and chain is not None:
            own = PlaceNoise(call_sd, _picked(members.draws(words), lane), chain)
        total_s = members.at((lane, column), jnp.moveaxis(compute_s, -1, 0), own)
        if work is not None:
            row, share = terms
            total_s = total_s * (1.0 + (share * jnp.asarray(work.excess)[row, column[:, None]]).sum(axis=-1))
        score = _comm_score(noise, words, total_s.dtype)
        score = None if score is None else _picked(score[:, None], lane)[0]
        residual, passing = (1.0 if score is None else 1.0 + sd * score for sd in (comm_sd, graph.p2p_sd))
        for k, axis in enumerate(graph.axes):
            total_s = total_s + residual * comm_s[..., k] * regime(axis, _group_links(network, axis)[lane, column])
        first = (jnp.maximum(by, 1) - 1)[..., None].astype(jnp.int32)
        source, lag_s = (jnp.take_along_axis(own, first, axis=-1)[..., 0] for own in (dep, lag_s))
        handed = regime(HAND_OVER, network.handed_at(source, lane, column))
        total_s = total_s + jnp.where(by > 0, lag_s, 0.0) * handed * passing
        return jnp.where(runs, total_s, 0.0).sum(axis=0)

    def blocks(own: Array, fill: int = 0) -> Array:
        more = [(0, -n_level % n_row)] + [(0, 0)] * (own.ndim - 1)
        return jnp.pad(own, more, constant_values=fill).reshape(-(-n_level // n_row), n_row, *own.shape[1:])

    rows = blocks(path.lane, n_lane), blocks(path.by), *map(blocks, _level_rows(graph, work))
    place = path.last, column
    end_s = members.at(place, jnp.moveaxis(jnp.asarray(graph.end_compute_s)[path.last], -1, 0))
    end_s = end_s + jnp.asarray(graph.end_comm_s)[path.last] * regime(-1, network.link[-1][place])
    return lax.map(some, rows).sum(axis=0) + end_s


def _picked(drawn: Float[Array, "level draw lane column"], lane: Array) -> Float[Array, "draw level score column"]:
    """Returns the draws of the ops on a path."""
    level, column = jnp.arange(len(lane))[:, None, None], jnp.arange(drawn.shape[-1])
    return jnp.moveaxis(drawn[level, :, lane, column], -1, 0)


def _work(excess: Array, row: Array, share: Array) -> Float[Either, "lane column"]:
    """Factors of the ops of one level."""
    return 1.0 + sum(share[:, k, None] * excess[row[:, k]] for k in range(row.shape[1]))


def _row(rows: tuple[Array, ...], level: Array) -> tuple[Array, ...]:
    return tuple(lax.dynamic_index_in_dim(r, level, keepdims=False) for r in rows)


def _words(
    noise: CallNoise | None, members: Members, level: Int[Either, "*level"], n_lane: int, n_column: int
) -> Complex64[Either, "*levels word lane pair"] | None:
    """Packed random words of one level, or of levels [level, 1, 1, 1]: the rows `members` needs, then one for communication."""
    if noise is None:
        return None
    n_row = (members.n_draw if noise.compute is not None else 0) + (noise.comm is not None)
    if n_row == 0:
        return None
    words = word_pairs(noise.key_data, level, n_row, n_lane, n_column // 2)
    if noise.comm_key is None or noise.comm is None:
        return words
    own = word_pairs(noise.comm_key, level, 1, n_lane, n_column // 2)
    return jnp.concatenate([words[..., :-1, :, :], own], axis=-3)


def _comm_score(
    noise: CallNoise | None, words: Complex64[Either, "*level word lane pair"] | None, dtype: jnp.dtype
) -> Float[Either, "*level lane 2*pair"] | None:
    """Standardised residual of an op's communication and of the transfer that feeds it."""
    if noise is None or noise.comm is None or words is None:
        return None
    return noise.comm(both(normal_pairs(words)[..., -1, :, :])).astype(dtype)


def _comm_seconds(
    axes: tuple[int, ...], comm_s: Float[Either, "lane used"], network: CommFactors, score: int
) -> Float[Either, "lane column"] | Float[Either, ""]:
    """Seconds of an op's communication at one network score: one zero if the graph has none."""
    parts = [comm_s[:, i, None] * network.regime[score, a] * _group_links(network, a) for i, a in enumerate(axes)]
    return sum(parts, jnp.zeros((), network.link.dtype))


def _group_links(network: CommFactors, axis: int) -> Float[Either, "lane column"]:
    """Factors of links of communication inside ops, blocking sends among it."""
    return network.sent() if axis == HAND_OVER else network.link[axis]

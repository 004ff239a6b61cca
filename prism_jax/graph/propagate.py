"""The max-plus engine: end times of every lane, as a pure jitted scan over levels; an op lasts as long as its slowest member.

At level t lane l starts when it is free and its predecessors' results have arrived, runs for its slowest member's compute plus
its exposed communication, and writes its end time into a ring buffer of the last few levels:

    start = max(end[t-1, l], max_d(end[dep_d] + lag_d))        end = start + max_members(compute) + communication

Columns (last axis) are independent random draws of one replica. The `score` axis carries several values of the network regime
at once: they share every random number, which costs next to nothing beside making those numbers.

Members are the ranks of a lane that synchronise inside every op. `ExplicitMembers` draws every member's residual: exact, the
default for small groups. `MemberTable` draws the maximum directly, from its distribution given the members' persistent
factors.
"""

from __future__ import annotations

import functools
from dataclasses import field
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..core.arrays import Complex64, Float, Int, Int32, UInt32, namespace
from ..core.kernels import NETWORK_AXES
from .draws import Either, ScoreChain, both, exponential_pairs, normal_pairs, traced_record, word_pairs
from .step_graph import cell

MAX_UNROLLED = 32
HAND_OVER = NETWORK_AXES.index("pp")


class OpNoise(NamedTuple):
    """Residual of one op.

    Attributes:
        call_sd: [lane] standard deviation over mean.
        words: [word, lane, pair] packed random words, at least as many rows as the members need.
        chain: standardised residual of a normal score.
    """

    call_sd: Float[Either, " lane"]
    words: Complex64[Either, "word lane pair"]
    chain: ScoreChain


@traced_record
class ExplicitMembers:
    """Every member's residual drawn.

    Attributes:
        chip: [factor, member, lane, column] persistent factors.
    """

    chip: Float[Either, "factor member lane column"]

    @property
    def n_draw(self) -> int:
        """One row per member."""
        return self.chip.shape[1]

    def duration(
        self, compute_s: Float[Either, "lane part"], noise: OpNoise | None = None
    ) -> Float[Either, "lane column"]:
        """[lane, column] seconds of the slowest member of every lane."""
        if noise is None:
            return self._slowest(self.chip, compute_s, None, None)
        call_sd, words, chain = noise
        pairs = normal_pairs(words)[: self.n_draw]  # all rows: one array, made once
        half = self.chip.shape[-1] // 2
        halves = [
            self._slowest(self.chip[..., :half], compute_s, call_sd, chain(lax.real(pairs)).astype(compute_s.dtype)),
            self._slowest(self.chip[..., half:], compute_s, call_sd, chain(lax.imag(pairs)).astype(compute_s.dtype)),
        ]
        return jnp.concatenate(halves, axis=-1)

    @staticmethod
    def _slowest(chip: Either, compute_s: Either, call_sd: Either | None, residual: Either | None) -> Either:
        """Unrolled over the members of a small group: a reduction over their axis would not vectorise."""

        def seconds(chip: Either, residual: Either | None) -> Either:
            value = compute_s[:, -1, None] + sum(compute_s[:, f, None] * chip[f] for f in range(chip.shape[0]))
            if residual is None or call_sd is None:
                return jnp.broadcast_to(value, chip.shape[1:])
            return value * (1.0 + call_sd[:, None] * residual)

        n_member = chip.shape[1]
        if n_member > MAX_UNROLLED:
            return jax.vmap(seconds, in_axes=(1, 0))(chip, residual).max(axis=0)
        each = [seconds(chip[:, m], None if residual is None else residual[m]) for m in range(n_member)]
        return functools.reduce(jnp.maximum, each)


@traced_record
class MemberTable:
    """The maximum over many members of persistent x residual, drawn directly.

    A piecewise-linear quantile function of the maximum on Gumbel scale y = -log(-log F): nearly a straight line for
    any maximum, so few knots suffice. One exponential draw E gives the maximum at y = -log E, as a factor of the op's
    noise-free seconds: peak (1 + excess).

    Attributes:
        peak: [lane, column] slowest persistent factor.
        start: [lane, column] excess at the first knot.
        knots: [knot, lane, column] increasing y.
        slopes: [knot, lane, column] slope of the excess after each knot; the last continues.
    """

    peak: Float[Either, "lane column"]
    start: Float[Either, "lane column"]
    knots: Float[Either, "knot lane column"]
    slopes: Float[Either, "knot lane column"]

    @property
    def n_draw(self) -> int:
        """One row for all members."""
        return 1

    def duration(
        self, compute_s: Float[Either, "lane part"], noise: OpNoise | None = None
    ) -> Float[Either, "lane column"]:
        """[lane, column] seconds of the slowest member, by its tabulated distribution."""
        total_s = compute_s.sum(axis=-1)[:, None]
        if noise is None:
            return total_s * self.peak
        pairs = exponential_pairs(noise.words[:1])[0]
        half = self.peak.shape[-1] // 2
        excess = [self._at(lax.real(pairs), slice(None, half)), self._at(lax.imag(pairs), slice(half, None))]
        return total_s * self.peak * (1.0 + jnp.concatenate(excess, axis=-1))

    def _at(self, exponential: Array, columns: slice) -> Array:
        part = (self.start[..., columns], self.knots[..., columns], self.slopes[..., columns])
        return piecewise(-jnp.log(exponential).astype(self.start.dtype), *part)


Members: TypeAlias = ExplicitMembers | MemberTable


def piecewise(
    x: Float[Either, "*#cell"],
    start: Float[Either, "*#cell"],
    knots: Float[Either, "knot *#cell"],
    slopes: Float[Either, "knot *#cell"],
) -> Float[Either, "*#cell"]:
    """Piecewise-linear function: `start` at the first knot, a slope after each, the first and last continued."""
    xp = namespace(x, start)
    value = start + xp.minimum(x - knots[0], 0.0) * slopes[0]
    for k in range(knots.shape[0]):
        step = xp.maximum(x - knots[k], 0.0)
        if k + 1 < knots.shape[0]:
            step = xp.minimum(step, knots[k + 1] - knots[k])
        value = value + step * slopes[k]
    return value


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
    """Communication factors.

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
        lane, source = np.arange(n_lane), source % n_lane
        between = xp.where(abs(source - lane) == 1, xp.maximum(source, lane), 0)
        return xp.maximum(self.link[-2], xp.asarray(self.edge)[between])

    def sent(self) -> Float[Either, "lane column"]:
        """Factor of blocking sends of a lane: that of the slower of its two hand-overs."""
        if self.edge is None:
            return self.link[-2]
        xp = namespace(self.edge)
        return xp.maximum(self.link[-2], xp.maximum(self.edge, xp.roll(self.edge, -1, axis=0)))


@traced_record
class CallNoise:
    """Residuals from call to call; `None` chains mean no residual.

    Attributes:
        key_data: the two words of this chunk's key.
        compute: standardised residual (mean 0, sd 1) of an op's compute as a function of a normal score.
        comm: the same for its communication.
    """

    key_data: UInt32[Either, "2"]
    compute: ScoreChain | None
    comm: ScoreChain | None


@traced_record
class WorkFactors:
    """How much work micro-batches hold; compute goes with it, communication and the end of the step do not.

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
    """End of the step without the wait for other replicas, seconds; every micro-batch holds the mean of `work` if None."""
    n_level, n_lane, _ = graph.compute_s.shape
    n_column = network.link.shape[-1]
    n_score = network.regime.shape[0]
    dtype = network.link.dtype

    def body(carry: tuple[Array, Array], x: tuple[Array, ...]) -> tuple[tuple[Array, Array], None]:
        free, ring = carry
        level, compute_s, call_sd, comm_s, comm_sd, dep, lag_s, *terms = x
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
        ends = []
        for score in range(n_score):
            op_s = duration_s + residual * _comm_seconds(graph.axes, comm_s, network, score)
            arrivals = (
                ring[dep[:, d], score] + lag_s[:, d, None] * network.regime[score, -2] * transfer[d]
                for d in range(dep.shape[1])
            )
            ends.append(cell(free[:, score], arrivals, op_s, jnp.maximum)[1])
        end = jnp.stack(ends, axis=1)
        row = (level % graph.depth) * n_lane
        return (end, lax.dynamic_update_slice_in_dim(ring, end, row, 0)), None

    free = jnp.zeros((n_lane, n_score, n_column), dtype)
    ring = jnp.zeros((graph.depth * n_lane + 1, n_score, n_column), dtype)
    rows = (graph.compute_s, graph.call_sd, graph.comm_s, graph.comm_sd, graph.dep, graph.lag_s)
    rows = rows if work is None else (*rows, work.row, work.share)
    rows = (jnp.arange(n_level, dtype=jnp.int32), *map(jnp.asarray, rows))
    if graph.n_used is None:
        (free, _), _ = lax.scan(body, (free, ring), rows)
    else:
        free, _ = lax.fori_loop(0, graph.n_used, lambda i, carry: body(carry, _row(rows, i))[0], (free, ring))
    end_s = free + members.duration(graph.end_compute_s)[:, None]
    end_s = end_s + graph.end_comm_s[:, None, None] * network.regime[None, :, -1, None] * network.link[-1][:, None]
    return end_s.max(axis=0)


def _work(excess: Array, row: Array, share: Array) -> Float[Either, "lane column"]:
    """Factors of the ops of one level."""
    return 1.0 + sum(share[:, k, None] * excess[row[:, k]] for k in range(row.shape[1]))


def _row(rows: tuple[Array, ...], level: Array) -> tuple[Array, ...]:
    return tuple(lax.dynamic_index_in_dim(r, level, keepdims=False) for r in rows)


def _words(
    noise: CallNoise | None, members: Members, level: Int[Either, ""], n_lane: int, n_column: int
) -> Complex64[Either, "word lane pair"] | None:
    """Packed random words of one level: the rows `members` needs, then one for communication."""
    if noise is None:
        return None
    n_row = (members.n_draw if noise.compute is not None else 0) + (noise.comm is not None)
    if n_row == 0:
        return None
    return word_pairs(noise.key_data, level, n_row, n_lane, n_column // 2)


def _comm_score(
    noise: CallNoise | None, words: Complex64[Either, "word lane pair"] | None, dtype: jnp.dtype
) -> Float[Either, "lane 2*pair"] | None:
    """Standardised residual of an op's communication and of the transfer that feeds it."""
    if noise is None or noise.comm is None or words is None:
        return None
    return noise.comm(both(normal_pairs(words)[-1])).astype(dtype)


def _comm_seconds(
    axes: tuple[int, ...], comm_s: Float[Either, "lane used"], network: CommFactors, score: int
) -> Float[Either, "lane column"] | Float[Either, ""]:
    """Seconds of an op's communication at one network score: one zero if the graph has none."""
    link = [network.sent() if a == HAND_OVER else network.link[a] for a in axes]
    parts = [comm_s[:, i, None] * network.regime[score, a] * link[i] for i, a in enumerate(axes)]
    return sum(parts, jnp.zeros((), network.link.dtype))

"""Replica columns on the device: persistent scores -> factors -> max-plus, in chunks spread over all devices.

A chunk is a fixed number of columns with its own key, `fold_in(key, chunk index)`, whatever device it runs on:
results do not depend on how many devices there are. Draws are derived by name inside a chunk, so that adding one kind
of draw leaves the others alone.

Of a large group the slowest member is drawn from a table of its quantiles, given every member's persistent factor:

    F(e) = prod_i Phi_r(((S_max - S_i) / S_i + e S_max / S_i) / sd)        y(e) = -log(-log F(e))

with S_i the member's factor (weighted over kernel classes as the lane uses them), Phi_r the residual's distribution, and the
maximum written as S_max (1 + e): a residual far smaller than the resolution of S_max keeps its digits. The table needs e at given
y, and F is known at given e. In the residual's normal score z, with e = sd r(z), y(z) is smooth for any residual, however heavy
its tail: a coarse table of it tells which e belong to the wanted y, and F there is exact again.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any
from zlib import crc32

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import log_ndtr, ndtr, ndtri
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Float, Int, Key, UInt32

from ..graph.draws import ScoreChain, key_words, normals, uniforms
from ..graph.propagate import (
    CallNoise,
    CommFactors,
    ExplicitMembers,
    GraphArrays,
    Members,
    MemberTable,
    Trail,
    piecewise,
    propagate,
    trail,
)

COARSE_SCORES = (-4.0, -1.8, 0.4, 2.6, 4.8, 7.0)
# Wanted knots: F from 6e-4 to 1 - 1.5e-8, dense where most maxima lie.
WANTED_Y = (-2.0, -1.2, -0.5, 0.1, 0.7, 1.4, 2.2, 3.2, 4.5, 6.0, 8.0, 10.5, 14.0, 18.0)

SMALLEST_SD = 1e-9  # where nothing varies from call to call


def member_table(
    graph: GraphArrays, chip: Float[Array, "factor member lane column"], residual: ScoreChain | None
) -> MemberTable:
    """Table of every lane's group.

    Args:
        graph: seconds and residual standard deviations; those of a lane's ops are averaged, weighted by their seconds.
        chip: persistent factors of all members.
        residual: standardised residual of a normal score; None for none, so that the slowest factor decides.
    """
    total = graph.compute_s.sum(axis=(0, 2))
    share = graph.compute_s.sum(axis=0) / jnp.where(total > 0, total, 1.0)[:, None]  # [lane, part]
    factor = share[None, :, -1, None] + jnp.einsum("lf,fmlc->mlc", share[:, :-1], chip)
    peak = factor.max(axis=0)
    if residual is None:
        flat = jnp.zeros((2, *peak.shape), peak.dtype)
        return MemberTable(peak, flat[0], flat.at[1].set(1.0), flat)
    weight = graph.compute_s.sum(axis=2)
    mean_sd = (graph.call_sd * weight).sum(axis=0) / jnp.where(total > 0, total, 1.0)
    sd = jnp.maximum(mean_sd, SMALLEST_SD)[None, :, None]
    score = jnp.asarray(COARSE_SCORES, peak.dtype)[:, None, None]
    rough = _gumbel(sd * residual(score), factor, sd, residual)
    slopes = jnp.diff(score, axis=0) / _gap(rough)
    wanted = jnp.asarray(WANTED_Y, peak.dtype)
    fine = jax.vmap(lambda y: piecewise(y, score[0], rough[:-1], slopes))(wanted)
    excess = sd * residual(fine)  # [knot, lane, column]
    y = _gumbel(excess, factor, sd, residual)
    return MemberTable(peak, excess[0], y[:-1], jnp.diff(excess, axis=0) / _gap(y))


def _gumbel(
    excess: Float[Array, "knot lane #column"],
    factor: Float[Array, "member lane column"],
    sd: Float[Array, "1 lane 1"],
    residual: ScoreChain,
) -> Float[Array, "knot lane column"]:
    """-log(-log P(slowest <= peak (1 + excess))) from the members' persistent factors."""
    peak = factor.max(axis=0)

    def add(i: int | Array, total: Array) -> Array:
        over = ((peak - factor[i])[None] + excess * peak[None]) / factor[i][None]
        return total + log_ndtr(residual.inverse(over / sd))

    log_cdf = lax.fori_loop(0, factor.shape[0], add, jnp.zeros((*excess.shape[:-1], peak.shape[-1]), peak.dtype))
    return -jnp.log(jnp.maximum(-log_cdf, 1e-30))


def _gap(y: Float[Array, "knot lane column"]) -> Float[Array, "knot-1 lane column"]:
    return jnp.maximum(jnp.diff(y, axis=0), 1e-6)


MAX_EXPLICIT_MEMBERS = 16  # above, the maximum over members is drawn directly


class ColumnInputs(eqx.Module):
    """Traced part of a program: everything one compiled function needs for one shape of graph.

    Attributes:
        graph: arrays of the step graph.
        gpu, node: per factor, persistent chains.
        link: per network axis, chain of a group's links.
        regime: [score, axis] factors of the step's network regime at the carried scores.
        compute, comm: standardised call residuals.
        n_member, n_node, node_size: GPUs of a group, hosts it spans, GPUs per host.
        explicit: draw every member, however many.
        varying_links: whether links differ from node to node.
    """

    graph: GraphArrays
    gpu: tuple[ScoreChain, ...]
    node: tuple[ScoreChain, ...]
    link: tuple[ScoreChain, ...]
    regime: Float[Array, "score axis"]
    compute: ScoreChain | None
    comm: ScoreChain | None
    n_member: int = eqx.field(static=True)
    n_node: int = eqx.field(static=True)
    node_size: int = eqx.field(static=True)
    explicit: bool = eqx.field(static=True)
    varying_links: bool = eqx.field(static=True)

    @property
    def n_lane(self) -> int:
        """Lanes, idle ones included."""
        return self.graph.compute_s.shape[1]


class Chunk(eqx.Module):
    """What differs from chunk to chunk; several chunks are stacked along a leading axis.

    Attributes:
        index: [] position of the chunk, folded into the key.
        fleet: [] position of the fleets whose persistent factors the columns carry: chunks with the same number (and the same
            `peak_score`) are steps of the same fleets. None for `index`.
        peak_score: [2, lane, column] normal score of a lane's slowest GPU (of the *maximum*: uniform on probability
            scale) and of its node; None to draw every GPU and node independently.
        regime: [axis, column] factor of the step a column belongs to; None where `ColumnInputs.regime` carries it.
        known: [factor, member, lane, column] persistent factor of known GPUs, NaN where unknown; None if nothing is known.
    """

    index: Int[Array, "*chunk"]
    peak_score: Float[Array, "*chunk 2 lane column"] | None = None
    regime: Float[Array, "*chunk axis column"] | None = None
    known: Float[Array, "*chunk factor member lane column"] | None = None
    fleet: Int[Array, "*chunk"] | None = None


def column_times(
    inputs: ColumnInputs, key: Key[Array, ""], chunks: Chunk, n_column: int
) -> Float[Array, "chunk score column"]:
    """Step time of independent replica columns, seconds.

    Args:
        inputs: lowered job.
        key: typed PRNG key.
        chunks: leaves stacked along a leading chunk axis.
        n_column: columns per chunk, even.
    """
    n_chunk = chunks.index.shape[0]
    n_device = _shards(n_chunk)
    times = _compiled(n_device, n_column, jax.default_backend())(inputs, key, chunks)
    if jax.process_count() == 1:
        return times
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(times, tiled=True)


def _shards(n_chunk: int) -> int:
    """As many devices as divide the chunks evenly."""
    return max(d for d in range(1, len(jax.devices()) + 1) if n_chunk % d == 0)


@lru_cache(maxsize=64)
def _compiled(n_device: int, n_column: int, backend: str) -> Any:
    def run(inputs: ColumnInputs, key: Key[Array, ""], chunks: Chunk) -> Float[Array, "chunk score column"]:
        return lax.map(lambda chunk: one_chunk(inputs, key, chunk, n_column), chunks)

    mesh = Mesh(np.array(jax.devices()[:n_device]), ("device",))
    split, whole = PartitionSpec("device"), PartitionSpec()
    sharded = jax.shard_map(run, mesh=mesh, in_specs=(whole, whole, split), out_specs=split, check_vma=False)
    return jax.jit(sharded, compiler_options=compiler_options(backend))


@lru_cache(maxsize=1)
def compiler_options(backend: str) -> dict[str, Any] | None:
    """Options of programs that draw many random numbers.

    XLA:CPU prefers 256-bit vectors; 512-bit ones are 1.2-1.5 times as fast here where the processor has them.
    """
    if backend != "cpu" or not os.path.exists("/proc/cpuinfo"):
        return None
    with open("/proc/cpuinfo", encoding="ascii", errors="ignore") as file:
        wide = "avx512f" in file.read(16384)
    return {"xla_cpu_prefer_vector_width": 512} if wide else None


def one_chunk(inputs: ColumnInputs, key: Key[Array, ""], chunk: Chunk, n_column: int) -> Float[Array, "score column"]:
    """Step times of one chunk's columns, seconds."""
    return propagate(*_drawn(inputs, key, chunk, n_column))


def trail_of_chunk(inputs: ColumnInputs, key: Key[Array, ""], chunk: Chunk, n_column: int) -> Trail:
    """Every op of the same columns."""
    return trail(*_drawn(inputs, key, chunk, n_column))


def _drawn(
    inputs: ColumnInputs, key: Key[Array, ""], chunk: Chunk, n_column: int
) -> tuple[GraphArrays, Members, CommFactors, CallNoise | None]:
    """One chunk's persistent factors, links and residuals: the arguments of the engine."""
    own = jax.random.fold_in(key, chunk.index)
    of_fleet = own if chunk.fleet is None else jax.random.fold_in(key, chunk.fleet)
    chip = persistent_factors(inputs, of_fleet, chunk, n_column)
    network = CommFactors(link_factors(inputs, of_fleet, chunk, n_column), inputs.regime)
    return inputs.graph, members_of(inputs, chip), network, call_noise(inputs, own)


def named(key: Key[Array, ""], name: str) -> UInt32[Array, "2"]:
    """The two key words of one kind of draw."""
    return key_words(jax.random.fold_in(key, crc32(name.encode())))


def call_noise(inputs: ColumnInputs, key: Key[Array, ""]) -> CallNoise | None:
    """Call residuals under this chunk's key; None if nothing varies from call to call."""
    if inputs.compute is None and inputs.comm is None:
        return None
    return CallNoise(named(key, "call"), inputs.compute, inputs.comm)


def members_of(inputs: ColumnInputs, chip: Float[Array, "factor member lane column"]) -> Members:
    """Every member drawn for small groups; the direct maximum for large ones."""
    if inputs.explicit or inputs.n_member <= MAX_EXPLICIT_MEMBERS:
        return ExplicitMembers(chip)
    return member_table(inputs.graph, chip, inputs.compute)


def persistent_factors(
    inputs: ColumnInputs, key: Key[Array, ""], chunk: Chunk, n_column: int
) -> Float[Array, "factor member lane column"]:
    """Persistent factors of every GPU, node effect included."""
    shape, dtype = (inputs.n_member, inputs.n_lane, n_column), inputs.graph.compute_s.dtype
    if not inputs.gpu:
        return jnp.ones((0, *shape), dtype)
    node_shape = (inputs.n_node, *shape[1:])
    if chunk.peak_score is None:
        gpu_z = normals(named(key, "gpu"), *shape).astype(dtype)
        node_z = normals(named(key, "node"), *node_shape).astype(dtype)
    else:
        gpu_z = below_peak(named(key, "gpu"), chunk.peak_score[0], inputs.n_member)
        node_z = normals(named(key, "node"), *node_shape).astype(dtype).at[0].set(chunk.peak_score[1])
    host = jnp.minimum(jnp.arange(inputs.n_member) // inputs.node_size, inputs.n_node - 1)
    factors = [gpu(gpu_z) * node(node_z)[host] for gpu, node in zip(inputs.gpu, inputs.node, strict=True)]
    chip = jnp.stack(factors)
    return chip if chunk.known is None else jnp.where(jnp.isnan(chunk.known), chip, chunk.known)


def below_peak(
    key_data: UInt32[Array, "2"], peak_score: Float[Array, "lane column"], n_member: int
) -> Float[Array, "member lane column"]:
    """Scores of `n_member` exchangeable GPUs whose maximum has score `peak_score` on its own probability scale.

    The maximum of n has probability U^(1/n) at uniform U = Phi(peak_score); given it, the others are independent below it. The
    maximum comes first: members are exchangeable. Tails are taken from the survival side, in float32.
    """
    tail = -jnp.expm1(log_ndtr(peak_score) / n_member)  # 1 - U^(1/n)
    top = -ndtri(tail)
    if n_member == 1:
        return top[None]
    uniform = uniforms(key_data, n_member, *peak_score.shape).astype(peak_score.dtype)
    others = jnp.minimum(ndtri(jnp.maximum(uniform * ndtr(top)[None], 1e-30)), top[None])
    return others.at[0].set(top)


def link_factors(
    inputs: ColumnInputs, key: Key[Array, ""], chunk: Chunk, n_column: int
) -> Float[Array, "axis lane column"]:
    """Link factors: the worst of a group's nodes; the end of the step included."""
    shape = (len(inputs.link), inputs.n_lane, n_column)
    factors = jnp.ones(shape, inputs.graph.compute_s.dtype)
    if inputs.varying_links:
        score = normals(named(key, "link"), 1, *shape[1:])[0].astype(factors.dtype)
        worst = -ndtri(-jnp.expm1(log_ndtr(score) / inputs.n_node))
        factors = jnp.stack([chain(worst) for chain in inputs.link])
    return factors if chunk.regime is None else factors * chunk.regime[:, None, :]

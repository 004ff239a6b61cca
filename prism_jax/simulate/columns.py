"""Replica columns: persistent scores -> factors -> max-plus, in chunks spread over all devices.

What a column keeps for the whole step is a few numbers of each GPU, and its ops are thousands. So the host draws the former, in
NumPy, and one program, whose shape knows neither the members of a large group nor how many columns there are, runs the latter.
Brute force, which has a column for every replica of every step, and derivatives draw on the device, by the same formulas.

A chunk is a fixed number of columns with its own key, `fold_in(key, chunk index)`, whatever device it runs on:
results do not depend on how many devices there are. Draws are derived by name inside a chunk, so that adding one kind
of draw leaves the others alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any
from zlib import crc32

import jax
import numpy as np
from jax import Array, lax
from jax.scipy import special as device_special
from jax.sharding import Mesh, PartitionSpec
from scipy import special

from ..core.arrays import Float, Int, Key, UInt32, is_numpy, namespace
from ..core.together import n_processes
from ..graph.build import WorkTerms
from ..graph.draws import (
    Either,
    ScoreChain,
    Words,
    fold_in,
    host_key,
    key_words,
    normals,
    on_accelerator,
    traced_record,
    uniforms,
)
from ..graph.members import ExplicitMembers, Members, member_table
from ..graph.propagate import CallNoise, CommFactors, GraphArrays, WorkFactors, propagate
from ..graph.step_graph import padded, static_levels

MAX_EXPLICIT_MEMBERS = 16  # above, the maximum over members is drawn directly
StepInputs = tuple[GraphArrays, Either, ScoreChain | None, ScoreChain | None, WorkTerms | None]


@traced_record
class ColumnInputs:
    """Traced part of a program: everything one compiled function needs for one shape of graph.

    Attributes:
        graph: arrays of the step graph.
        gpu, node: per factor, persistent chains.
        link: per network axis, chain of a group's links.
        regime: [score, axis] factors of the step's network regime at the carried scores.
        compute, comm: standardised call residuals.
        work: which factors of work every op goes with; None where micro-batches are alike.
        n_member, n_node, node_size: GPUs of a group, hosts it spans, GPUs per host.
        explicit: draw every member, however many.
        varying_links: whether links differ from node to node.
    """

    graph: GraphArrays
    gpu: tuple[ScoreChain, ...]
    node: tuple[ScoreChain, ...]
    link: tuple[ScoreChain, ...]
    regime: Float[Either, "score axis"]
    compute: ScoreChain | None
    comm: ScoreChain | None
    work: WorkTerms | None
    n_member: int = field(metadata={"static": True})
    n_node: int = field(metadata={"static": True})
    node_size: int = field(metadata={"static": True})
    explicit: bool = field(metadata={"static": True})
    varying_links: bool = field(metadata={"static": True})

    @property
    def n_lane(self) -> int:
        """Number of lanes, idle ones included."""
        return self.graph.compute_s.shape[1]

    @property
    def step(self) -> StepInputs:
        """The parts that columns are run with once they are drawn."""
        return self.graph, self.regime, self.compute, self.comm, self.work


@traced_record
class KnownLinks:
    """Factors of links that are known; zero where none is.

    Attributes:
        slowest: [axis, lane, column] slowest of a group's.
        n_drawn: [axis, lane, column] nodes of the group whose links are drawn.
        edge: [lane, column] of hand-overs, as in `CommFactors`.
    """

    slowest: Float[Either, "*chunk axis lane column"]
    n_drawn: Float[Either, "*chunk axis lane column"]
    edge: Float[Either, "*chunk lane column"]


@traced_record
class Chunk:
    """Inputs that differ from chunk to chunk; several chunks are stacked along a leading axis.

    Attributes:
        index: [] position of the chunk, folded into the key.
        fleet: [] position of the fleets whose persistent factors the columns carry: chunks with the same number (and the same
            `peak_score`) are steps of the same fleets. None for `index`.
        peak_score: [2, lane, column] normal score of a lane's slowest GPU (of the *maximum*: uniform on probability
            scale) and of its node; None to draw every GPU and node independently.
        regime: [axis, column] factor of the step a column belongs to; None where `ColumnInputs.regime` carries it.
        known: [factor, member, lane, column] persistent factor of known GPUs, NaN where unknown; None if nothing is known.
        links: known ones; None if none is.
        work: [factor_row, column] factors of the work of micro-batches less one; None where they are alike.
    """

    index: Int[Either, "*chunk"]
    peak_score: Float[Either, "*chunk 2 lane column"] | None = None
    regime: Float[Either, "*chunk axis column"] | None = None
    known: Float[Either, "*chunk factor member lane column"] | None = None
    fleet: Int[Either, "*chunk"] | None = None
    links: KnownLinks | None = None
    work: Float[Either, "*chunk factor_row column"] | None = None

    def at(self, place: int) -> Chunk:
        """Returns one of several stacked chunks."""
        return jax.tree.map(lambda leaf: leaf[place, ...], self)

    def again(self, more: int) -> Chunk:
        """Returns other steps of the same fleets: all draws but those of the fleets are those of chunks `more` places on."""
        return replace(self, index=self.index + more, fleet=self.index if self.fleet is None else self.fleet)


@traced_record
class DrawnColumns:
    """Draws that the columns of a chunk keep for the whole step, and the key of the others; chunks may be stacked.

    Attributes:
        members: the groups of all lanes.
        link, edge: factors of links, as in `CommFactors`.
        call: key of the residuals.
        work: [factor_row, column] factors of the work of micro-batches less one.
        comm_call: key of the residuals of communication; None for `call`.
    """

    members: Members
    link: Float[Either, "*chunk axis lane column"]
    edge: Float[Either, "*chunk lane column"] | None
    call: UInt32[Either, "*chunk 2"]
    work: Float[Either, "*chunk factor_row column"] | None
    comm_call: UInt32[Either, "*chunk 2"] | None = None


def column_times(
    inputs: ColumnInputs, key: Key[Array, ""] | Words, chunks: Chunk, n_column: int, *, drawn_on_device: bool = False
) -> Float[np.ndarray, "chunk score column"]:
    """Step time of independent replica columns, seconds.

    Args:
        inputs: lowered job.
        key: of the draws.
        chunks: leaves stacked along a leading chunk axis.
        n_column: columns per chunk, even.
        drawn_on_device: draw persistent factors there too, for very many columns: another program for each shape of a group. An
            accelerator always does.
    """
    if drawn_on_device or on_accelerator():
        return gathered(times_on_device(inputs, key, chunks, n_column))
    n_chunk, words, backend = len(chunks.index), host_key(key), jax.default_backend()
    n_device = 1 << (min(n_chunk, len(jax.local_devices())).bit_length() - 1)
    found: list[Any] = []
    plain = chunks.regime is None and chunks.known is None and chunks.links is None and not inputs.explicit
    draw = partial(_drawn, inputs, words, n_column=n_column, content=_content(inputs, n_column) if plain else None)
    for first in range(0, n_chunk, n_device):
        some = [chunks.at(min(k, n_chunk - 1)) for k in range(first, first + n_device)]
        drawn = jax.tree.map(lambda *leaves: np.stack(leaves), *map(draw, some))
        found.append(_compiled(n_device, 1, None, backend)(inputs.step, drawn))
        found[:-1] = map(gathered, found[:-1])  # the last runs while the next is drawn
    return np.concatenate([*found[:-1], gathered(found[-1])])[:n_chunk]


def times_of_drawn(inputs: ColumnInputs, drawn: DrawnColumns) -> Float[np.ndarray, "score column"]:
    """Step times of the columns of one chunk whose draws are given, seconds."""
    run = _compiled(1, 1, None, jax.default_backend())
    return gathered(run(inputs.step, jax.tree.map(lambda leaf: np.asarray(leaf)[None], drawn)))[0]


def times_on_device(
    inputs: ColumnInputs, key: Key[Array, ""] | Words, chunks: Chunk, n_column: int
) -> Float[Either, "chunk score column"]:
    """Returns the times of columns that are drawn on the device too; an accelerator keeps them, and may not have computed them
    yet. Processes that share them keep theirs (`gathered`), so that none waits for the others between two calls.
    """
    if on_accelerator():
        times = _of_jobs([(inputs, chunks)], key, n_column)
        return times[0] if times.is_fully_addressable else gathered(times)[0]
    run = _compiled(*_n_device(len(chunks.index)), n_column, jax.default_backend())
    times = run(inputs, host_key(key), chunks)
    return gathered(times) if times.is_fully_addressable else times


def times_of_jobs(
    inputs: Sequence[ColumnInputs], key: Key[Array, ""] | Words, chunks: Sequence[Chunk], n_column: int
) -> Iterator[Float[np.ndarray, "chunk score column"]]:
    """Yields the times of several jobs of one shape, whatever number of levels each uses; on an accelerator few calls do for
    all.
    """
    if not on_accelerator():
        yield from (column_times(*one, n_column) for one in zip(inputs, [key] * len(inputs), chunks, strict=True))
        return
    jobs = [*zip(inputs, chunks, strict=True)]
    per_call = max(1, COLUMNS_PER_CALL // (len(chunks[0].index) * n_column))
    for first in range(0, len(jobs), per_call):
        some = jobs[first : first + per_call]
        yield from gathered(_of_jobs(some, key, n_column))[: len(some)]


def _of_jobs(
    jobs: Sequence[tuple[ColumnInputs, Chunk]], key: Key[Array, ""] | Words, n_column: int
) -> Float[Array, "job chunk score column"]:
    """One call of an accelerator for several jobs, and the last of them again up to a power of two."""
    n_level = max(int(one.graph.n_used or 0) for one, _ in jobs)
    own = [(with_static_levels(one, n_level), chunks) for one, chunks in jobs]
    own += own[-1:] * (padded(len(jobs), 1, 2) - len(jobs))
    inputs, chunks = jax.tree.map(lambda *leaves: np.stack(leaves), *own)
    run = _compiled(*_n_device(chunks.index.shape[1]), n_column, jax.default_backend(), at_once=True)
    return run(inputs, host_key(key), chunks)


def with_static_levels(inputs: ColumnInputs, n_level: int) -> ColumnInputs:
    """The first `n_level` levels of a padded graph, and a few idle ones, under a loop that knows how many turns it makes.

    A count that only the device knows costs an accelerator a question before each turn. Idle levels change nothing.
    """
    graph, work = inputs.graph, inputs.work
    if graph.n_used is None:
        return inputs
    end = static_levels(n_level)
    rows = ("compute_s", "call_sd", "comm_s", "comm_sd", "dep", "lag_s")
    graph = replace(graph, n_used=None, **{name: getattr(graph, name)[:end] for name in rows})
    return replace(inputs, graph=graph, work=None if work is None else WorkTerms(*(part[:end] for part in work)))


COLUMNS_PER_CALL = 1 << 19  # on an accelerator: 1 to 2 GB


def chunks_per_call(n_column: int) -> int:
    """Returns how many chunks of `n_column` columns one call should take."""
    return max(1, COLUMNS_PER_CALL // n_column) if on_accelerator() else 32


def _n_device(n_chunk: int) -> tuple[int, int]:
    """Returns the largest number of devices of a process that get equally many chunks, and that of processes: all or one."""
    n_process = n_processes() if n_chunk % n_processes() == 0 else 1
    own = n_chunk // n_process
    return max(d for d in range(1, len(jax.local_devices()) + 1) if own % d == 0), n_process


def gathered(times: Array | np.ndarray) -> np.ndarray:
    """Times on this host, those of other processes included."""
    if isinstance(times, np.ndarray) or times.is_fully_addressable:
        return np.asarray(times, dtype=np.float64)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(times, tiled=True), dtype=np.float64)


@lru_cache(maxsize=64)
def _compiled(n_device: int, n_process: int, n_column: int | None, backend: str, *, at_once: bool = False) -> Any:
    """Times of chunks that are drawn on the device, of so many columns; for None, of columns that are drawn.

    Devices are as many of each process; those of this one where it is alone.

    One after another their state stays in the cache of a core. An accelerator waits for launches and takes all at once, those of
    several jobs too: there, jobs and what their chunks are made of have a leading axis of jobs.
    """

    def draw_and_run(inputs: ColumnInputs, key: Words, chunks: Chunk) -> Float[Array, "chunk score column"]:
        return lax.map(lambda chunk: one_chunk(inputs, key, chunk, n_column or 0), chunks)

    def all_at_once(inputs: ColumnInputs, key: Words, chunks: Chunk) -> Float[Array, "job chunk score column"]:
        of_job = jax.vmap(lambda job, chunk: one_chunk(job, key, chunk, n_column or 0), in_axes=(None, 0))
        return jax.vmap(of_job)(inputs, chunks)

    def run(step: StepInputs, drawn: DrawnColumns) -> Float[Either, "1 score column"]:
        return _times(step, jax.tree.map(lambda leaf: leaf[0], drawn))[None]

    each = range(n_process) if n_process > 1 else (jax.process_index(),)
    mesh = Mesh(np.array([own for k in each for own in jax.local_devices(process_index=k)[:n_device]]), ("device",))
    split, whole = PartitionSpec("device"), PartitionSpec()
    function, specs = (run, (whole, split)) if n_column is None else (draw_and_run, (whole, whole, split))
    if at_once:
        split = PartitionSpec(None, "device")
        function, specs = all_at_once, (whole, whole, split)
    sharded = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=split, check_vma=False)
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


def one_chunk(
    inputs: ColumnInputs, key: Key[Array, ""] | Words, chunk: Chunk, n_column: int
) -> Float[Either, "score column"]:
    """Step times of one chunk's columns, seconds; all is traced.

    Notes: derivatives make again what columns keep, whose making takes far more memory.
    """
    drawn = jax.checkpoint(lambda inputs, key, chunk: _drawn(inputs, key, chunk, n_column))(inputs, key, chunk)
    return _times(inputs.step, drawn)


def _times(step: StepInputs, drawn: DrawnColumns) -> Float[Either, "score column"]:
    """Step times of columns that are drawn, seconds."""
    graph, regime, compute, comm, terms = step
    noise = None if compute is None and comm is None else CallNoise(drawn.call, compute, comm, drawn.comm_call)
    work = None if terms is None or drawn.work is None else WorkFactors(drawn.work, *terms)
    return propagate(graph, drawn.members, CommFactors(drawn.link, regime, drawn.edge), noise, work)


# Chunks whose fleets are remembered: steps of the same fleets, and jobs that differ in their calls alone.
MOST_KEPT = 32
_kept: dict[tuple[bytes, ...], tuple[Members, Either, Either | None]] = {}


def _drawn(
    inputs: ColumnInputs, key: Key[Array, ""] | Words, chunk: Chunk, n_column: int, content: bytes | None = None
) -> DrawnColumns:
    """Returns the draws that one chunk's columns keep, under the chunk's key; `content` of the inputs where it is worth
    remembering.
    """
    own = fold_in(key_words(key), chunk.index)
    of_fleet = own if chunk.fleet is None else fold_in(key_words(key), chunk.fleet)
    scores = () if content is None else jax.tree.leaves((of_fleet, chunk.peak_score))
    made_of = (content or b"", *(np.asarray(part).tobytes() for part in scores))
    found = _kept.get(made_of)
    if found is None:
        chip = persistent_factors(inputs, of_fleet, chunk, n_column)
        found = members_of(inputs, chip), *link_factors(inputs, of_fleet, chunk, n_column)
        if content is not None:
            if len(_kept) >= MOST_KEPT:
                _kept.clear()
            _kept[made_of] = found
    return DrawnColumns(*found, named(own, "call"), chunk.work)


def _content(inputs: ColumnInputs, n_column: int) -> bytes:
    """Digest of all that fleets are made of, except their keys and peaks."""
    table = (
        (inputs.graph.compute_s, inputs.graph.call_sd, inputs.compute) if inputs.n_member > MAX_EXPLICIT_MEMBERS else ()
    )
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves((inputs.gpu, inputs.node, inputs.link, table))]
    counts = inputs.n_member, inputs.n_node, inputs.node_size, inputs.n_lane, inputs.varying_links, n_column
    digest = blake2b(repr((counts, [(leaf.shape, leaf.dtype.char) for leaf in leaves])).encode())
    for leaf in leaves:
        digest.update(leaf.tobytes())
    return digest.digest()


def named(key: Key[Array, ""] | Words, name: str) -> Words:
    """The two key words of one kind of draw."""
    return fold_in(key_words(key), crc32(name.encode()))


def members_of(inputs: ColumnInputs, chip: Float[Either, "factor member lane column"]) -> Members:
    """Every member drawn for small groups; the direct maximum for large ones."""
    if inputs.explicit or inputs.n_member <= MAX_EXPLICIT_MEMBERS:
        return ExplicitMembers(chip)
    return member_table(inputs.graph.compute_s, inputs.graph.call_sd, chip, inputs.compute)


def persistent_factors(
    inputs: ColumnInputs, key: Key[Array, ""] | Words, chunk: Chunk, n_column: int
) -> Float[Either, "factor member lane column"]:
    """Persistent factors of every GPU, node effect included; traced where the key or the chunk is."""
    if not inputs.gpu:
        shape = (0, inputs.n_member, inputs.n_lane, n_column)
        return namespace(key, chunk).ones(shape, inputs.graph.compute_s.dtype)
    chip, xp = factors_of(inputs, *persistent_scores(inputs, key, chunk, n_column)), namespace(key, chunk)
    return chip if chunk.known is None else xp.where(xp.isnan(chunk.known), chip, chunk.known)


def persistent_scores(
    inputs: ColumnInputs, key: Key[Array, ""] | Words, chunk: Chunk, n_column: int
) -> tuple[Float[Either, "member lane column"], Float[Either, "node lane column"]]:
    """Normal scores of every GPU and of every node; a slow GPU, a slow node is so in every kernel class."""
    shape, dtype = (inputs.n_member, inputs.n_lane, n_column), inputs.graph.compute_s.dtype
    xp = namespace(key, chunk)
    node_z = normals(named(key, "node"), inputs.n_node, *shape[1:]).astype(dtype)
    if chunk.peak_score is None:
        gpu_z = normals(named(key, "gpu"), *shape).astype(dtype)
    else:
        gpu_z = below_peak(named(key, "gpu"), chunk.peak_score[0], inputs.n_member)
        node_z = xp.concatenate([chunk.peak_score[1:], node_z[1:]])
    return gpu_z, node_z


def factors_of(
    inputs: ColumnInputs, gpu_z: Float[Either, "member lane column"], node_z: Float[Either, "node lane column"]
) -> Float[Either, "factor member lane column"]:
    """Persistent factors of GPUs of given scores on nodes of given scores."""
    host = np.minimum(np.arange(inputs.n_member) // inputs.node_size, inputs.n_node - 1)
    factors = [gpu(gpu_z) * node(node_z)[host] for gpu, node in zip(inputs.gpu, inputs.node, strict=True)]
    return namespace(gpu_z, node_z).stack(factors)


def highest_of(score: Float[Either, "*#cell"], n: int | Float[Either, "*#cell"]) -> Float[Either, "*cell"]:
    """Highest of `n` independent normal scores, at the probability U^(1/n), where U is that of `score`."""
    xp = namespace(score)
    law = _normal_law(xp)
    return -law.ndtri(-xp.expm1(law.log_ndtr(score) / n))  # from the survival side, 1 - U^(1/n)


def _normal_law(xp: Any) -> Any:
    return special if is_numpy(xp) else device_special


def below_peak(
    key_data: Words, peak_score: Float[Either, "lane column"], n_member: int
) -> Float[Either, "member lane column"]:
    """Scores of `n_member` exchangeable GPUs whose maximum has score `peak_score` on its own probability scale.

    The maximum of n has probability U^(1/n) at uniform U = Phi(peak_score); given it, the others are independent below it. The
    maximum comes first: members are exchangeable. Tails are taken from the survival side, in float32.
    """
    xp, top = namespace(key_data, peak_score), highest_of(peak_score, n_member)
    law = _normal_law(xp)
    if n_member == 1:
        return top[None]
    uniform = uniforms(key_data, n_member, *peak_score.shape).astype(peak_score.dtype)
    others = xp.minimum(law.ndtri(xp.maximum(uniform[1:] * law.ndtr(top)[None], 1e-30)), top[None])
    return xp.concatenate([top[None], others])


def link_factors(
    inputs: ColumnInputs, key: Key[Array, ""] | Words, chunk: Chunk, n_column: int
) -> tuple[Float[Either, "axis lane column"], Float[Either, "lane column"] | None]:
    """Factors of links, the worst of a group's nodes, the end of the step included; and of hand-overs whose links are known."""
    xp, known, edge = namespace(key, chunk), chunk.links, None
    shape = (len(inputs.link), inputs.n_lane, n_column)
    factors = xp.ones(shape, inputs.graph.compute_s.dtype)
    if inputs.varying_links:
        score = normals(named(key, "link"), 1, *shape[1:]).astype(factors.dtype)
        n_drawn = inputs.n_node if known is None else xp.where(known.n_drawn > 0, known.n_drawn, 1.0)
        worst = xp.broadcast_to(highest_of(score, n_drawn), shape)
        factors = xp.stack([chain(own) for chain, own in zip(inputs.link, worst, strict=True)])
    if known is not None:
        factors, edge = xp.maximum(xp.where(known.n_drawn > 0, factors, 0.0), known.slowest), known.edge
    if chunk.regime is None:
        return factors, edge
    return factors * chunk.regime[:, None, :], None if edge is None else edge * chunk.regime[-2][None]

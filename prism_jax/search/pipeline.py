"""Runs the pipelines of many plans at once: their noise-free end times, or those of columns that vary.

Plans stand in the place of draws in the max-plus scan over levels. All plans of a call share the schedule, its table of levels
and its op signatures; their seconds per signature and edge differ. Tables are padded to a few common sizes, so that a search over
any space compiles a few programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int
from numpy.typing import NDArray

from ..core.arrays import Floats, Ints
from ..graph.build import Signatures, numbered, op_signatures
from ..graph.draws import on_accelerator
from ..graph.levels import LevelTable, Rounds, level_tables, op_graph
from ..graph.step_graph import cell, padded, ring_depth, ring_rows, static_levels
from .plan_table import PipelineLayout

Reals, Single = NDArray[np.floating], NDArray[np.float32]
WIDTH = 256  # plans per call: the state of the scan stays in the second-level cache
MAX_PIPELINES = 4096
MANY = 16  # plans of one pipeline from which on the compiled scan, its levels included, takes less time than rounds
MANY_OPS = 1 << 18  # that are run, or laid out, side by side: 20 MB


class ScanTables(NamedTuple):
    """Levels of a pipeline as the compiled scan reads them; levels and lanes are padded to a few common numbers.

    Attributes:
        rows: [level, (signature, rows of the ring, rows of the lags), lane] op of the lane, where the end times of its
            predecessors stand and which edges they crossed; what idles or waits for nobody points at zeros.
        n_used: levels that are not padding.
        depth: levels the ring holds.
        n_ring: rows of the ring, one of zeros at least.
    """

    rows: Ints
    n_used: int
    depth: int
    n_ring: int


class Pipeline:
    """A schedule ready to be run for any plan of its layout.

    Attributes:
        graph: dependencies of its ops.
        ops: their signatures.
        n_lane, n_chunk: stages, and model chunks of all of them.

    Args:
        by_op: every op is a signature of its own, in the order of `graph`, where micro-batches differ.
    """

    def __init__(self, layout: PipelineLayout, n_micro_batch: int, by_op: bool = False) -> None:
        order = layout.pipeline_schedule.lay_out(layout.pp, n_micro_batch, layout.virtual_stages)
        self.graph, self.ops = op_graph(order), op_signatures(order)
        if by_op:
            own = (part[self.ops.of_op] for part in self.ops[1:])
            self.ops = Signatures(np.arange(len(self.ops.of_op)), *own)
        self.n_lane, self.n_chunk = layout.pp, layout.n_chunk
        self._tables: ScanTables | None = None

    @property
    def tables(self) -> ScanTables:
        """Levels of the schedule, made when they are first asked for."""
        with_tables([self])
        assert self._tables is not None
        return self._tables

    def keep(self, table: LevelTable) -> None:
        """Lays out its levels for the scan."""
        n_level, n_lane, n_dep = table.dep_level.shape
        levels, lanes = padded(n_level, MIN_ROWS), padded(n_lane, MIN_LANES, 2)
        more = ((0, levels - n_level), (0, lanes - n_lane), (0, N_DEP - n_dep))
        number, idle, depth = numbered(self.graph.schedule, table), len(self.ops.kind), ring_depth(table.dep_level)
        signature = np.pad(np.where(number >= 0, self.ops.of_op[number], idle), more[:2], constant_values=idle)
        dep_level, dep_lane, dep_edge = (np.pad(part, more, constant_values=-1) for part in table[1:])
        ring, edge = ring_rows(dep_level, dep_lane, depth), np.where(dep_edge < 0, self.n_chunk, dep_edge)
        rows = np.concatenate([signature[..., None], ring, edge], axis=2, dtype=np.int32)
        n_ring = padded(depth * lanes + 1, MIN_ROWS)
        self._tables = ScanTables(np.ascontiguousarray(np.moveaxis(rows, 2, 1)), n_level, depth, n_ring)


N_DEP = 2
MIN_LANES, MIN_ROWS = (
    8,
    256,
)  # rows: levels, op signatures, ends in the ring; less would make more programs, not faster ones


def with_tables(pipes: Iterable[Pipeline]) -> None:
    """Makes the levels of pipelines of several stages that have none yet, many at once."""
    new = [pipe for pipe in dict.fromkeys(pipes) if pipe._tables is None and pipe.n_lane > 1]
    new.sort(key=lambda pipe: len(pipe.graph.lane) // pipe.n_lane)  # alike many levels stand together
    batch = np.cumsum([len(pipe.graph.lane) for pipe in new]) // MANY_OPS
    for number in np.unique(batch):
        some = [pipe for pipe, own in zip(new, batch, strict=True) if own == number]
        for pipe, table in zip(some, level_tables([pipe.graph for pipe in some]), strict=True):
            pipe.keep(table)


def pipeline(layout: PipelineLayout, n_micro_batch: int, *, by_op: bool = False) -> Pipeline:
    """The pipeline of one layout with a number of micro-batches; `by_op` as in `Pipeline`."""
    return _pipeline(layout._replace(schedule=layout.pipeline_schedule), n_micro_batch, by_op)


# Under the schedule itself: a name may stand for another one later.
_pipeline = lru_cache(maxsize=MAX_PIPELINES)(Pipeline)


class PlanRun(NamedTuple):
    """Plans of one pipeline, to be run without randomness.

    Attributes:
        pipe: of their layout and number of micro-batches.
        seconds: [signature, plan] of its ops, in seconds.
        lag_s: [edge, plan] from every chunk to the next, where a send does not occupy the sender.
    """

    pipe: Pipeline
    seconds: Reals
    lag_s: Reals

    @classmethod
    def of(cls, pipe: Pipeline, seconds: Floats, edge_s: Floats, blocking: Floats) -> PlanRun:
        """Runs ops of `seconds` [plan, signature]; `edge_s` [plan, chunk] is lag, or time of the sender if `blocking` [plan]."""
        sent = sent_s(pipe, edge_s) * blocking[:, None]
        return cls(pipe, (seconds + sent).T, (edge_s * (1.0 - blocking)[:, None]).T)


def end_times(runs: Sequence[PlanRun]) -> list[Floats]:
    """Returns the times at which every stage has finished its last op [plan, lane], seconds after the start of the step, run by
    run.

    Notes:
        Many plans of a pipeline go through the compiled scan; few plans of many pipelines are run side by side (`graph.levels`).
    """
    n_op = [len(one.pipe.graph.lane) * one.seconds.shape[1] for one in runs]
    few = [i for i, one in enumerate(runs) if one.pipe.n_lane > 1 and one.seconds.shape[1] < MANY]
    few.sort(key=lambda i: len(runs[i].pipe.graph.lane) // runs[i].pipe.n_lane)  # alike many rounds stand together
    batch = np.cumsum([n_op[i] for i in few]) // MANY_OPS
    found: dict[int, Floats] = {}
    for number in np.unique(batch):
        some = [i for i, own in zip(few, batch, strict=True) if own == number]
        found |= zip(some, _side_by_side([runs[i] for i in some]), strict=True)
    others = [i for i in range(len(runs)) if i not in found]
    found |= {i: ends.T for i, ends in zip(others, run([runs[i] for i in others]), strict=True)}
    return [found[i] for i in range(len(runs))]


def _side_by_side(runs: Sequence[PlanRun]) -> Iterator[Floats]:
    """End times of every run, [plan, lane]."""
    n_plan = [one.seconds.shape[1] for one in runs]
    rounds = Rounds([one.pipe.graph for one, n in zip(runs, n_plan, strict=True) for _ in range(n)])
    seconds, lags = [], []
    for (pipe, own_s, lag_s), n in zip(runs, n_plan, strict=True):
        seconds.append(own_s.astype(np.float32)[pipe.ops.of_op].T.ravel())
        lag = np.append(lag_s.astype(np.float32), np.zeros((1, n), np.float32), axis=0)
        edge = np.pad(pipe.graph.edge, ((0, 0), (0, N_DEP - pipe.graph.edge.shape[1])), constant_values=-1)
        lags.append(lag.T[:, edge].reshape(-1, N_DEP))
    ends = rounds.end_s(np.concatenate(seconds), np.concatenate(lags)).astype(np.float64)
    last = np.cumsum([one.pipe.n_lane * n for one, n in zip(runs, n_plan, strict=True)])[:-1]
    return (own.reshape(n, -1) for own, n in zip(np.split(ends, last), n_plan, strict=True))


def op_counts(pipe: Pipeline) -> NDArray[np.intp]:
    """Number of ops of each signature in a step, [signature]."""
    return np.bincount(pipe.ops.of_op, minlength=len(pipe.ops.lane))


def sent_s(pipe: Pipeline, edge_s: Floats) -> Floats:
    """Seconds [plan, signature] that an op sends to other stages."""
    edge = np.append(edge_s, np.zeros((len(edge_s), 1)), axis=1)  # edge -1: none
    return edge[:, pipe.ops.edge].sum(axis=-1)


def run(runs: Sequence[PlanRun], *, width: int = WIDTH) -> list[Floats]:
    """End times [lane, column] of every run, its columns being plans or draws.

    Args:
        width: columns per block; few pad to a fourth of it.

    Notes:
        One lane waits for nobody, so that its ops add up. A processor runs block after block, an accelerator all of one shape.
    """
    with_tables(one.pipe for one in runs)
    blocks = [
        (k, i) for k, one in enumerate(runs) if one.pipe.n_lane > 1 for i in range(0, one.seconds.shape[1], width)
    ]
    made = (_block(runs[k].pipe, width, *(part[:, i : i + width] for part in runs[k][1:])) for k, i in blocks)
    ends = _at_once([*made]) if on_accelerator() else [_ends(*arrays, n_ring=n_ring) for *arrays, n_ring in made]
    parts: list[list[Floats]] = [[] for _ in runs]
    for (k, i), end in zip(blocks, ends, strict=True):
        n = min(width, runs[k].seconds.shape[1] - i)
        parts[k].append(np.asarray(end, dtype=np.float64)[: runs[k].pipe.n_lane, :n])
    return [
        np.concatenate(own, axis=1) if own else _sum_of_ops(one)[None] for one, own in zip(runs, parts, strict=True)
    ]


def _sum_of_ops(one: PlanRun) -> Floats:
    """Seconds of all ops [column], added one by one, so that no column depends on how many there are."""
    return np.add.accumulate(op_counts(one.pipe)[:, None] * np.asarray(one.seconds, dtype=np.float64))[-1]


class _Block(NamedTuple):
    """Columns of one pipeline, up to a call's width, padded to a common shape; fields as `_ends` has them."""

    rows: Ints
    n_used: np.int32
    depth: np.int32
    seconds: Single
    lag: Single
    n_ring: int


def _block(pipe: Pipeline, width: int, seconds: Reals, lag: Reals) -> _Block:
    n, tables = seconds.shape[1], pipe.tables
    width = width if n > width // 4 else width // 4
    n_row = max(padded(len(seconds) + 1, MIN_ROWS), 2 * padded(len(lag) + 1, MIN_ROWS // 2))
    counts = np.int32(tables.n_used), np.int32(tables.depth)
    return _Block(
        tables.rows, *counts, _to_shape(seconds, n_row, width), _to_shape(lag, n_row // 2, width), tables.n_ring
    )


def _at_once(blocks: Sequence[_Block]) -> list[np.ndarray]:
    """End times [lane, column] of every block: blocks of one shape side by side, in a loop that knows its number of turns."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for number, own in enumerate(blocks):
        alike.setdefault((own.rows.shape, own.seconds.shape, own.n_ring), []).append(number)
    found: dict[int, np.ndarray] = {}
    for numbers in alike.values():
        some = [blocks[number] for number in numbers]
        n_level = static_levels(max(int(own.n_used) for own in some))
        some += some[-1:] * (padded(len(some), 1, 2) - len(some))
        rows, _, depth, seconds, lag = (np.stack(part) for part in [*zip(*some, strict=True)][:5])
        ends = _ends_of_blocks(rows[:, :n_level], depth, seconds, lag, n_ring=some[0].n_ring)
        found.update(zip(numbers, np.asarray(ends), strict=False))
    return [found[number] for number in range(len(blocks))]


@partial(jax.jit, static_argnames="n_ring")
def _ends_of_blocks(
    rows: Int[Array, "block level row lane"],
    depth: Int[Array, " block"],
    seconds: Float[Array, "block op plan"],
    lag: Float[Array, "block edge plan"],
    *,
    n_ring: int,
) -> Float[Array, "block lane plan"]:
    def one(rows: Array, depth: Array, seconds: Array, lag: Array) -> Array:
        return _end_s(rows, rows.shape[0], depth, seconds, lag, n_ring=n_ring)

    return jax.vmap(one)(rows, depth, seconds, lag)


def _to_shape(part: Reals, n_row: int, width: int) -> NDArray[np.float32]:
    """Returns the same in float32, with rows and columns of zeros behind."""
    found = np.zeros((n_row, width), np.float32)
    found[: len(part), : part.shape[1]] = part
    return found


_ROWS = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))


def _rows(values: Float[Array, "row plan"], at: Int[Array, " lane"]) -> Float[Array, "lane plan"]:
    """Rows of `values`, as `values[at]` of indices that are in bounds; a third of the time to trace and lower."""
    size = (1, values.shape[1])
    return lax.gather(values, at[:, None], _ROWS, size, mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def _end_s(
    rows: Int[Array, "level row lane"],
    n_used: Int[Array, ""] | int,
    depth: Int[Array, ""],
    seconds: Float[Array, "op plan"],
    lag: Float[Array, "edge plan"],
    *,
    n_ring: int,
) -> Float[Array, "lane plan"]:
    n_lane, width = rows.shape[2], seconds.shape[1]

    def level(t: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        free, ring = state
        signature, *deps = lax.dynamic_index_in_dim(rows, t, keepdims=False)
        arrivals = [_rows(ring, deps[d]) + _rows(lag, deps[N_DEP + d]) for d in range(N_DEP)]
        _, end = cell(free, arrivals, _rows(seconds, signature), jnp.maximum)
        return end, lax.dynamic_update_slice(ring, end, (t % depth * n_lane, 0))

    zeros = jnp.zeros((n_lane, width), seconds.dtype)
    ring = jnp.zeros((n_ring, width), seconds.dtype)
    return lax.fori_loop(0, n_used, level, (zeros, ring))[0]


_ends = jax.jit(_end_s, static_argnames="n_ring")

"""Runs the pipelines of many plans at once: noise-free end times, and replica columns on draws that all plans see.

Plans stand in the place of draws in the max-plus scan over levels. All plans of a call share the schedule, its table of levels
and its op signatures; their seconds per signature and edge differ. Tables are padded to a few common sizes, so that a search over
any space compiles a few programs.

What varies for the whole step decides the tail: the slowest GPU of every stage, its node, the network's regime. These are drawn
(importance-sampled as in `simulate.importance`, the same draws for all plans of a pipeline) and carried through the max-plus scan
with plans and draws as its columns. What varies from call to call enters by its mean: an op waits for the slowest of its members'
residuals, which lengthens it by a factor given the members' speeds; what is left of it averages out over the ops of a step. So
no random number is made per op, and a plan costs little more than running its pipeline for each column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ..core.arrays import Floats, Ints
from ..core.kernels import COMM_AXES, COMPUTE_CLASSES, KERNEL_CLASSES, NETWORK_AXES
from ..cost.step import collective_classes
from ..graph.build import numbered, op_signatures
from ..graph.draws import on_accelerator, residual_map
from ..graph.levels import LevelTable, Rounds, level_tables, op_graph
from ..graph.step_graph import cell, padded, ring_depth, ring_rows, static_levels
from ..plan.plan import ParallelPlan
from ..simulate.importance import Design, importance_design
from ..simulate.predict import persistent_spread
from ..simulate.replica_maximum import Shared
from ..variability.score_map import NormalScoreMap
from ..variability.tree import Variability
from .plan_table import PipelineLayout, Rows

Reals = NDArray[np.floating]
WIDTH = 256  # plans per call: the state of the scan stays in the second-level cache
MAX_PIPELINES = 4096
MANY = 64  # plans of one pipeline from which on the compiled scan takes less time than rounds of all pipelines
MANY_OPS = 1 << 20  # that are run side by side: 80 MB


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
        graph: what its ops wait for.
        ops: their signatures.
        n_lane, n_chunk: stages, and model chunks of all of them.
    """

    def __init__(self, layout: PipelineLayout, n_micro_batch: int) -> None:
        order = layout.pipeline_schedule.lay_out(layout.pp, n_micro_batch, layout.virtual_stages)
        self.graph, self.ops = op_graph(order), op_signatures(order)
        self.n_lane, self.n_chunk = layout.pp, layout.n_chunk
        self._tables: ScanTables | None = None

    @property
    def tables(self) -> ScanTables:
        """Its levels, made when they are first asked for."""
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
    """Makes the levels of pipelines of several stages that have none yet, all at once."""
    new = [pipe for pipe in dict.fromkeys(pipes) if pipe._tables is None and pipe.n_lane > 1]
    for pipe, table in zip(new, level_tables([pipe.graph for pipe in new]), strict=True):
        pipe.keep(table)


def pipeline(layout: PipelineLayout, n_micro_batch: int) -> Pipeline:
    """The pipeline of one layout with a number of micro-batches."""
    return _pipeline(layout._replace(schedule=layout.pipeline_schedule), n_micro_batch)


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
    """When every stage has finished its last op [plan, lane], seconds after the start of the step, run by run.

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
    """[plan, lane] end times of every run."""
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
    """[signature] how often it runs in a step."""
    return np.bincount(pipe.ops.of_op, minlength=len(pipe.ops.lane))


def sent_s(pipe: Pipeline, edge_s: Floats) -> Floats:
    """[plan, signature] seconds of what an op sends to other stages."""
    edge = np.append(edge_s, np.zeros((len(edge_s), 1)), axis=1)  # edge -1: none
    return edge[:, pipe.ops.edge].sum(axis=-1)


def run(runs: Sequence[PlanRun], *, width: int = WIDTH) -> list[Floats]:
    """End times [lane, column] of every run, its columns being plans or draws.

    Args:
        width: columns per block; few pad to a fourth of it.

    Notes:
        One lane waits for nobody, so that its ops add up. A processor runs block after block, an accelerator all of one shape.
    """
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
        np.concatenate(own, axis=1) if own else (op_counts(one.pipe) @ np.asarray(one.seconds, dtype=np.float64))[None]
        for one, own in zip(runs, parts, strict=True)
    ]


class _Block(NamedTuple):
    """Up to a call's width of columns of one pipeline, padded to a common shape; fields as `_ends` has them."""

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
    """The same in float32 with rows and columns of zeros behind."""
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


REGIME_SCORES = np.array([-1.5, 0.7, 3.0])  # network scores a column is carried at
Single = NDArray[np.float32]
Classes = tuple[str, ...]
N_RESIDUAL = 128  # calls over which the slowest member's residual is averaged
_MEMORY, _P2P, _END = COMPUTE_CLASSES.index("memory"), NETWORK_AXES.index("pp"), NETWORK_AXES.index("end")
RUN_WIDTH = 768  # columns of one call of the scan: 64 draws at all scores are a fourth of it


class ReplicaSizes(NamedTuple):
    """What the draws of replica columns depend on, beside the variability and the seed.

    Attributes:
        classes: compute classes of the model.
        collectives: kernel class of the communication of every network axis.
        pp: pipeline stages.
        n_member, n_replica: devices that synchronise inside an op, and replicas that meet at the end of a step.
        node_size: devices of a node.
    """

    classes: Classes
    collectives: tuple[str, ...]
    pp: int
    n_member: int
    n_replica: int
    node_size: int


class PlanSeconds(NamedTuple):
    """Noise-free seconds of plans that share a pipeline.

    Attributes:
        compute_s: [plan, signature, class].
        comm_s: [plan, signature, axis] exposed.
        edge_s: [plan, chunk] from every chunk to the next.
        blocking: [plan] 1 where a send occupies the sender, 0 where it is a lag.
        end_compute_s, end_exposed_s: [plan, stage] after the last backward pass.
    """

    compute_s: Floats
    comm_s: Floats
    edge_s: Floats
    blocking: Floats
    end_compute_s: Floats
    end_exposed_s: Floats


@dataclass(frozen=True)
class ReplicaDraws:
    """What the columns of plans of one size have in common, in single precision, as the scan runs.

    Attributes:
        chip: [factor, member, lane, column] persistent factors; kernel classes that vary alike share one.
        factor_of: [class] factor of every kernel class.
        wait: [lane, column] mean of the slowest member's residual, relative to the slowest member.
        link: [axis, lane, column]; None where links do not differ.
        regime: [axis, score].
        weight: [column] importance weights.
    """

    chip: Single
    factor_of: Rows
    wait: Single
    link: Single | None
    regime: Single
    weight: Floats


def replica_draws(tree: Variability, sizes: ReplicaSizes, n_column: int, seed: int) -> ReplicaDraws:
    """Draws of `n_column` columns, a power of two; they depend on sizes alone, so that all pipelines of a size share them."""
    classes, names, pp, n_member, n_replica, node_size = sizes
    n_node = max(1, -(-n_member // node_size))
    design = _design(tree, classes, pp, n_replica, n_column, seed)
    chip, factor_of = _chips(tree, classes, design, n_member, n_node, node_size, seed)
    regime = [NormalScoreMap.from_family(tree.of(name).regime)(REGIME_SCORES) for name in names]
    return ReplicaDraws(
        chip=chip,
        factor_of=factor_of,
        wait=_waits(tree, classes, chip[factor_of], seed).astype(np.float32),
        link=_links(tree, names, n_node, (pp, chip.shape[-1]), seed),
        regime=np.stack(regime).astype(np.float32),
        weight=design.weight.ravel(),
    )


def replica_times(several: Sequence[tuple[Pipeline, PlanSeconds, ReplicaDraws]]) -> list[Floats]:
    """[plan, score, column] seconds of one replica, of plans of several pipelines."""
    ends = run([_replica_run(*one) for one in several], width=RUN_WIDTH)
    return [_slowest_lane(*one[1:], own) for one, own in zip(several, ends, strict=True)]


def _replica_run(pipe: Pipeline, plans: PlanSeconds, draws: ReplicaDraws) -> PlanRun:
    """Columns are plans, within them scores, within them draws."""
    shape = (len(plans.blocking), len(REGIME_SCORES), draws.chip.shape[-1])
    blocking = plans.blocking[:, None]
    sent, lag = sent_s(pipe, plans.edge_s) * blocking, plans.edge_s * (1.0 - blocking)
    by_factor = plans.compute_s @ np.eye(len(draws.chip))[draws.factor_of]
    slow = _slowest(by_factor, draws.chip[:, :, pipe.ops.lane]) * draws.wait[pipe.ops.lane][:, None]
    seconds = slow[:, :, None] + _networked(np.append(plans.comm_s, sent[..., None], axis=-1), draws, pipe.ops.lane)
    lag_s = _first_axis(lag)[:, :, None, None] * draws.regime[_P2P][:, None]
    lag_s = np.broadcast_to(lag_s, (len(lag_s), *shape))
    return PlanRun(pipe, seconds.reshape(len(seconds), -1), lag_s.reshape(len(lag_s), -1))


def _slowest_lane(plans: PlanSeconds, draws: ReplicaDraws, ends: Floats) -> Floats:
    """[plan, score, column] end of the step in its slowest lane, of `ends` [lane, column] of the last ops."""
    shape = (len(plans.blocking), len(REGIME_SCORES), draws.chip.shape[-1])
    slowest = draws.chip[draws.factor_of[_MEMORY]].max(axis=0)
    optimizer = plans.end_compute_s.T[:, :, None, None] * slowest[:, None, None]
    exposed = plans.end_exposed_s.T[:, :, None, None] * draws.regime[_END][:, None]
    exposed = exposed * (1.0 if draws.link is None else draws.link[_END][:, None, None])
    return (ends.reshape(-1, *shape) + optimizer + exposed).max(axis=0)


def shared_by_replicas(
    pipe: Pipeline, plans: PlanSeconds, tree: Variability, own: Sequence[ParallelPlan]
) -> list[Shared]:
    """What all replicas of a step share, plan by plan."""
    n_op = op_counts(pipe)
    pp = plans.end_exposed_s.shape[1]
    inside = np.einsum("psa,s->pa", plans.comm_s, n_op) / pp
    found = []
    for i, plan in enumerate(own):
        names = collectives_of(plan)
        families = [tree.of(name).regime for name in names]
        exposed = plans.end_exposed_s[i]
        edge = plans.edge_s[i].sum() * 2.0 * plan.n_micro_batch
        shares = [*inside[i], edge / pp, float(exposed.mean())]
        end_regime = NormalScoreMap.from_family(families[-1])(REGIME_SCORES)
        found.append(
            Shared(
                scores=REGIME_SCORES,
                regime=tuple(zip(families, shares, strict=True)),
                step=tree.step,
                stalls=tree.stalls,
                n_devices=plan.n_devices,
                end_s=exposed.max() * end_regime,
                end_call=tree.of(names[-1]).call,
                step_ar1=tree.step_ar1,
            )
        )
    return found


def collectives_of(plan: ParallelPlan) -> tuple[str, ...]:
    """Kernel class of the communication of every network axis."""
    of_axis = collective_classes(plan)
    return tuple(of_axis.get(axis, "all_reduce") for axis in NETWORK_AXES)


def _mix(classes: Classes) -> Floats:
    """[class] usual share of every compute class: where slow GPUs are looked for."""
    weight = np.array([KERNEL_CLASSES.named(name).mix for name in classes])
    return weight / weight.sum()


def _design(tree: Variability, classes: Classes, pp: int, n_replica: int, n_column: int, seed: int) -> Design:
    varies = any(tree.of(name).gpu.cv > 0 or tree.of(name).node.cv > 0 for name in classes)
    direction = persistent_spread(tree, _mix(classes), classes) if varies else np.zeros(2)
    return importance_design(1, n_column, pp, n_replica, direction, np.ones(pp), seed)


def _chips(
    tree: Variability, classes: Classes, design: Design, n_member: int, n_node: int, node_size: int, seed: int
) -> tuple[Single, Rows]:
    """[factor, member, lane, column] persistent factors, and every class's factor.

    The slowest member's score is the design's, the others lie below it.
    """
    peak = np.moveaxis(design.peak_score, 0, 2).reshape(2, design.peak_score.shape[2], -1)
    rng = np.random.default_rng([seed, 1])
    tail = -np.expm1(np.log(ndtr(peak[0])) / n_member)
    top = -ndtri(tail)
    below = ndtri(np.maximum(rng.random((n_member - 1, *top.shape)) * ndtr(top), 1e-30))
    gpu_z = np.concatenate([top[None], np.minimum(below, top)])
    node_z = np.concatenate([peak[1:], rng.standard_normal((n_node - 1, *top.shape))])
    host = np.minimum(np.arange(n_member) // node_size, n_node - 1)
    families = [(tree.of(name).gpu, tree.of(name).node) for name in classes]
    different = [*dict.fromkeys(families)]
    maps = [[NormalScoreMap.from_family(family) for family in pair] for pair in different]
    factors = np.stack([gpu(gpu_z) * node(node_z)[host] for gpu, node in maps])
    return factors.astype(np.float32), np.array([different.index(pair) for pair in families])


def _waits(tree: Variability, classes: Classes, chip: Single, seed: int) -> Floats:
    """[lane, column] mean over calls of max_m(S_m (1 + residual_m)) / max_m(S_m), for the usual mix of classes."""
    mix = _mix(classes)
    speed = np.einsum("c,cmlk->mlk", mix, chip)
    calls = [tree.of(name).call for name in classes]
    if all(call.cv == 0 for call in calls):
        return np.ones(speed.shape[1:])
    z = np.random.default_rng([seed, 2]).standard_normal((N_RESIDUAL // 2, len(speed)))
    score = np.concatenate([z, -z])
    residual = np.einsum("c,ckm->km", mix, [residual_map(call)(score) for call in calls])
    total = np.zeros(speed.shape[1:])
    for own in residual:
        total += (speed * own[:, None, None]).max(axis=0)
    return total / N_RESIDUAL / speed.max(axis=0)


def _links(tree: Variability, names: tuple[str, ...], n_node: int, shape: tuple[int, int], seed: int) -> Single | None:
    """[axis, lane, column] factor of the worst of a group's links; None where links do not differ."""
    if all(tree.of(name).node.cv == 0 for name in names):
        return None
    score = np.random.default_rng([seed, 3]).standard_normal(shape)
    worst = -ndtri(-np.expm1(np.log(ndtr(score)) / n_node))
    return np.stack([NormalScoreMap.from_family(tree.of(name).node)(worst) for name in names]).astype(np.float32)


def _first_axis(values: Floats) -> Single:
    """[plan, row, ...] -> [row, plan, ...] in single precision."""
    return np.swapaxes(values, 0, 1).astype(np.float32)


def _slowest(compute: Floats, chip: Single) -> Single:
    """[signature, plan, column] seconds of the slowest member.

    Args:
        compute: [plan, signature, factor] noise-free seconds.
        chip: [factor, member, signature, column].
    """
    seconds = _first_axis(compute)[..., None]
    slowest = np.zeros((*seconds.shape[:2], chip.shape[-1]), np.float32)
    for member in range(chip.shape[1]):
        own = sum(seconds[:, :, c] * chip[c, member][:, None] for c in range(chip.shape[0]))
        np.maximum(slowest, own, out=slowest)
    return slowest


def _networked(comm: Floats, draws: ReplicaDraws, lane: Rows) -> Single:
    """[signature, plan, score, column] seconds on the network, by axis of `comm` [plan, signature, axis]: in ops, then sent."""
    seconds, axes = _first_axis(comm), [*range(len(COMM_AXES)), _P2P]
    regime = draws.regime[axes]
    if draws.link is None:
        return (seconds @ regime)[..., None]
    return np.einsum("spa,ag,ask->spgk", seconds, regime, draws.link[axes][:, lane], optimize=True)

"""Tail of the step time of many plans: replica columns on common random numbers, plans of one pipeline side by side.

What varies for the whole step decides the tail: the slowest GPU of every stage, its node, the network's regime. These are drawn
(importance-sampled as in `simulate.importance`, the same draws for all plans of a pipeline) and carried through the max-plus scan
with plans and draws as its columns. What varies from call to call enters by its mean: an op waits for the slowest of its members'
residuals, which lengthens it by a factor given the members' speeds; what is left of it averages out over the ops of a step. So
no random number is made per op, and scoring a plan costs little more than running its pipeline for each column. `predict` draws
every call; finalists are scored by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from .._typing import Floats
from ..cost.step import collective_classes
from ..graph.score import residual_map
from ..graph.signatures import signature_seconds
from ..kernels import COMM_AXES, COMPUTE_CLASSES, KERNEL_CLASSES, NETWORK_AXES
from ..objective import PlanObjective
from ..plan.plan import ParallelPlan
from ..simulate.importance import Design, importance_design
from ..simulate.predict import persistent_spread
from ..simulate.replica_maximum import Shared, step_samples
from ..variability.score_map import NormalScoreMap
from ..variability.tree import Variability
from .evaluate import Evaluator
from .pipeline import Pipeline, pipeline, run, sent_s
from .plans.block import TableCost, chunk_seconds, table_cost
from .plans.plan_cache import Rows
from .plans.table import PlanTable, distinct

REGIME_SCORES = np.array([-1.5, 0.7, 3.0])  # network scores a column is carried at
Single = NDArray[np.float32]
Classes = tuple[str, ...]
N_RESIDUAL = 128  # calls over which the slowest member's residual is averaged
N_STEP_SAMPLES = 1024
_MEMORY, _P2P, _END = COMPUTE_CLASSES.index("memory"), NETWORK_AXES.index("pp"), NETWORK_AXES.index("end")
RUN_WIDTH = 1024  # columns of one call of the scan
COLUMNS_PER_RUN = 1 << 14  # plans times draws built at a time


class _Group(NamedTuple):
    """Plans that share pipeline, member groups and draws."""

    cost: TableCost
    rows: Rows  # of the table of `cost`
    pipe: Pipeline
    n_member: int
    n_replica: int


@dataclass(frozen=True)
class _Draws:
    """What the columns of a group have in common, in single precision, as the scan runs.

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


class TailScorer:
    """Draws of the step time of an evaluator's plans; one seed, one answer, however plans are put together.

    Args:
        evaluator: of the job.
        seed: of all draws.
        variability: in place of the job's, for posterior draws.
    """

    def __init__(self, evaluator: Evaluator, seed: int, variability: Variability | None = None) -> None:
        self.evaluator, self.seed = evaluator, seed
        self.tree = evaluator.job.variability if variability is None else variability
        self._drawn = lru_cache(maxsize=64)(self._draw)

    def samples(self, numbers: Rows, n_column: int) -> Floats:
        """Equally likely step times [plan, sample] of plans by number, seconds, sorted.

        Args:
            numbers: of feasible plans.
            n_column: replica columns per plan, a power of two.
        """
        found = np.empty((len(numbers), N_STEP_SAMPLES))
        for table, at in self.evaluator.tables(numbers):
            found[at] = self.samples_of(table, n_column)
        return found

    def samples_of(self, table: PlanTable, n_column: int) -> Floats:
        """The same for a table of plans."""
        found = np.empty((len(table), N_STEP_SAMPLES))
        for group in self._groups(table):
            draws = self._draws(group, n_column)
            per_run = max(1, COLUMNS_PER_RUN // (n_column * len(REGIME_SCORES)))
            for first in range(0, len(group.rows), per_run):
                some = group._replace(rows=group.rows[first : first + per_run])
                times, shared = self._times(some, draws)
                found[some.rows] = [
                    self._steps(own, draws.weight, group.n_replica, plan)
                    for own, plan in zip(times, shared, strict=True)
                ]
        return found

    def value(self, objective: PlanObjective, plan: ParallelPlan, n_column: int) -> float:
        """Value of one plan, in the unit of the objective."""
        table = PlanTable.of(plan)
        return float(objective.of(self.samples_of(table, n_column), table.n_devices)[0])

    def _steps(self, time_s: Floats, weight: Floats, n_replica: int, shared: Shared) -> Floats:
        rng = np.random.default_rng(self.seed)
        return step_samples(time_s, weight, n_replica, shared, N_STEP_SAMPLES, rng)

    def _groups(self, table: PlanTable) -> list[_Group]:
        cost = table_cost(table, self.evaluator.costs)
        n_member = table.tp * table.cp * table.tied
        first, which = distinct(table.n_micro_batch, n_member, table.n_devices)
        found = []
        for k, row in enumerate(first):
            pipe = pipeline(table.layout, int(table.n_micro_batch[row]))
            n_replica = int(table.n_devices[row] // (table.layout.pp * n_member[row]))
            found.append(_Group(cost, np.flatnonzero(which == k), pipe, int(n_member[row]), n_replica))
        return found

    def _draws(self, group: _Group, n_column: int) -> _Draws:
        table = group.cost.table
        names = tuple(_collectives(table.plan(int(group.rows[0]))))
        return self._drawn(table.layout.pp, group.n_member, group.n_replica, names, n_column)

    def _draw(self, pp: int, n_member: int, n_replica: int, names: tuple[str, ...], n_column: int) -> _Draws:
        """Draws depend on sizes alone, so that all pipelines of a size share them."""
        tree, node_size = self.tree, self.evaluator.job.cluster.node_size
        n_node = max(1, -(-n_member // node_size))
        classes = self.evaluator.job.model.kernel_classes
        design = _design(tree, classes, pp, n_replica, n_column, self.seed)
        chip, factor_of = _chips(tree, classes, design, n_member, n_node, node_size, self.seed)
        regime = [NormalScoreMap.from_family(tree.of(name).regime)(REGIME_SCORES) for name in names]
        return _Draws(
            chip=chip,
            factor_of=factor_of,
            wait=_waits(tree, classes, chip[factor_of], self.seed).astype(np.float32),
            link=_links(tree, names, n_node, (pp, chip.shape[-1]), self.seed),
            regime=np.stack(regime).astype(np.float32),
            weight=design.weight.ravel(),
        )

    def _signature_seconds(self, group: _Group) -> tuple[Floats, Floats]:
        slowdown = self.evaluator.costs.eff.overlap_slowdown
        return signature_seconds(group.pipe.ops, *chunk_seconds(group.cost, group.rows, slowdown, by_class=True))

    def _times(self, group: _Group, draws: _Draws) -> tuple[Floats, list[Shared]]:
        """Replica times [plan, score, column] and what the replicas of each plan share."""
        cost, rows, pipe = group.cost, group.rows, group.pipe
        shape = (len(rows), len(REGIME_SCORES), draws.chip.shape[-1])
        compute, comm = self._signature_seconds(group)
        edge = cost.edge_s[cost.of_edge[rows]]
        blocking = (1.0 - cost.table.overlap_pp[rows][:, None]).astype(np.float64)
        sent, lag = sent_s(pipe, edge) * blocking, edge * (1.0 - blocking)
        by_factor = compute @ np.eye(len(draws.chip))[draws.factor_of]
        slow = _slowest(by_factor, draws.chip[:, :, pipe.ops.lane]) * draws.wait[pipe.ops.lane][:, None]
        seconds = slow[:, :, None] + _networked(np.append(comm, sent[..., None], axis=-1), draws, pipe.ops.lane)
        lag_s = _first_axis(lag)[:, :, None, None] * draws.regime[_P2P][:, None]
        lag_s = np.broadcast_to(lag_s, (len(lag_s), *shape))
        ends = run(pipe, seconds.reshape(len(seconds), -1), lag_s.reshape(len(lag_s), -1), width=RUN_WIDTH)
        optimizer = (
            cost.end.compute_s[rows].T[:, :, None, None]
            * draws.chip[draws.factor_of[_MEMORY]].max(axis=0)[:, None, None]
        )
        exposed = cost.end.exposed_s[rows].T[:, :, None, None] * draws.regime[_END][:, None]
        exposed = exposed * (1.0 if draws.link is None else draws.link[_END][:, None, None])
        return (ends.reshape(-1, *shape) + optimizer + exposed).max(axis=0), self._shared(group, comm, sent)

    def _shared(self, group: _Group, comm: Floats, sent: Floats) -> list[Shared]:
        tree, table = self.tree, group.cost.table
        n_op = _op_counts(group.pipe)
        inside = np.einsum("psa,s->pa", comm, n_op) / table.layout.pp
        edge = group.cost.edge_s[group.cost.of_edge[group.rows]].sum(axis=1) * 2.0 * table.n_micro_batch[group.rows]
        found = []
        for i, row in enumerate(group.rows):
            names = _collectives(table.plan(int(row)))
            families = [tree.of(name).regime for name in names]
            exposed = group.cost.end.exposed_s[row]
            shares = [*inside[i], edge[i] / table.layout.pp, float(exposed.mean())]
            end_regime = NormalScoreMap.from_family(families[-1])(REGIME_SCORES)
            found.append(
                Shared(
                    scores=REGIME_SCORES,
                    regime=tuple(zip(families, shares, strict=True)),
                    step=tree.step,
                    stalls=tree.stalls,
                    n_devices=int(table.n_devices[row]),
                    end_s=exposed.max() * end_regime,
                    end_call=tree.of(names[-1]).call,
                    step_ar1=tree.step_ar1,
                )
            )
        return found


def _op_counts(pipe: Pipeline) -> Rows:
    """[signature] how often it runs in a step."""
    of_op = pipe.ops.of_op
    return np.bincount(of_op[of_op >= 0], minlength=len(pipe.ops.lane))


def _collectives(plan: ParallelPlan) -> list[str]:
    """Kernel class of the communication of every network axis."""
    of_axis = collective_classes(plan)
    return [of_axis.get(axis, "all_reduce") for axis in NETWORK_AXES]


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


def _networked(comm: Floats, draws: _Draws, lane: Rows) -> Single:
    """[signature, plan, score, column] seconds on the network, by axis of `comm` [plan, signature, axis]: in ops, then sent."""
    seconds, axes = _first_axis(comm), [*range(len(COMM_AXES)), _P2P]
    regime = draws.regime[axes]
    if draws.link is None:
        return (seconds @ regime)[..., None]
    return np.einsum("spa,ag,ask->spgk", seconds, regime, draws.link[axes][:, lane], optimize=True)

"""Replica columns of plans: variation of whole steps, drawn once for all plans of a size, and run through their pipelines.

What varies for the whole step decides the tail: the slowest GPU of every stage, its node, the network's regime. These are drawn
(importance-sampled as in `simulate.importance`, the same draws for all plans of a pipeline) and carried through the max-plus scan
with plans and draws as its columns. What varies from call to call enters by its mean: an op waits for the slowest of its members'
residuals, which lengthens it by a factor given the members' speeds; what is left of it averages out over the ops of a step. So
no random number is made per op, and a plan costs little more than running its pipeline for each column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from ..core.arrays import Floats
from ..core.kernels import COMM_AXES, COMPUTE_CLASSES, KERNEL_CLASSES, NETWORK_AXES
from ..cost.step import collective_classes
from ..graph.draws import residual_map
from ..plan.plan import ParallelPlan
from ..simulate.importance import Proposal, proposal
from ..simulate.predict import persistent_spread
from ..simulate.replica_maximum import Shared, StepFactor
from ..variability.score_map import NormalScoreMap
from ..variability.tree import Variability
from .pipeline import Pipeline, PlanRun, Single, op_counts, run, sent_s
from .plan_table import Rows

REGIME_SCORES = np.array([-1.5, 0.7, 3.0])  # network scores a column is carried at
Classes = tuple[str, ...]
COLUMNS_IN_CACHE, MEMBERS_IN_CACHE = 4096, 16  # of half a megabyte with their products
N_RESIDUAL = 128  # calls over which the slowest member's residual is averaged
_MEMORY, _P2P, _END = COMPUTE_CLASSES.index("memory"), NETWORK_AXES.index("pp"), NETWORK_AXES.index("end")
RUN_WIDTH = 768  # columns of one call of the scan: 64 draws at all scores are a fourth of it


class ReplicaSizes(NamedTuple):
    """Sizes that the draws of replica columns depend on, in addition to variability and seed.

    Attributes:
        classes: compute classes of the model.
        collectives: kernel class of the communication of every network axis.
        pp: pipeline stages.
        n_member, n_replica: devices that synchronise inside an op, and replicas that meet at the end of a step.
        node_size: devices of a node.
        work_sd: how much the work of micro-batches adds to a step, relatively.
    """

    classes: Classes
    collectives: tuple[str, ...]
    pp: int
    n_member: int
    n_replica: int
    node_size: int
    work_sd: float = 0.0


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
    """Draws that the columns of plans of one size have in common, in single precision, as the scan runs.

    Attributes:
        chip: [factor, member, lane, column] persistent factors; kernel classes that vary alike share one.
        factor_of: [class] factor of every kernel class.
        wait: [lane, column] mean of the slowest member's residual, relative to the slowest member.
        link: [axis, lane, column]; None where links do not differ.
        regime: [axis, score].
        weight: [column] importance weights.
        drawn: positions of the columns, to draw their work.
    """

    chip: Single
    factor_of: Rows
    wait: Single
    link: Single | None
    regime: Single
    weight: Floats
    drawn: Proposal


class ColumnWork(NamedTuple):
    """Work of the columns of plans that share a pipeline.

    Attributes:
        pipe: their pipeline, every op a signature of its own.
        factor: [op, plan, column] of the compute of ops.
        weight: [plan, column] importance weights of the columns, their work included.
        popularity: [plan] factor of whole steps by the experts that are popular in them; None where there is none.
    """

    pipe: Pipeline
    factor: Single
    weight: Floats
    popularity: Sequence[StepFactor | None]


def replica_draws(tree: Variability, sizes: ReplicaSizes, n_column: int, seed: int) -> ReplicaDraws:
    """Draws of `n_column` columns, a power of two; they depend on sizes alone, so that all pipelines of a size share them."""
    classes, names, pp, n_member, n_replica, node_size, work_sd = sizes
    n_node = max(1, -(-n_member // node_size))
    varies = any(tree.of(name).gpu.cv > 0 or tree.of(name).node.cv > 0 for name in classes)
    direction = persistent_spread(tree, _mix(classes), classes) if varies else np.zeros(2)
    design = proposal(1, n_column, pp, n_replica, direction, np.ones(pp), seed, work_sd)
    chip, factor_of = _chips(tree, classes, design, n_member, n_node, node_size, seed)
    regime = [NormalScoreMap.from_family(tree.of(name).regime)(REGIME_SCORES) for name in names]
    return ReplicaDraws(
        chip=chip,
        factor_of=factor_of,
        wait=_waits(tree, classes, chip[factor_of], seed).astype(np.float32),
        link=_links(tree, names, n_node, (pp, chip.shape[-1]), seed),
        regime=np.stack(regime).astype(np.float32),
        weight=design.weight().ravel(),
        drawn=design,
    )


def replica_times(several: Sequence[tuple[Pipeline, PlanSeconds, ReplicaDraws, ColumnWork | None]]) -> list[Floats]:
    """Seconds of one replica, of plans of several pipelines, [plan, score, column]."""
    ends = run([_replica_run(*one) for one in several], width=RUN_WIDTH)
    return [_slowest_lane(*one[1:3], own) for one, own in zip(several, ends, strict=True)]


def _replica_run(pipe: Pipeline, plans: PlanSeconds, draws: ReplicaDraws, work: ColumnWork | None) -> PlanRun:
    """Columns are plans, within them scores, within them draws."""
    shape = (len(plans.blocking), len(REGIME_SCORES), draws.chip.shape[-1])
    blocking = plans.blocking[:, None]
    sent, lag = sent_s(pipe, plans.edge_s) * blocking, plans.edge_s * (1.0 - blocking)
    by_factor = plans.compute_s @ np.eye(len(draws.chip))[draws.factor_of]
    slow = _slowest(by_factor, draws.chip[:, :, pipe.ops.lane]) * draws.wait[pipe.ops.lane][:, None]
    network = _networked(np.append(plans.comm_s, sent[..., None], axis=-1), draws, pipe.ops.lane)
    if work is not None:
        slow, network = slow[pipe.ops.of_op] * work.factor, network[pipe.ops.of_op]
        pipe = work.pipe
    seconds = slow[:, :, None] + network
    lag_s = _first_axis(lag)[:, :, None, None] * draws.regime[_P2P][:, None]
    lag_s = np.broadcast_to(lag_s, (len(lag_s), *shape))
    return PlanRun(pipe, seconds.reshape(len(seconds), -1), lag_s.reshape(len(lag_s), -1))


def _slowest_lane(plans: PlanSeconds, draws: ReplicaDraws, ends: Floats) -> Floats:
    """End of the step in its slowest lane, [plan, score, column], from the ends of the last ops, `ends` [lane, column]."""
    shape = (len(plans.blocking), len(REGIME_SCORES), draws.chip.shape[-1])
    slowest = draws.chip[draws.factor_of[_MEMORY]].max(axis=0)
    optimizer = plans.end_compute_s.T[:, :, None, None] * slowest[:, None, None]
    exposed = plans.end_exposed_s.T[:, :, None, None] * draws.regime[_END][:, None]
    exposed = exposed * (1.0 if draws.link is None else draws.link[_END][:, None, None])
    return (ends.reshape(-1, *shape) + optimizer + exposed).max(axis=0)


def shared_by_replicas(
    pipe: Pipeline,
    plans: PlanSeconds,
    tree: Variability,
    own: Sequence[ParallelPlan],
    work: ColumnWork | None = None,
) -> list[Shared]:
    """Returns the parts of a step that all replicas share, plan by plan."""
    n_op = op_counts(pipe)
    pp = plans.end_exposed_s.shape[1]
    inside = (plans.comm_s * n_op[:, None]).sum(axis=1) / pp
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
                popularity=None if work is None else work.popularity[i],
            )
        )
    return found


def collectives_of(plan: ParallelPlan) -> tuple[str, ...]:
    """Kernel class of the communication of every network axis."""
    of_axis = collective_classes(plan)
    return tuple(of_axis.get(axis, "all_reduce") for axis in NETWORK_AXES)


def _mix(classes: Classes) -> Floats:
    """Usual share of every compute class, [class]: where slow GPUs are looked for."""
    weight = np.array([KERNEL_CLASSES.named(name).mix for name in classes])
    return weight / weight.sum()


def _chips(
    tree: Variability, classes: Classes, design: Proposal, n_member: int, n_node: int, node_size: int, seed: int
) -> tuple[Single, Rows]:
    """Persistent factors, and every class's factor, [factor, member, lane, column].

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
    """Mean over calls of max_m(S_m (1 + residual_m)) / max_m(S_m), for the usual mix of classes, [lane, column]."""
    mix = _mix(classes)
    speed = np.einsum("c,cmlk->mlk", mix, chip)
    calls = [tree.of(name).call for name in classes]
    if all(call.cv == 0 for call in calls):
        return np.ones(speed.shape[1:])
    z = np.random.default_rng([seed, 2]).standard_normal((N_RESIDUAL // 2, len(speed)))
    score = np.concatenate([z, -z])
    residual = np.einsum("c,ckm->km", mix, [residual_map(call)(score) for call in calls])
    by_column = speed.reshape(len(speed), -1)
    total = np.zeros(by_column.shape[1])
    for first in range(0, len(total), COLUMNS_IN_CACHE):
        some = by_column[:, first : first + COLUMNS_IN_CACHE]
        slowest = np.zeros((N_RESIDUAL, some.shape[1]))
        for m in range(0, len(some), MEMBERS_IN_CACHE):
            members = np.ascontiguousarray(some[m : m + MEMBERS_IN_CACHE])
            for own, found in zip(residual[:, m : m + MEMBERS_IN_CACHE], slowest, strict=True):
                np.maximum(found, (members * own[:, None]).max(axis=0), out=found)
        for found in slowest:
            total[first : first + COLUMNS_IN_CACHE] += found
    return total.reshape(speed.shape[1:]) / N_RESIDUAL / speed.max(axis=0)


def _links(tree: Variability, names: tuple[str, ...], n_node: int, shape: tuple[int, int], seed: int) -> Single | None:
    """Factor of the worst of a group's links, [axis, lane, column]; None where links do not differ."""
    if all(tree.of(name).node.cv == 0 for name in names):
        return None
    score = np.random.default_rng([seed, 3]).standard_normal(shape)
    worst = -ndtri(-np.expm1(np.log(ndtr(score)) / n_node))
    return np.stack([NormalScoreMap.from_family(tree.of(name).node)(worst) for name in names]).astype(np.float32)


def _first_axis(values: Floats) -> Single:
    """[plan, row, ...] -> [row, plan, ...] in single precision."""
    return np.swapaxes(values, 0, 1).astype(np.float32)


def _slowest(compute: Floats, chip: Single) -> Single:
    """Seconds of the slowest member, [signature, plan, column].

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
    """Seconds on the network, [signature, plan, score, column]: in ops, then sent; by axis of `comm` [plan, signature, axis]."""
    seconds = _first_axis(comm)
    link = np.ones((len(draws.regime), 1, 1), np.float32) if draws.link is None else draws.link[:, lane]
    total = np.zeros((*seconds.shape[:2], len(REGIME_SCORES), link.shape[-1]), np.float32)
    for column, axis in enumerate(
        [*range(len(COMM_AXES)), _P2P]
    ):  # a matrix product's order goes with the number of plans
        total += (seconds[:, :, column, None] * draws.regime[axis])[..., None] * link[axis][:, None, None]
    return total

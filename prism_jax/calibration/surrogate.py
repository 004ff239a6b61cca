"""Outline: a step in a few numbers from which its noise-free time follows for any correction, in closed form.

    T = max_stage n_micro (F + B) + (pp - 1) / v (F + B)_middle + max_stage end + transfers on the way

with F and B of a stage from the same `chunk_cost`, and the end from the same `stage_end`, that predictions use. It leaves out
what only the pipeline's graph knows (who waits for whom); over 4,800 measured plans it is within 1% of the simulated step for
four of five. Calibrations fit it, many rows at a time and differentiably; what is predicted is always simulated.

Costs are linear in the factors and the seconds per call of a `CostCorrection`, so a few probes give their coefficients.

Runs alike: what a site's calibration leaves of the runs that it was measured on carries over to jobs made of the same parts.

    own(job) = misfit (sqrt(SHARED) g(parts) + sqrt(1 - SHARED) e)
    g        a Gaussian process, cov = exp(-|parts - parts'|^2 / (2 REACH^2));  e of this run alone

A job that was measured itself is predicted near where it was measured, a job unlike all that were measured as the knobs have
it. A run that is off by far more than configurations are is taken for a bad one: e has a heavy tail. Bands stay as wide as the
knobs have them: on measured sites, narrower ones near measured runs held too little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from math import log2
from typing import Any

import numpy as np

from ..core.arrays import Floats, Values
from ..core.content import ByContent
from ..core.kernels import COMPUTE_CLASSES, knobs_of
from ..cost.block_cost import BlockCost, BlockCostModel, crosses_nodes
from ..cost.chunk_cost import chunk_cost, chunk_of
from ..cost.efficiency import NEUTRAL, SHARE, CostCorrection, Efficiency
from ..cost.partition import chunk_blocks, chunks_of_stage
from ..cost.step_end import EndWork, distance_seconds, edge_distances, end_works, stage_end
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base.workload import Workload

# One way of communicating each, and compute with and without what `fp8` and `expert` multiply.
_IN_NODE = replace(NEUTRAL, network=0.0)
_BETWEEN = replace(NEUTRAL, scale_up=0.0, expert=0.0)
_CALLS_IN_NODE = replace(NEUTRAL, scale_up=0.0, network=0.0, scale_up_call_s=1.0, fp8=0.0)
_CALLS_BETWEEN = replace(NEUTRAL, scale_up=0.0, network=0.0, network_call_s=1.0, fp8=0.0, expert=0.0)
PROBES = (_IN_NODE, _BETWEEN, _CALLS_IN_NODE, _CALLS_BETWEEN)


@dataclass(frozen=True)
class StepSurrogate:
    """Three stages stand for all: the first, the middle and the last. Arrays may have a leading axis [row].

    Attributes:
        compute_s: [stage, part, kind, compute_class]; of `COMPUTE_CLASSES`, whose knobs scale all others; parts are what
            no other factor multiplies, `fp8`, `expert`, and both.
        n_launch, n_waiting: [stage, kind]
        comm_s: [stage, probe, slot] seconds (in a node, between nodes), then calls (in a node, between nodes).
        gather_s, scatter_s: [stage, probe] of the first gathering of parameters, of the last scattering of gradients.
        end_s: [stage, field of EndWork]
        transfer_s: [in a node or between] seconds of the slowest hand-over between stages.
        crosses_nodes: 1 where the ranks that reduce gradients are on several nodes.
        doublings: of the number of nodes.
        blocking: 1 where a hand-over keeps its sender busy.
        n_micro_batch, pp, virtual_stages, tp, cp: of the plan.
        host_launch_s, overlap_slowdown: of the device.
    """

    compute_s: Floats
    n_launch: Floats
    n_waiting: Floats
    comm_s: Floats
    gather_s: Floats
    scatter_s: Floats
    end_s: Floats
    transfer_s: Floats
    crosses_nodes: Floats
    doublings: Floats
    blocking: Floats
    n_micro_batch: Floats
    pp: Floats
    virtual_stages: Floats
    tp: Floats
    cp: Floats
    host_launch_s: Floats
    overlap_slowdown: Floats


def surrogate_of(model: Workload, cluster: Cluster, plan: ParallelPlan, eff: Efficiency) -> StepSurrogate:
    """Outline of one step; `eff` as measured on kernels, its correction is not used.

    Raises:
        PlanError: `layer_split` does not fit.
    """
    return outline_of(BlockCostModel(model, cluster, plan, eff))


def outline_of(blocks: BlockCostModel) -> StepSurrogate:
    """Outline of one step from a model of the blocks, whose correction is not used.

    Raises:
        PlanError: as `surrogate_of`.
    """
    model = blocks.model
    probed = [_stage_blocks(blocks.under(correction)) for correction in PROBES]
    in_node = probed[0]
    return StepSurrogate(
        compute_s=np.stack(
            [_parts(*(_by_knob(probe[k].compute_s, model.kernel_classes) for probe in probed)) for k in range(3)]
        ),
        n_launch=np.stack([piece.n_launch for piece in in_node]),
        n_waiting=np.stack([piece.n_waiting for piece in in_node]),
        comm_s=np.stack([[probe[k].comm_s for probe in probed] for k in range(3)]),
        gather_s=np.array([[probe[k].first_gather_s for probe in probed] for k in range(3)], dtype=float),
        scatter_s=np.array([[probe[k].last_scatter_s for probe in probed] for k in range(3)], dtype=float),
        end_s=_ends(blocks.under(NEUTRAL)),
        transfer_s=_transfers(blocks),
        **_of_plan(blocks),
    )


_LEFT = ("host", "overlap_window", "micro_batch_s")  # knobs that act on a step as a whole, not on single seconds of it
_KNOBS = tuple(item.name for item in fields(CostCorrection) if item.name not in _LEFT)


def seconds_under(blocks: Sequence[BlockCostModel]) -> Floats:
    """[model of blocks] noise-free step time under their own correction, seconds: four times as fast as by outlines.

    Raises:
        PlanError: as `surrogate_of`.
    """
    own = {name: np.array([getattr(one.eff.correction, name) for one in blocks]) for name in _LEFT}
    left = replace(NEUTRAL, **{name: np.zeros(len(blocks)) + getattr(NEUTRAL, name) for name in _KNOBS}, **own)
    return np.asarray(surrogate_seconds(stack([_settled(one) for one in blocks]), left))


def _settled(blocks: BlockCostModel) -> StepSurrogate:
    """An outline in which all that the correction multiplies or adds is already in the seconds."""
    correction, held = blocks.eff.correction, _stage_blocks(blocks)
    compute = np.stack([_by_knob(one.compute_s, blocks.model.kernel_classes) for one in held])
    nothing = np.zeros_like(compute)
    return StepSurrogate(
        compute_s=np.stack([compute, nothing, nothing, nothing], axis=1),
        n_launch=np.stack([one.n_launch for one in held]),
        n_waiting=np.stack([one.n_waiting for one in held]),
        comm_s=_alone([one.comm_s for one in held]),
        gather_s=_alone([one.first_gather_s for one in held]),
        scatter_s=_alone([one.last_scatter_s for one in held]),
        end_s=_ends(blocks),
        transfer_s=_transfers(blocks) * (correction.scale_up, correction.network),
        **_of_plan(blocks),
    )


def _alone(parts: Sequence[Values]) -> Floats:
    """[stage, probe, ...] with the parts [stage, ...] as the first probe and nothing of the others."""
    first = np.stack(parts)
    return np.stack([first, *[np.zeros_like(first)] * (len(PROBES) - 1)], axis=1)


def _of_plan(blocks: BlockCostModel) -> dict[str, Any]:
    """Numbers of an outline that no correction changes."""
    cluster, plan, eff = blocks.cluster, blocks.plan, blocks.eff
    plain = {
        "crosses_nodes": float(crosses_nodes(cluster, *plan.data_group)),
        "doublings": log2(max(cluster.n_devices / cluster.node_size, 1.0)),
        "blocking": float(not plan.overlap.pp),
        "n_micro_batch": float(plan.n_micro_batch),
        "pp": float(plan.pp),
        "virtual_stages": plan.n_chunk / plan.pp,
        "tp": float(plan.tp),
        "cp": float(plan.cp),
        "host_launch_s": eff.host_launch_s,
        "overlap_slowdown": eff.overlap_slowdown,
    }
    return {name: np.array(value) for name, value in plain.items()}


def parts_of_outline(o: StepSurrogate) -> dict[str, Any]:
    """Arrays of an outline by name, without what a subclass adds."""
    return {item.name: getattr(o, item.name) for item in fields(StepSurrogate)}


def stack(outlines: Sequence[StepSurrogate]) -> StepSurrogate:
    """Outlines along a new leading axis [row]."""
    return StepSurrogate(*(np.stack([getattr(one, item.name) for one in outlines]) for item in fields(StepSurrogate)))


def surrogate_seconds(o: StepSurrogate, correction: CostCorrection, xp: Any = np) -> Any:
    """[row] noise-free step time, seconds.

    Args:
        o: stacked outlines.
        correction: its fields are numbers or arrays [row].
        xp: array library of both.
    """
    wide: Any = CostCorrection(
        **{item.name: xp.asarray(getattr(correction, item.name))[..., None] for item in fields(CostCorrection)}
    )
    per_chunk = replace(wide, micro_batch_s=wide.micro_batch_s * o.virtual_stages[..., None])
    eff: Any = _Constants(o.host_launch_s[..., None], o.overlap_slowdown[..., None], per_chunk)
    chunk = chunk_cost(_corrected(o, wide, xp), o.tp[..., None], o.cp[..., None], eff, xp)
    transfer = o.transfer_s[..., 0] * wide.scale_up[..., 0] + o.transfer_s[..., 1] * wide.network[..., 0]
    sent = 2.0 * o.blocking * o.virtual_stages * transfer  # forward and backward
    both = chunk.forward_s + chunk.backward_s + sent[..., None]
    end = stage_end(_end_work(o, wide, xp), chunk.backward_s, chunk.forward_s, eff, xp)
    hops = 2.0 * (o.pp * o.virtual_stages - 1.0) * (1.0 - o.blocking)
    fill = (o.pp - 1.0) / o.virtual_stages * both[..., 1]
    return o.n_micro_batch * both.max(axis=-1) + fill + (end.compute_s + end.exposed_s).max(axis=-1) + hops * transfer


@dataclass(frozen=True)
class _Constants:
    """Constants of an `Efficiency` that `chunk_cost` and `stage_end` need, as arrays."""

    host_launch_s: Any
    overlap_slowdown: Any
    correction: CostCorrection


def _corrected(o: StepSurrogate, correction: CostCorrection, xp: Any) -> BlockCost:
    """[row, stage] blocks under a correction whose fields are [row, 1]."""
    by_class = xp.stack(xp.broadcast_arrays(correction.gemm, correction.attention, correction.memory), axis=-1)[
        ..., None, :
    ]
    factors = (xp.ones_like(correction.expert), correction.fp8, correction.expert, correction.fp8 * correction.expert)
    by_part = xp.stack(xp.broadcast_arrays(*factors), axis=-1)
    by_probe = xp.stack(
        xp.broadcast_arrays(
            correction.scale_up, correction.network, correction.scale_up_call_s, correction.network_call_s
        ),
        axis=-1,
    )
    return BlockCost(
        compute_s=xp.einsum("...pkc,...p->...kc", o.compute_s, by_part) * by_class,
        n_launch=o.n_launch,
        n_waiting=o.n_waiting,
        comm_s=xp.einsum("...ps,...p->...s", o.comm_s, by_probe),
        first_gather_s=xp.einsum("...p,...p->...", o.gather_s, by_probe),
        last_scatter_s=xp.einsum("...p,...p->...", o.scatter_s, by_probe),
    )


def _by_knob(compute_s: Floats, classes: Sequence[str]) -> Floats:
    """[..., knob] of [..., compute_class]: a class of a caller counts with the one whose knob scales it."""
    if len(classes) == len(COMPUTE_CLASSES):
        return compute_s
    at = [COMPUTE_CLASSES.index(knob) for knob in knobs_of(classes)]
    return compute_s @ np.eye(len(COMPUTE_CLASSES))[at]


def _parts(whole: Floats, dense: Floats, whole_16: Floats, dense_16: Floats) -> Floats:
    """[part, kind, compute_class] from compute with all factors one, and without expert layers, fp8, and both."""
    dense_8 = dense - dense_16
    return np.stack([dense_16, dense_8, whole_16 - dense_16, whole - whole_16 - dense_8])


def _end_work(o: StepSurrogate, correction: CostCorrection, xp: Any) -> EndWork:
    """[row, stage]"""
    crosses = o.crosses_nodes[..., None] > 0.0
    factor = xp.where(crosses, correction.network, correction.scale_up)
    call_s = xp.where(crosses, correction.network_call_s, correction.scale_up_call_s)
    work = EndWork(*(o.end_s[..., i] for i in range(len(EndWork._fields))))
    idle_s = correction.step_s + correction.network_step_s * o.doublings[..., None]
    return work._replace(
        reduce_s=work.reduce_s * factor + work.reduce_calls * call_s,
        gather_s=work.gather_s * factor + work.gather_calls * call_s,
        embedding_s=work.embedding_s * factor,
        optimizer_s=work.optimizer_s * correction.optimizer + idle_s,
    )


def _chosen(plan: ParallelPlan) -> tuple[int, int, int]:
    """The first, the middle and the last stage."""
    return 0, plan.pp // 2, plan.pp - 1


def _ends(blocks: BlockCostModel) -> Floats:
    """[stage, field of EndWork] what the chosen stages do at the end of the step."""
    return np.stack(end_works(blocks), axis=-1)[[*_chosen(blocks.plan)]]


def _stage_blocks(blocks: BlockCostModel) -> list[BlockCost]:
    """All that a chosen stage holds, added up."""
    chunks = chunk_blocks(blocks.model, blocks.plan)
    held = [tuple(chunks[chunk] for chunk in chunks_of_stage(blocks.plan, stage)) for stage in _chosen(blocks.plan)]
    made = {own: reduce(BlockCost.__add__, [chunk_of(blocks, chunk) for chunk in own]) for own in set(held)}
    return [made[own] for own in held]


def _transfers(blocks: BlockCostModel) -> Floats:
    """[in a node or between] seconds of the slowest edge; the other entry is zero."""
    model, cluster, plan = blocks.model, blocks.cluster, blocks.plan

    def slowest() -> Floats:
        if plan.pp == 1:
            return np.zeros(2)
        farthest = int(edge_distances(cluster, plan)[:-1].max())
        seconds = distance_seconds(model, cluster, plan)[farthest]
        return np.array([0.0, seconds]) if cluster.fabric.leaves_node(farthest) else np.array([seconds, 0.0])

    return blocks.once("slowest transfer", slowest)


SHARED = 0.75  # of a configuration's deviation, as a variance: runs alike in all their parts still differ by half of it
REACH = 0.1  # between shares of a step's time: where a fifth of it is spent on something else, little carries over
DEGREES = 20.0  # of freedom of that tail
MOST = 400  # measured runs that are remembered: all pairs of them are held against each other
_STEP = 1e-3  # of a knob, relative, in its derivative


@dataclass(frozen=True, eq=False)
class ResidualGP(ByContent):
    """The measured runs of a site.

    Attributes:
        parts: [run, knob] what their steps are made of, as `sensitivities` has it.
        left: [run] logarithm of measured over expected seconds.
        trust: [run] 1 where a run is off by no more than configurations are, towards 0 where it is off by far more.
    """

    parts: Floats
    left: Floats
    trust: Floats

    def log_residual(self, parts: Floats) -> Floats:
        """[job] log factors that carry over to jobs of these `parts` [job, knob]."""
        alone = np.diag((1.0 / self.trust - SHARED) / SHARED)
        return alike(parts, self.parts) @ np.linalg.solve(alike(self.parts, self.parts) + alone, self.left)


def weight_of(left: Floats, misfit: Floats) -> Floats:
    """[run] how far runs that are off by `left` are believed where configurations are off by `misfit`, both [run] logarithms."""
    return np.minimum(1.0, (DEGREES + 1.0) / (DEGREES + (left / misfit) ** 2))


def sensitivities(rows: StepSurrogate, correction: CostCorrection) -> Floats:
    """[row, knob] share of the step's time that hangs on each knob: derivative of one logarithm by the other's."""
    seconds = np.asarray(surrogate_seconds(rows, correction))
    return np.stack(
        [
            (np.asarray(surrogate_seconds(rows, _moved(correction, item.name))) / seconds - 1.0) / _STEP
            for item in fields(correction)
        ],
        axis=-1,
    )


def network_share(rows: StepSurrogate, correction: CostCorrection) -> Floats:
    """[row] share of the step's time that hangs on the network between nodes."""
    seconds = np.asarray(surrogate_seconds(rows, correction))
    return (np.asarray(surrogate_seconds(rows, _moved(correction, "network"))) / seconds - 1.0) / _STEP


def _moved(correction: CostCorrection, knob: str) -> CostCorrection:
    """`correction` with one knob larger by `_STEP` of itself; the share, of what is left to either side."""
    value = getattr(correction, knob)
    return replace(correction, **{knob: value + _STEP * value * (1.0 - value if knob == SHARE else 1.0)})


def alike(parts: Floats, others: Floats) -> Floats:
    """[row, other] correlation of what two steps deviate by."""
    apart = ((parts[:, None] - others[None]) ** 2).sum(axis=-1)
    return np.exp(-0.5 * apart / REACH**2)

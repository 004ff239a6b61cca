"""Seconds of one model chunk for one micro-batch: compute by phase and kernel class, exposed and hidden communication by axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.attention_ops import CORE
from ..workload.op_table import KERNELS, PHASES, OpTable
from ..workload.ops import embedding_ops, head_ops, layer_ops
from ..workload.transformer import TransformerSpec
from .collective import Group, collective_s
from .compute import class_seconds, launch_counts
from .efficiency import Efficiency
from .overlap import Exposure, behind, cut_up
from .sharded import gather_comms
from .step_cost import COMM_AXES, Array
from .traffic import Comm, dispatch_share, embedding_comms, head_comms, layer_comms

_F, _B, _W = 0, 1, 2
_GEMM, _ATTENTION = KERNELS.index("gemm"), KERNELS.index("attention")


@dataclass(frozen=True)
class PieceCost:
    """One layer, the embedding or the head.

    Attributes:
        compute_s: [kind, compute_class] alone on the device, recomputation included in B.
        comms: with recomputation included in B.
        comm_s: seconds of each of `comms`, all its collectives together.
        n_launch: [kind] kernels and collectives that the host starts.
    """

    compute_s: Array
    n_launch: Array
    comms: tuple[Comm, ...]
    comm_s: tuple[float, ...]


@dataclass(frozen=True)
class ChunkCost:
    """Sums over the pieces of a chunk.

    Attributes:
        compute_s: [kind, compute_class], slowed by what runs beside it.
        comm_s, hidden_s: [kind, comm_axis].
    """

    compute_s: Array
    comm_s: Array
    hidden_s: Array

    @property
    def forward_s(self) -> float:
        return float(self.compute_s[_F].sum() + self.comm_s[_F].sum())

    @property
    def backward_s(self) -> float:
        return float(self.compute_s[1:].sum() + self.comm_s[1:].sum())


@dataclass(frozen=True)
class CostModel:
    """Turns pieces of a model into seconds on a cluster under a plan; equal layers are costed once."""

    model: TransformerSpec
    cluster: Cluster
    plan: ParallelPlan
    eff: Efficiency

    def comm_seconds(self, comm: Comm) -> float:
        n_bytes = comm.n_bytes
        if comm.axis == "ep":
            n_bytes *= dispatch_share(Group.of(self.cluster, comm.stride, comm.size).n_node, self.model.top_k)
        return comm.count * collective_s(comm.kind, n_bytes, self.cluster, comm.stride, comm.size).seconds

    @cached_property
    def dense_layer(self) -> PieceCost:
        return self._layer(0)

    @cached_property
    def moe_layer(self) -> PieceCost:
        return self._layer(self.model.n_layers - 1)

    @cached_property
    def embedding(self) -> PieceCost:
        comms = embedding_comms(self.model, self.plan)
        return self._piece(
            embedding_ops(self.model, self.plan), comms, self.model.embedding_params() / self.plan.tp, 0.0
        )

    @cached_property
    def head(self) -> PieceCost:
        comms = head_comms(self.model, self.plan)
        weights = (self.model.vocab * self.model.hidden + self.model.mtp_params()) / self.plan.tp
        return self._piece(head_ops(self.model, self.plan), comms, weights, 0.0)

    def layer(self, layer: int) -> PieceCost:
        return self.moe_layer if self.model.is_moe_layer(layer) else self.dense_layer

    def _layer(self, layer: int) -> PieceCost:
        ops, comms = layer_ops(self.model, self.plan, layer), layer_comms(self.model, self.plan, layer)
        if self.plan.recompute == "full":
            ops += ops.repeated_in_backward()
            comms += [comm._replace(phase="B") for comm in comms if comm.phase == "F"]
        elif self.plan.recompute == "selective":
            ops += ops.repeated_in_backward(CORE)
        params = self.model.layer_params(layer)
        dense = params.dense / self.plan.tp
        return self._piece(ops, comms, dense, params.experts / (self.plan.tp * self.plan.ep))

    def _piece(self, ops: OpTable, comms: list[Comm], dense: float, expert: float) -> PieceCost:
        comms = comms + gather_comms(self.plan, dense, expert)
        seconds = tuple(self.comm_seconds(comm) for comm in comms)
        launches = launch_counts(ops)
        for comm in comms:
            launches[PHASES.index(comm.phase)] += comm.count
        compute = class_seconds(ops, self.cluster.device, self.plan.dtype, self.eff)
        return PieceCost(compute, launches, tuple(comms), seconds)

    def chunk(self, layers: Iterable[int], *, has_embedding: bool, has_head: bool) -> ChunkCost:
        """Cost of a chunk that holds `layers`, and embedding or head if said so."""
        pieces = [self.layer(layer) for layer in layers]
        pieces = [self.embedding] * has_embedding + pieces + [self.head] * has_head
        return combine(pieces, self.plan, self.eff)


def combine(pieces: list[PieceCost], plan: ParallelPlan, eff: Efficiency) -> ChunkCost:
    """Add up pieces and decide what of their communication hides behind what compute."""
    compute = sum((piece.compute_s for piece in pieces), np.zeros((len(PHASES), len(KERNELS))))
    exposed = np.zeros((len(PHASES), len(COMM_AXES)))
    hidden = np.zeros_like(exposed)
    slowed = compute.copy()
    grouped: dict[tuple[str, str, str], float] = {}
    for piece in pieces:
        for comm, seconds in zip(piece.comms, piece.comm_s, strict=True):
            key = (comm.phase, comm.axis, comm.beside)
            grouped[key] = grouped.get(key, 0.0) + seconds
    for (phase, axis, beside), seconds in grouped.items():
        kind, column = PHASES.index(phase), COMM_AXES.index(axis)
        rows, classes = _window(kind, beside)
        window = float(compute[np.ix_(rows, classes)].sum())
        part = _exposure(seconds, window, beside, plan)
        exposed[kind, column] += part.exposed_s
        hidden[kind, column] += part.hidden_s
        if part.hidden_s > 0.0:
            slowed[np.ix_(rows, classes)] *= 1.0 + eff.overlap_slowdown * part.hidden_s / window
    first = _unhidden_gather(pieces)
    exposed[_F, COMM_AXES.index("dp")] += first
    launches = sum((piece.n_launch for piece in pieces), np.zeros(len(PHASES)))
    return ChunkCost(_at_host_pace(slowed, exposed, launches * eff.host_launch_s), exposed, hidden)


def _at_host_pace(compute: Array, exposed: Array, host_s: Array) -> Array:
    """`compute` stretched where the host needs longer to start the kernels than the device to run them; B and W run as one."""
    paced = compute.copy()
    for rows in ([_F], [_B, _W]):
        device = float(compute[rows].sum() + exposed[rows].sum())
        short = float(host_s[rows].sum()) - device
        busy = float(compute[rows].sum())
        if short > 0.0 and busy > 0.0:
            paced[rows] *= 1.0 + short / busy
    return paced


def _window(kind: int, beside: str) -> tuple[list[int], list[int]]:
    """Rows and columns of `compute_s` that run at the same time as a communication of phase `kind`."""
    everything = list(range(len(KERNELS)))
    match beside:
        case "weight_grad":
            return [_W], [_GEMM]
        case "input_grad" | "product":
            return [kind], [_GEMM]
        case "attention":
            return [kind], [_ATTENTION]
        case "chunk":
            return ([_F] if kind == _F else [_B, _W]), everything
        case _:
            return [kind], everything


def _exposure(seconds: float, window: float, beside: str, plan: ParallelPlan) -> Exposure:
    match beside:
        case "":
            return Exposure(seconds, 0.0)
        case "product":
            return cut_up(seconds, window, plan.tp)
        case "attention":  # the first of cp parts is at hand before anything has arrived
            return behind(seconds, window * (plan.cp - 1) / plan.cp)
        case _:
            return behind(seconds, window)


def _unhidden_gather(pieces: list[PieceCost]) -> float:
    """The first gathering of parameters in a chunk has no compute in front of it."""
    for piece in pieces:
        for comm, seconds in zip(piece.comms, piece.comm_s, strict=True):
            if comm.axis == "dp" and comm.phase == "F" and comm.beside:
                return seconds
    return 0.0

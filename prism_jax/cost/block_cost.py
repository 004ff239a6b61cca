"""Seconds of one piece of a model for one micro-batch: a layer of either kind, the embedding, or the head.

Pieces are added up into chunks (`chunk_cost`). What a piece costs depends on few fields of a plan, and the gathering of sharded
parameters on others, so the two are made apart: a sweep over plans makes each of them once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.kernels import KERNELS, PHASES, OpTable
from ..workload.transformer.attention_ops import CORE
from ..workload.transformer.ops import embedding_ops, head_ops, layer_ops
from ..workload.transformer.spec import TransformerSpec
from ..workload.transformer.traffic import Comm, dispatch_share, embedding_comms, head_comms, layer_comms
from .collective import Group, collective_s
from .compute import class_seconds, launch_counts
from .efficiency import Efficiency
from .sharded import gather_comms
from .step_cost import Array

# (phase, axis, what runs beside it): every way a piece communicates
SLOTS = (
    *(("F", "tp", beside) for beside in ("", "product")),
    *(("B", "tp", beside) for beside in ("", "product", "input_grad", "weight_grad")),
    *((phase, "cp", "attention") for phase in "FB"),
    *((phase, "ep", "") for phase in "FB"),
    *((phase, "dp", beside) for phase in "FB" for beside in ("", "chunk")),
)
KINDS_OF_PIECE = ("embedding", "dense_layer", "moe_layer", "head")  # in model order


@dataclass(frozen=True)
class PieceCost:
    """One piece, or a sum of pieces; arrays may have leading axes (plans, chunks).

    Attributes:
        compute_s: [*plan, kind, compute_class] alone on the device, recomputation included in B.
        n_launch: [*plan, kind] kernels and collectives that the host starts.
        comm_s: [*plan, slot] communication by `SLOTS`, recomputation included in B.
        first_gather_s: [*plan] of a gathering of parameters that would be prefetched, if something ran in front of it.
    """

    compute_s: Array
    n_launch: Array
    comm_s: Array
    first_gather_s: Array

    def __add__(self, other: PieceCost) -> PieceCost:
        """Both; the first gathering is that of the one that comes first."""
        return PieceCost(
            self.compute_s + other.compute_s,
            self.n_launch + other.n_launch,
            self.comm_s + other.comm_s,
            np.where(self.first_gather_s > 0.0, self.first_gather_s, other.first_gather_s),
        )

    def times(self, count: int) -> PieceCost:
        """`count` of the same piece, one after another; the first gathering is that of the first, if there is one."""
        first_gather_s = self.first_gather_s * min(count, 1)
        return PieceCost(self.compute_s * count, self.n_launch * count, self.comm_s * count, first_gather_s)

    def at(self, index: Any) -> PieceCost:
        """The pieces at an index of the leading axes."""
        return PieceCost(
            *(getattr(self, name)[index] for name in ("compute_s", "n_launch", "comm_s", "first_gather_s"))
        )


def stack_pieces(pieces: list[PieceCost]) -> PieceCost:
    """Pieces along a new leading axis."""
    names = ("compute_s", "n_launch", "comm_s", "first_gather_s")
    return PieceCost(*(np.stack([getattr(piece, name) for piece in pieces]) for name in names))


@dataclass(frozen=True)
class PieceModel:
    """Turns pieces of a model into seconds on a cluster under a plan; equal layers are costed once."""

    model: TransformerSpec
    cluster: Cluster
    plan: ParallelPlan
    eff: Efficiency

    def whole(self, kind: str) -> PieceCost:
        """A piece with the gathering of its parameters; `kind` is one of `KINDS_OF_PIECE`."""
        return self.alone(kind) + self.gathering(kind)

    def alone(self, kind: str) -> PieceCost:
        """A piece whose parameters are at hand."""
        match kind:
            case "embedding":
                return self._piece(embedding_ops(self.model, self.plan), embedding_comms(self.model, self.plan))
            case "head":
                return self._piece(head_ops(self.model, self.plan), head_comms(self.model, self.plan))
            case "moe_layer":
                layer = self._layer(self._representative(kind))
                return replace(layer, compute_s=layer.compute_s * self.eff.fix.expert)
            case _:
                return self._layer(self._representative(kind))

    def gathering(self, kind: str) -> PieceCost:
        """What sharded parameters add to it: gathered in both passes, their gradients scattered."""
        dense, expert = self._parameters(kind)
        comms = gather_comms(self.plan, dense, expert)
        none = PieceCost(
            np.zeros((len(PHASES), len(KERNELS))), np.zeros(len(PHASES)), np.zeros(len(SLOTS)), np.zeros(())
        )
        return replace(self._communicating(none, comms), first_gather_s=self._first_gather_s(comms))

    def comm_seconds(self, comm: Comm) -> float:
        """All collectives of a `Comm`; dispatch to experts crosses the network once per node, not once per expert."""
        group = Group.of(self.cluster, comm.stride, comm.size)
        network_only = 1.0
        if comm.axis == "ep" and self.model.moe is not None:
            network_only = dispatch_share(group.n_node, self.model.moe.top_k)
        seconds = collective_s(comm.kind, comm.n_bytes * network_only, self.cluster, comm.stride, comm.size).seconds
        factor, call_s = self.eff.fix.comm(group.n_node > 1)
        return comm.count * (factor * seconds + call_s)

    def _representative(self, kind: str) -> int:
        """A layer of this kind."""
        return self.model.n_layers - 1 if kind == "moe_layer" else 0

    def _layer(self, layer: int) -> PieceCost:
        ops, comms = layer_ops(self.model, self.plan, layer), layer_comms(self.model, self.plan, layer)
        if self.plan.recompute == "full":
            ops += ops.repeated_in_backward()
            comms += [comm._replace(phase="B") for comm in comms if comm.phase == "F"]
        elif self.plan.recompute == "selective":
            ops += ops.repeated_in_backward(CORE)
        return self._piece(ops, comms)

    def _parameters(self, kind: str) -> tuple[float, float]:
        """Dense and expert parameters of a piece on one device."""
        model, tp = self.model, self.plan.tp
        match kind:
            case "embedding":
                return model.embedding_params() / tp, 0.0
            case "head":
                return (model.vocab * model.hidden + model.mtp_params()) / tp, 0.0
            case _:
                params = model.layer_params(self._representative(kind))
                return params.dense / tp, params.experts / (tp * self.plan.ep)

    def _piece(self, ops: OpTable, comms: list[Comm]) -> PieceCost:
        compute = class_seconds(ops, self.cluster.device, self.plan.dtype, self.eff)
        return self._communicating(PieceCost(compute, launch_counts(ops), np.zeros(len(SLOTS)), np.zeros(())), comms)

    def _communicating(self, piece: PieceCost, comms: list[Comm]) -> PieceCost:
        """`piece` with the seconds and the launches of its communication."""
        launches, seconds = piece.n_launch.copy(), piece.comm_s.copy()
        for comm in comms:
            launches[PHASES.index(comm.phase)] += comm.count
            seconds[SLOTS.index((comm.phase, comm.axis, comm.beside))] += self.comm_seconds(comm)
        return replace(piece, n_launch=launches, comm_s=seconds)

    def _first_gather_s(self, comms: list[Comm]) -> Array:
        gathers = [comm for comm in comms if comm.phase == "F" and comm.beside]
        return np.array(self.comm_seconds(gathers[0]) if gathers else 0.0)

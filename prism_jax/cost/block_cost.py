"""Seconds of one block of a model for one micro-batch.

Blocks are added up into chunks (`chunk_cost`). What a block costs depends on few fields of a plan, and the gathering of sharded
parameters on others, so the two are made apart: a sweep over plans makes each of them once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._core.arrays import Values, namespace
from .._typing import Floats
from ..kernels import PASSES
from ..partition.weights import block_parameters
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base import Comm, Workload
from .communication import collective_s
from .compute import class_seconds, launch_counts
from .efficiency import Efficiency
from .sharded import gather_comms

# (phase, axis, what runs beside it): every way a block communicates
SLOTS = (
    *(("F", "tp", beside) for beside in ("", "product")),
    *(("B", "tp", beside) for beside in ("", "product", "input_grad", "weight_grad")),
    *((phase, "cp", "attention") for phase in "FB"),
    *((phase, "ep", "") for phase in "FB"),
    *((phase, "dp", beside) for phase in "FB" for beside in ("", "chunk")),
)


@dataclass(frozen=True)
class BlockCost:
    """One block, or a sum of blocks; arrays may have leading axes (plans, chunks).

    Attributes:
        compute_s: [*plan, kind, compute_class] alone on the device, recomputation included in B.
        n_launch: [*plan, kind] kernels and collectives that the host starts.
        comm_s: [*plan, slot] communication by `SLOTS`, recomputation included in B.
        first_gather_s: [*plan] of a gathering of parameters that would be prefetched, if something ran in front of it.
    """

    compute_s: Floats
    n_launch: Floats
    comm_s: Floats
    first_gather_s: Floats

    def __add__(self, other: BlockCost) -> BlockCost:
        """Both; the first gathering is that of the one that comes first."""
        xp = namespace(self.first_gather_s, other.first_gather_s)
        return BlockCost(
            self.compute_s + other.compute_s,
            self.n_launch + other.n_launch,
            self.comm_s + other.comm_s,
            xp.where(self.first_gather_s > 0.0, self.first_gather_s, other.first_gather_s),
        )

    def times(self, count: int) -> BlockCost:
        """`count` of the same block, one after another; the first gathering is that of the first, if there is one."""
        first_gather_s = self.first_gather_s * min(count, 1)
        return BlockCost(self.compute_s * count, self.n_launch * count, self.comm_s * count, first_gather_s)

    def at(self, index: Any) -> BlockCost:
        """The blocks at an index of the leading axes."""
        return BlockCost(
            *(getattr(self, name)[index] for name in ("compute_s", "n_launch", "comm_s", "first_gather_s"))
        )


def stack_blocks(blocks: list[BlockCost]) -> BlockCost:
    """Blocks along a new leading axis."""
    names = ("compute_s", "n_launch", "comm_s", "first_gather_s")
    xp = namespace(blocks)
    return BlockCost(*(xp.stack([getattr(block, name) for block in blocks]) for name in names))


@dataclass(frozen=True)
class BlockCostModel:
    """Turns blocks of a model into seconds on a cluster under a plan; equal blocks are costed once."""

    model: Workload
    cluster: Cluster
    plan: ParallelPlan
    eff: Efficiency

    @cached_property
    def xp(self) -> Any:
        """Array library of the hardware's numbers."""
        return namespace(self.cluster, self.eff)

    def whole(self, kind: str) -> BlockCost:
        """A block with the gathering of its parameters; `kind` as in `Workload.layout`."""
        return self.alone(kind) + self.gathering(kind)

    def alone(self, kind: str) -> BlockCost:
        """A block whose parameters are at hand."""
        block = self.model.block(kind, self.plan)
        kernels = block.kernels
        compute = class_seconds(kernels, self.cluster.device, self.plan.dtype, self.eff, self.model.kernel_classes)
        factor = getattr(self.eff.correction, block.knob) if block.knob else 1.0
        cost = BlockCost(compute * factor, launch_counts(kernels), np.zeros(len(SLOTS)), np.zeros(()))
        return self._communicating(cost, block.comms)

    def gathering(self, kind: str) -> BlockCost:
        """What sharded parameters add to it: gathered in both passes, their gradients scattered."""
        is_unit = all(run.is_unit for run in self.model.layout if run.kind == kind)
        comms = gather_comms(self.plan, self._counts(kind), is_unit) if self.plan.shard_group > 1 else []
        none = BlockCost(
            np.zeros((len(PASSES), len(self.model.kernel_classes))),
            np.zeros(len(PASSES)),
            np.zeros(len(SLOTS)),
            np.zeros(()),
        )
        return replace(self._communicating(none, comms), first_gather_s=self._first_gather_s(comms))

    def alone_of(self, kinds: Sequence[str]) -> BlockCost:
        """Blocks of several kinds, along a leading axis."""
        return stack_blocks([self.alone(kind) for kind in kinds])

    def gathering_of(self, kinds: Sequence[str]) -> BlockCost:
        """What sharded parameters add to each of several kinds, along a leading axis."""
        return stack_blocks([self.gathering(kind) for kind in kinds])

    def comm_seconds(self, comm: Comm) -> Values:
        """Seconds of all collectives of a `Comm`; items that fan out cross the network once per node, not per member."""
        key = (comm.kind, comm.n_bytes, comm.stride, comm.size, comm.fan_out)
        if key not in self._known_s:
            self._known_s[key] = self._collective_s(comm)
        return comm.count * self._known_s[key]

    @cached_property
    def _known_s(self) -> dict[tuple[str, float, int, int, int], Values]:
        """Seconds of one collective by what it is; most blocks repeat theirs."""
        return {}

    def _collective_s(self, comm: Comm) -> Values:
        """Seconds of one collective of a `Comm`."""
        n_node = self.cluster.fabric.n_node(comm.stride, comm.size)
        n_bytes = comm.n_bytes * (dispatch_share(n_node, comm.fan_out) if comm.fan_out else 1.0)
        seconds = collective_s(comm.kind, n_bytes, self.cluster, comm.stride, comm.size).seconds
        factor, call_s = self.eff.correction.comm(n_node > 1)
        return factor * seconds + call_s

    def _counts(self, kind: str) -> list[tuple[float, int]]:
        """(parameters, ranks among which the workload itself divides them) of every group of a block."""
        count = block_parameters(self.model, self.plan, kind)
        return [(float(n), split) for n, (_, split) in zip(count, self.model.groups(self.plan), strict=True)]

    def _communicating(self, block: BlockCost, comms: Sequence[Comm]) -> BlockCost:
        """`block` with the seconds and the launches of its communication."""
        launches, seconds = block.n_launch.copy(), [0.0] * len(SLOTS)
        for comm in comms:
            launches[PASSES.index(comm.phase)] += comm.count
            seconds[SLOTS.index((comm.phase, comm.axis, comm.beside))] += self.comm_seconds(comm)
        return replace(block, n_launch=launches, comm_s=block.comm_s + self.xp.asarray(seconds, dtype=float))

    def _first_gather_s(self, comms: Sequence[Comm]) -> Floats:
        gathers = [comm for comm in comms if comm.phase == "F" and comm.beside]
        return self.xp.asarray(self.comm_seconds(gathers[0]) if gathers else 0.0, dtype=float)


def dispatch_share(n_node: int, top_k: int) -> float:
    """Share of token-expert pairs that cross the network when a token goes to every node once, whoever needs it there.

    Notes:
        A token with k experts spread evenly over N nodes meets `N (1 - (1 - 1/N)^k)` of them; the copies are made over NVLink.

    Source: arXiv 2412.19437 section 3.2.2 and deepseek-ai/DeepEP; Megatron-Core's flex dispatcher does the same.
    """
    if n_node == 1:
        return 1.0
    return n_node * (1.0 - (1.0 - 1.0 / n_node) ** top_k) / top_k

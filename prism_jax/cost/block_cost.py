"""Seconds of one block of a model for one micro-batch: its kernels, collectives, and gathering of its parameters.

Blocks are added up into chunks (`chunk_cost`). What a block costs depends on few fields of a plan, and the gathering of
sharded parameters on others, so the two are made apart: a sweep over plans makes each of them once. Sharded weights (FSDP,
HSDP, ZeRO-3) are gathered before the forward of every layer and again before its backward pass, its gradients are reduced and
scattered after it, for every micro-batch (arXiv 2304.11277). Under `overlap.dp` the next layer is prefetched.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..core.arrays import Floats, Values, is_numpy, namespace
from ..core.errors import SpecError
from ..core.kernels import COMM_AXES, COMPUTE_CLASSES, PASSES
from ..framework.software import DEEPEP, Software
from ..plan.fields import QUANTISED, gradients_on_host
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..system.network import CollectiveTime
from ..workload.base.kernels import KernelTable
from ..workload.base.workload import Comm, LanedBlock, Workload, frozen_groups, kinds_of
from .compute import class_seconds, correction_factors, uncorrected_seconds
from .efficiency import CostCorrection, Efficiency
from .lanes import LanedSeconds, Overlapping, laned_seconds
from .offload import HOST_COPY, host_copies, link_bytes_per_s
from .partition import ChunkBlocks, Gathered, block_parameters, copy_kernels, gather_comms, optimizer_shares, sharded

T = TypeVar("T")


def collective_s(kind: str, n_bytes: float, cluster: Cluster, stride: int, size: int) -> CollectiveTime:
    """Seconds of `kind` over `size` devices `stride` apart, and the algorithm that takes them; 0 without bytes or peers.

    Args:
        kind: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or p2p (then `size` is 2).
        n_bytes: as `Network.collective` counts them.
    """
    if size <= 1 or n_bytes <= 0.0:
        return CollectiveTime(0.0, "none")
    return cluster.fabric.collective(kind, n_bytes, stride, size)


def crosses_nodes(cluster: Cluster, stride: int, size: int) -> bool:
    """Whether the group of `size` devices, `stride` apart, is on several nodes."""
    return cluster.fabric.n_node(stride, size) > 1


HIDDEN = "hidden"  # what a simulation of lanes has hidden already, and made compute pay for
# (phase, axis, simultaneous compute): every way a block communicates
SLOTS = (
    *(("F", "tp", beside) for beside in ("", "product")),
    *(("B", "tp", beside) for beside in ("", "product", "input_grad", "weight_grad")),
    *((phase, "cp", "attention") for phase in "FB"),
    *((phase, "ep", "") for phase in "FB"),
    *((phase, "dp", beside) for phase in "FB" for beside in ("", "chunk")),
    *((phase, "cp", "") for phase in "FB"),
    *((phase, axis, HIDDEN) for phase in "FB" for axis in COMM_AXES),
)


_SLOT_AT = {slot: at for at, slot in enumerate(SLOTS)}


@dataclass(frozen=True)
class BlockCost:
    """One block, or a sum of blocks; arrays may have leading axes (plans, chunks).

    Attributes:
        compute_s: [*plan, kind, compute_class] alone on the device, recomputation included in B.
        n_launch: [*plan, kind] kernels and collectives that the host starts.
        n_waiting: [*plan, kind] of these, those of passes in which the host waits for the device and cannot run ahead of it.
        comm_s: [*plan, slot] communication by `SLOTS`, recomputation included in B.
        first_gather_s: [*plan] of a gathering of parameters that would be prefetched, if something ran in front of it.
        last_scatter_s: [*plan] of a scattering of gradients that would run during the next block, if there were one.
    """

    compute_s: Floats
    n_launch: Floats
    comm_s: Floats
    first_gather_s: Floats | float
    last_scatter_s: Floats | float
    n_waiting: Floats

    def __add__(self, other: BlockCost) -> BlockCost:
        """Adds two costs; the first gathering and, backwards, the last scattering are those of the one that comes first."""
        none = _is_zero(self.first_gather_s)
        return BlockCost(
            self.compute_s + other.compute_s,
            self.n_launch + other.n_launch,
            self.comm_s + other.comm_s,
            self.first_gather_s + none * other.first_gather_s,
            self.last_scatter_s + none * other.last_scatter_s,
            self.n_waiting + other.n_waiting,
        )

    def times(self, count: int) -> BlockCost:
        """`count` of the same block, one after another; of gatherings and scatterings at the ends there is one, or none."""
        once = min(count, 1)
        ends = (self.first_gather_s * once, self.last_scatter_s * once)
        waiting = self.n_waiting * count
        return BlockCost(self.compute_s * count, self.n_launch * count, self.comm_s * count, *ends, waiting)

    def at(self, index: Any) -> BlockCost:
        """The blocks at an index of the leading axes."""
        return BlockCost(*(getattr(self, name)[index] for name in _ARRAYS))


def _is_zero(time_s: Floats | float) -> Any:
    """1 where a time is 0, and 0 elsewhere; without a select, which JAX keeps for the precision it was first traced in."""
    if isinstance(time_s, float):
        return float(time_s == 0.0)
    return 1.0 - namespace(time_s).sign(time_s)


# Neither a first gathering nor a last scattering. These are Python's numbers: JAX keeps one of NumPy's, too, in the precision
# that it was first traced in.
_NO_ENDS = (0.0, 0.0)
_NO_WAIT = np.zeros(len(PASSES))
_ARRAYS = tuple(item.name for item in fields(BlockCost))


class _CostedBlock(NamedTuple):
    """A block with the values that no correction changes.

    Attributes:
        alone_s: [op] uncorrected seconds of its kernels.
        compute_s: values of the knobs that these hang on -> [kind, compute_class] seconds.
        waits: [kind] 1 in passes in which the host waits for the device.
        laned: the block itself if its rows have an order; None: they have none.
    """

    kernels: KernelTable
    alone_s: Values
    compute_s: dict[tuple[float, ...], Floats]
    comms: Sequence[Comm]
    waits: Floats
    laned: LanedBlock | None


# Knobs that change the seconds of blocks, fields of a plan other than its software, and fields of the software that blocks read.
_OF_BLOCKS = tuple(
    item.name
    for item in fields(CostCorrection)
    if item.name not in ("host", "optimizer", "micro_batch_s", "step_s", "network_step_s")
)
_BESIDE_SOFTWARE = tuple(item.name for item in fields(ParallelPlan) if item.name != "software")
_SOFTWARE_OF_BLOCKS = tuple(item.name for item in fields(Software) if item.name not in ("optimizer", "tuning", "date"))


def _is_same(value: Any, other: Any) -> bool:
    """Whether two knobs are equal; those of JAX only if they are one."""
    return value is other or (type(value) is type(other) is float and value == other)


def stack_blocks(blocks: list[BlockCost]) -> BlockCost:
    """Blocks along a new leading axis."""
    xp = namespace(blocks)
    return BlockCost(*(xp.stack([getattr(block, name) for block in blocks]) for name in _ARRAYS))


@dataclass(frozen=True)
class BlockCostModel:
    """Turns blocks of a model into seconds on a cluster under a plan; repeated blocks are costed once."""

    model: Workload
    cluster: Cluster
    plan: ParallelPlan
    eff: Efficiency

    @cached_property
    def xp(self) -> Any:
        """Array library of the hardware's numbers."""
        return namespace(self.cluster, self.eff)

    def under(self, correction: CostCorrection) -> BlockCostModel:
        """Returns the same model under another correction; values that no correction changes are computed once for both."""
        other = replace(self, eff=replace(self.eff, correction=correction))
        vars(other).update(_blocks=self._blocks, _gathers=self._gathers, _known_s=self._known_s, _once=self._once)
        if is_numpy(self.xp):
            vars(other).update(xp=namespace(correction))
        if all(_is_same(getattr(correction, knob), getattr(self.eff.correction, knob)) for knob in _OF_BLOCKS):
            vars(other).update(sums=self.sums, _whole=self._whole)
        return other

    def with_plan(self, plan: ParallelPlan) -> BlockCostModel:
        """Returns the same model under another plan on the same cluster; values that both plans share are computed once."""
        other = replace(self, plan=plan)
        vars(other).update(_known_s=self._known_s)
        if all(getattr(plan, name) == getattr(self.plan, name) for name in _BESIDE_SOFTWARE):
            vars(other).update(_gathers=self._gathers, _once=self._once)
            if all(getattr(plan.software, name) == getattr(self.plan.software, name) for name in _SOFTWARE_OF_BLOCKS):
                vars(other).update(_blocks=self._blocks, sums=self.sums, _whole=self._whole)
        if plan.dtype == self.plan.dtype:
            vars(other).update(_alike=self._blocks)
        return other

    def once(self, what: Hashable, make: Callable[[], T]) -> T:
        """Returns the result of `make`, computed once for all corrections and software that leave it alone."""
        if what not in self._once:
            self._once[what] = make()
        return self._once[what]

    def whole(self, kind: str) -> BlockCost:
        """A block with the gathering of its parameters; `kind` as in `Workload.layout`."""
        if kind not in self._whole:
            alone = self.alone(kind)
            self._whole[kind] = alone + self.gathering(kind) if any(map(len, self._gathered(kind))) else alone
        return self._whole[kind]

    def alone(self, kind: str) -> BlockCost:
        """Returns the cost of a block whose parameters need no gathering."""
        if kind not in self._blocks:
            self._cost_blocks(kind)
        own = self._blocks[kind]
        if own.laned is not None:
            return self._in_order(own.laned, own.kernels, own.alone_s)
        launches, comm_s = self._communicating(own.kernels, own.comms)
        return BlockCost(self._compute_s(own), launches, comm_s, *_NO_ENDS, launches * own.waits)

    def _compute_s(self, own: _CostedBlock) -> Floats:
        """Seconds [kind, compute_class] of the block's kernels, made once for corrections that do not change them."""
        correction, dtype, kernels = self.eff.correction, self.plan.dtype, own.kernels
        knobs = (*COMPUTE_CLASSES, *(("fp8",) if dtype in QUANTISED else ()), *kernels.by_knob)
        values = tuple(getattr(correction, knob) for knob in knobs)
        is_plain, classes = all(type(value) is float for value in values), self.model.kernel_classes
        if not is_plain or values not in own.compute_s:
            found = class_seconds(kernels, self.cluster.device, dtype, self.eff, classes, own.alone_s)
            if not is_plain:
                return found
            own.compute_s[values] = found
        return own.compute_s[values]

    def _in_order(self, block: LanedBlock, kernels: KernelTable, alone_s: Values) -> BlockCost:
        """Costs a block whose rows have an order: its exposed communication is simulated."""
        if not is_numpy(self.xp):
            raise SpecError(
                f"{self.model.name}: a captured program has no derivatives in the hardware. Use differences."
            )
        own = iter(alone_s * correction_factors(kernels, self.cluster.device, self.plan.dtype, self.eff))
        of_class = iter(kernels.class_index(self.model.kernel_classes))
        seconds, classes, launches = [], [], kernels.launches * self.plan.software.host_share
        for row in block.laned:
            if row.comm is not None:
                seconds.append(float(self.comm_seconds(row.comm)))
                classes.append(0)
                launches[PASSES.index(row.comm.phase)] += row.comm.count * row.times * self.plan.software.host_share
            else:
                seconds.append(float(next(own)) / row.times)
                classes.append(int(next(of_class)))
        beside = Overlapping(self.eff.overlap_slowdown, self.eff.correction.overlap_window)
        found = laned_seconds(block, seconds, classes, len(self.model.kernel_classes), beside)
        return BlockCost(found.compute_s, launches, _slots(found), *_NO_ENDS, _NO_WAIT)

    def gathering(self, kind: str) -> BlockCost:
        """Returns what sharded parameters add to a block: they are gathered in both passes, their gradients scattered."""
        comms, table = self._gathered(kind)
        classes = self.model.kernel_classes
        compute = class_seconds(table, self.cluster.device, self.plan.dtype, self.eff, classes)
        ends = self._at_end_s(comms, "all_gather", "F"), self._at_end_s(comms, "reduce_scatter", "B")
        return BlockCost(compute, *self._communicating(table, comms), *ends, _NO_WAIT)

    def comm_seconds(self, comm: Comm) -> Values:
        """Seconds of all collectives of a `Comm`; items that fan out go once to every node that needs them, not per member."""
        key = (comm.kind, comm.n_bytes, comm.stride, comm.size, comm.fan_out)
        if key not in self._known_s:
            self._known_s[key] = self._collective_s(comm)
        seconds, crosses_nodes = self._known_s[key]
        factor, call_s = self.eff.correction.comm(crosses_nodes)
        return comm.count * (factor * seconds + call_s)

    @cached_property
    def sums(self) -> dict[ChunkBlocks, BlockCost]:
        """Sums of the blocks of chunks, see `chunk_cost.chunk_of`."""
        return {}

    @cached_property
    def _whole(self) -> dict[str, BlockCost]:
        return {}

    @cached_property
    def _once(self) -> dict[Hashable, Any]:
        return {}

    @cached_property
    def _alike(self) -> dict[str, _CostedBlock]:
        """Blocks of a plan of the same precision, many of whose kernels are the same."""
        return {}

    @cached_property
    def _blocks(self) -> dict[str, _CostedBlock]:
        """Blocks by kind, with the uncorrected seconds of their kernels."""
        return {}

    @cached_property
    def _gathers(self) -> dict[str, tuple[list[Comm], KernelTable]]:
        """Gathering of sharded parameters by kind of block, and the copies around it."""
        return {}

    @cached_property
    def _known_s(self) -> dict[tuple[str, float, int, int, int], tuple[Values, bool]]:
        """Uncorrected seconds of one collective, by its fields and whether it crosses nodes; most blocks repeat theirs."""
        return {}

    def _gathered(self, kind: str) -> tuple[list[Comm], KernelTable]:
        if kind not in self._gathers:
            is_unit = all(run.is_unit for run in self.model.layout if run.kind == kind)
            counts = self._counts(kind) if self.plan.shard_group > 1 else []
            table = KernelTable.of(copy_kernels(self.plan, counts, is_unit))
            self._gathers[kind] = [*gather_comms(self.plan, counts, is_unit), *self._host_copies(kind)], table
        return self._gathers[kind]

    def _cost_blocks(self, wanted: str) -> None:
        """Costs the kernels of all blocks at once: a few hundred kernels take as long as one."""
        made: dict[str, _CostedBlock] = {}
        for kind in dict.fromkeys((wanted, *kinds_of(self.model))):
            block = self.model.block(kind, self.plan)
            laned = block if isinstance(block, LanedBlock) else None
            waits = np.array([float(phase in block.waits_in) for phase in PASSES])
            own = _CostedBlock(block.kernels, 0.0, {}, () if laned else block.comms, waits, laned)
            known = self._alike.get(kind)
            if known is not None and known.kernels == own.kernels:
                self._blocks[kind] = own._replace(
                    kernels=known.kernels, alone_s=known.alone_s, compute_s=known.compute_s
                )
            else:
                made[kind] = own
        every = KernelTable.of(kernel for own in made.values() for kernel in own.kernels.ops)
        seconds, first = uncorrected_seconds(every, self.cluster.device, self.plan.dtype, self.eff), 0
        for kind, own in made.items():
            self._blocks[kind] = own._replace(alone_s=seconds[first : first + len(own.kernels)])
            first += len(own.kernels)

    def _collective_s(self, comm: Comm) -> tuple[Values, bool]:
        """Uncorrected seconds of one collective of a `Comm`, and whether it crosses nodes."""
        if comm.kind == HOST_COPY:
            return comm.n_bytes / link_bytes_per_s(self.cluster), False
        n_node = self.cluster.fabric.n_node(comm.stride, comm.size)
        if not comm.fan_out:
            return collective_s(comm.kind, comm.n_bytes, self.cluster, comm.stride, comm.size).seconds, n_node > 1
        n_bytes = comm.n_bytes * dispatched(n_node, comm.size, comm.fan_out)
        seconds = collective_s(comm.kind, n_bytes, self.cluster, comm.stride, comm.size).seconds
        if n_node > 1 and self.plan.software.dispatcher == DEEPEP:
            copied_s = comm.n_bytes * dispatch_share(comm.size, comm.fan_out) / DEEPEP_COPIED_BYTES_PER_S
            seconds = self.xp.maximum(seconds, copied_s)
        return seconds, n_node > 1

    def _counts(self, kind: str) -> list[Gathered]:
        """Parameters of a block by group."""
        count = block_parameters(self.model, self.plan, kind)
        frozen, groups = frozen_groups(self.model, self.plan), self.model.groups(self.plan)
        return [Gathered(float(n), split, frozen.get(name)) for n, (name, split) in zip(count, groups, strict=True)]

    def _host_copies(self, kind: str) -> list[Comm]:
        """Copies between device and host that a block waits for or hides."""
        plan = self.plan
        if not (plan.offload_parameters or plan.offload_activations or gradients_on_host(plan)):
            return []
        counts = self._counts(kind)
        n, splits = np.array([(own.count, own.split) for own in counts]).reshape(-1, 2).T
        trained = np.array([own.frozen_bytes is None for own in counts])
        kept = sharded(n, splits, plan.shard_group) if plan.shard_group > 1 else float(n.sum())
        updated = float((n * optimizer_shares(splits, plan)) @ trained)
        return host_copies(self.model, plan, kind, kept, updated)

    def _communicating(self, kernels: KernelTable, comms: Sequence[Comm]) -> tuple[Floats, Floats]:
        """Launches of kernels and of communication, [kind], and seconds of the latter, [slot]."""
        host_share = self.plan.software.host_share
        launches, seconds = kernels.launches * host_share, [0.0] * len(SLOTS)
        for comm in comms:
            launches[PASSES.index(comm.phase)] += comm.count * host_share
            seconds[_SLOT_AT[comm.phase, comm.axis, comm.beside]] += self.comm_seconds(comm)
        return launches, self.xp.asarray(seconds, dtype=float)

    def _at_end_s(self, comms: Sequence[Comm], kind: str, phase: str) -> Floats:
        """Seconds of collectives that run during a neighbour's compute, where there is no neighbour; of all groups."""
        own = (self.comm_seconds(comm) for comm in comms if (comm.kind, comm.phase) == (kind, phase) and comm.beside)
        return self.xp.asarray(sum(own, 0.0), dtype=float)


def _slots(found: LanedSeconds) -> Floats:
    """Simulated seconds [slot] of every axis."""
    seconds = np.zeros(len(SLOTS))
    for number, phase in enumerate("FB"):
        for at, axis in enumerate(COMM_AXES):
            seconds[SLOTS.index((phase, axis, ""))] = found.exposed_s[number, at]
            seconds[SLOTS.index((phase, axis, HIDDEN))] = found.hidden_s[number, at]
    return seconds


# Of the rate of an all-to-all of NCCL's (`Shares`: 0.72 of the port, 0.69 inside a node). DeepEP's own table, 8 H800 per node
# with NVLink of 200 and ports of 50 GB/s: 153 and 158 GB/s inside a node, 58 and 57 GB/s of 4 nodes (three quarters leave).
DEEPEP_PORT, DEEPEP_NVLINK = 0.87 / 0.72, 0.78 / 0.69
# Tokens that have crossed are copied over NVLink by 24 multiprocessors, once to every GPU of the node that needs them. Between
# two nodes that takes longer than crossing: 140 GB/s on H800, 134 to 145 on H200, 205 on H20 (DeepEP issues 285, 493, 148).
DEEPEP_COPIED_BYTES_PER_S = 150e9


def dispatched(n_node: int, size: int, top_k: int) -> float:
    """Bytes of an all-to-all that takes as long as sending every token once, over those of all copies.

    Source: deepseek-ai/DeepEP, README, "Normal kernels with NVLink and RDMA forwarding".
    """
    if n_node == 1:
        return dispatch_share(size, top_k) / DEEPEP_NVLINK
    return dispatch_share(n_node, top_k) / DEEPEP_PORT


def dispatch_share(n_place: int, top_k: int) -> float:
    """Share of token-expert pairs that travel when a token goes once to every place, whatever needs it there.

    Args:
        n_place: nodes of a group, inside which copies are made over NVLink; of a group on one node its devices.

    Notes:
        A token with k experts spread evenly over N places meets `N (1 - (1 - 1/N)^k)` of them.

    Source: arXiv 2412.19437 section 3.2.2 and deepseek-ai/DeepEP; Megatron-Core's flex dispatcher does the same.
    """
    return n_place * (1.0 - (1.0 - 1.0 / n_place) ** top_k) / top_k

"""Workload: a model as blocks; one block gives its time, memory and exchange of gradients to the rest of the package.

A model is a row of blocks in model order. Those of its *body* are dealt to pipeline stages; those placed first or last stay
with the first or the last model chunk. A block is asked for under a plan and then speaks of one device and one micro-batch:
kernels, communication, parameters by how they are sharded, and what it keeps for the backward pass. Parts of a block are made
when they are asked for, so that a sweep over plans makes each of them once per combination of the plan fields that it reads.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from ...core.errors import Problem
from ...core.kernels import COMPUTE_CLASSES
from ...framework.base import MemoryOptions
from ...plan.plan import ParallelPlan
from .kernels import Kernel, KernelTable


class Comm(NamedTuple):
    """`count` equal collectives of `n_bytes` each, over a group of `size` devices `stride` apart.

    Attributes:
        axis: tp | cp | ep | dp.
        kind: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast; bytes as `system/network.py` defines them.
        phase: F | B.
        beside: compute that runs at the same time, empty if nothing does: "weight_grad" and "input_grad", the product of that
            phase (Megatron-LM's asynchronous sequence-parallel backward); "attention", the fused attention kernel (ring
            attention); "chunk", everything the chunk computes (prefetched parameters); "product", the products it is cut up with
            (user-buffer overlap: all but one of tp pieces hide).
        fan_out: all_to_all only: how many members each item goes to. One copy goes to each node, or inside a node to each member,
            that needs it (DeepEP, Megatron-Core's flex dispatcher); 0: every copy goes by itself.
    """

    axis: str
    kind: str
    phase: str
    n_bytes: float
    stride: int
    size: int
    beside: str = ""
    count: float = 1.0
    fan_out: int = 0


class Parameters(NamedTuple):
    """Parameters of a block that are sharded alike, on one device.

    Attributes:
        group: name of the way they are sharded, one of `Workload.groups`.
        count: after tensor and expert parallelism, before ZeRO or FSDP.
        shared: name of a tensor that several blocks use (a tied embedding), empty for none: a stage holds it once, and stages
            that hold copies add up their gradients.
        matrices: (how many, rows, columns) of matrices among them that are as large on this device; of layers alone.
    """

    group: str
    count: float
    shared: str = ""
    matrices: tuple[tuple[float, float, float], ...] = ()


class SavedTensor(NamedTuple):
    """One tensor that lives from the forward to the backward pass of a micro-batch."""

    name: str
    size_bytes: float


class BlockRun(NamedTuple):
    """`count` equal blocks, one after another; a kind whose layers alternate with another's has several runs.

    Attributes:
        kind: name of the block, passed to `Workload.block`.
        place: "body": dealt to pipeline stages; "first", "last": with the first or last model chunk.
        is_unit: gathered and released by itself where parameters are sharded; others are held for the whole step (FSDP's root).
    """

    kind: str
    count: int
    place: str = "body"
    is_unit: bool = True


class Split(NamedTuple):
    """Number of equal parts that an axis can cut a model into, and the name of these parts.

    Attributes:
        n: the degree must divide it; 1: the axis cannot be used.
        what: plural noun for messages: "attention heads".
        is_fixed: ep only: all ranks of dp x cp are one group, whatever their number; n is 0, which every degree divides.
    """

    n: int
    what: str
    is_fixed: bool = False


DENSE = "dense"  # name of the way in which parameters are sharded that every model has


@runtime_checkable
class Block(Protocol):
    """One block on one device, for one micro-batch under a plan.

    Subclasses inherit what holds of blocks that do not communicate and are never recomputed.
    """

    @property
    @abstractmethod
    def kernels(self) -> KernelTable:
        """Kernels of forward (F), input gradient (B) and weight gradient (W); recomputed kernels stand in B again."""

    @property
    def comms(self) -> Sequence[Comm]:
        """Communication inside the block, without gathering of sharded parameters."""
        return ()

    @property
    @abstractmethod
    def parameters(self) -> Sequence[Parameters]:
        """Parameters by how they are sharded."""

    @property
    def waits_in(self) -> Sequence[str]:
        """Phases in which the host waits for something that the device computes before it starts more kernels."""
        return ()

    @abstractmethod
    def saved(self, rules: MemoryOptions) -> Sequence[SavedTensor]:
        """Tensors kept between forward and backward pass."""

    def forward_peak_bytes(self, rules: MemoryOptions) -> float:
        """Bytes held for a moment while the forward pass of the block runs (a loss), in addition to what is saved."""
        return 0.0

    def backward_peak_bytes(self, rules: MemoryOptions) -> float:
        """Bytes held for a moment while the block's gradients are computed, without recomputed tensors."""
        return 0.0

    def recomputed_bytes(self, rules: MemoryOptions) -> float:
        """Bytes of saved tensors that recomputation restores for the block's backward pass."""
        return 0.0


@runtime_checkable
class Workload(Protocol):
    """A model that can be trained: sizes, blocks and FLOPs. Compared by value, hashable, picklable."""

    @property
    def name(self) -> str:
        """Name of the model."""
        ...

    @property
    def sample_unit(self) -> str:
        """Unit in which throughput is counted: "tokens" or "samples"."""
        ...

    @property
    def kernel_classes(self) -> tuple[str, ...]:
        """Compute classes of its kernels: `COMPUTE_CLASSES`, then those of callers that it uses."""
        ...

    @property
    def has_experts(self) -> bool:
        """Whether tokens are routed to experts; the calibration knows such models deviate more."""
        ...

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        """All blocks, in model order."""
        ...

    def groups(self, plan: ParallelPlan) -> tuple[tuple[str, float], ...]:
        """Every way in which parameters are sharded: its name, and among how many ranks of dp x cp the workload divides them.

        Notes:
            No whole number where ranks of tp hold the same ones, too: whole experts (`ParallelPlan.expert_split`).
        """
        ...

    def block(self, kind: str, plan: ParallelPlan) -> Block:
        """One block of the kind `kind`."""
        ...

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        """Activations that a micro-batch hands from one block to the next, of all tensor-parallel ranks together."""
        ...

    def n_params(self) -> int:
        """Parameters of the whole model."""
        ...

    def n_params_active(self) -> int:
        """Parameters that serve one token or sample."""
        ...

    def units_per_step(self, plan: ParallelPlan) -> int:
        """Tokens or samples of a step."""
        ...

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        """FLOPs of a step on all devices: model FLOPs, or with recomputation."""
        ...

    def deeper(self, n: int) -> Workload:
        """Returns the same model with `n` more blocks in its body.

        Raises:
            SpecError: the model has no such variant.
        """
        ...

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        """Returns the numbers that the degrees tp, cp and ep must divide."""
        ...

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        """Yields all other contradictions between plan and model."""
        ...


class WorkloadDefaults:
    """Answers of `Workload` that most models share: shipped kernels, no experts, one way of sharding, all parameters active."""

    @property
    def sample_unit(self) -> str:
        """Samples, of any kind."""
        return "samples"

    @property
    def kernel_classes(self) -> tuple[str, ...]:
        """The kernel classes that ship with the package."""
        return COMPUTE_CLASSES

    @property
    def has_experts(self) -> bool:
        """Whether the model has experts: no."""
        return False

    def groups(self, plan: ParallelPlan) -> tuple[tuple[str, float], ...]:
        """Every rank of dp x cp has all parameters."""
        return ((DENSE, 1),)

    def n_params_active(self: Workload) -> int:
        """Number of active parameters: all of them."""
        return self.n_params()

    def units_per_step(self: Workload, plan: ParallelPlan) -> int:
        """Samples of a step, or their tokens."""
        return round(plan.global_batch * (plan.tokens_per_sequence if self.sample_unit == "tokens" else 1))


def uncut(tp: str, cp: str = "sequence", ep: str = "experts") -> dict[str, Split]:
    """Splits of a model that no axis cuts; the words name the parts that are missing."""
    return {"tp": Split(1, tp), "cp": Split(1, cp), "ep": Split(1, ep)}


class LanedRow(NamedTuple):
    """A kernel or a collective of a block whose order is known.

    Attributes:
        index: place in the order in which the block issues its rows.
        phase: F, B or W.
        times: how often the repeat that it belongs to runs.
        comm, kernel: one of the two.
        wait: index of the first row that needs the collective; None: the next one.
    """

    index: int
    phase: str
    times: int = 1
    comm: Comm | None = None
    kernel: Kernel | None = None
    wait: int | None = None


@runtime_checkable
class LanedBlock(Protocol):
    """A block that says in which order its kernels and collectives are issued, so that their overlap can be simulated."""

    @property
    def laned(self) -> Sequence[LanedRow]:
        """Rows that run once per micro-batch, in order."""
        ...

    @property
    def repeats(self) -> Sequence[tuple[int, int, int]]:
        """(first index, one past the last, times) of what runs several times; they do not overlap."""
        ...


@runtime_checkable
class FixesFields(Protocol):
    """A workload that was made under one plan, of which some fields cannot change."""

    @property
    def fixed_fields(self) -> Sequence[str]:
        """Fields of a plan that keep their value; a search leaves them alone."""
        ...


@runtime_checkable
class PartlyFrozen(Protocol):
    """A workload of which only a part is trained."""

    def frozen_groups(self, plan: ParallelPlan) -> Mapping[str, float]:
        """Groups of parameters that have no gradients, and bytes of one of their parameters; others are trained."""
        ...


def frozen_groups(workload: Workload, plan: ParallelPlan) -> Mapping[str, float]:
    """Groups of a workload's parameters without gradients, and bytes of one of their parameters; empty where all are trained."""
    return workload.frozen_groups(plan) if isinstance(workload, PartlyFrozen) else {}


@runtime_checkable
class UpdatesInStep(Protocol):
    """A workload whose blocks are measured steps, in which the optimizer's update of the parameters is."""

    @property
    def updates_in_step(self) -> bool:
        """True: no update is added to the seconds of the blocks."""
        ...


def updates_in_step(workload: Workload) -> bool:
    """Whether the seconds of the blocks hold the update of the parameters."""
    return isinstance(workload, UpdatesInStep) and workload.updates_in_step


@runtime_checkable
class CompletesPlans(Protocol):
    """A workload from which fields of a plan follow, such as which ranks step together."""

    def completed(self, plan: ParallelPlan, node_size: int) -> ParallelPlan:
        """The plan with these fields, on hosts of `node_size` devices."""
        ...


def completed_plan(workload: Workload, plan: ParallelPlan, node_size: int) -> ParallelPlan:
    """The plan with the fields that follow from the workload; as it is for most."""
    return workload.completed(plan, node_size) if isinstance(workload, CompletesPlans) else plan


@dataclass(frozen=True)
class PlainBlock:
    """A block as its parts, for workloads whose blocks do not depend on much of a plan."""

    kernels: KernelTable
    comms: tuple[Comm, ...] = ()
    parameters: tuple[Parameters, ...] = ()
    saved_tensors: tuple[SavedTensor, ...] = ()
    backward_bytes: float = 0.0
    forward_bytes: float = field(default=0.0, kw_only=True)
    waits_in: tuple[str, ...] = field(default=(), kw_only=True)

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Returns the block's saved tensors, which are the same for every framework."""
        return self.saved_tensors

    def forward_peak_bytes(self, rules: MemoryOptions) -> float:
        """Returns the bytes that the block states for its forward pass."""
        return self.forward_bytes

    def backward_peak_bytes(self, rules: MemoryOptions) -> float:
        """Returns the bytes that the block states for its backward pass."""
        return self.backward_bytes

    def recomputed_bytes(self, rules: MemoryOptions) -> float:
        """Returns 0: nothing is recomputed."""
        return 0.0


def total_bytes(saved: Sequence[SavedTensor]) -> float:
    """Returns the sum of the tensors' sizes, bytes."""
    return sum(tensor.size_bytes for tensor in saved)


def distinct_runs(workload: Workload) -> tuple[BlockRun, ...]:
    """The sorts of block in order of first appearance: runs that differ only in their place among the layers are one."""
    counts: dict[tuple[str, str, bool], int] = {}
    for kind, count, place, is_unit in workload.layout:
        counts[kind, place, is_unit] = counts.get((kind, place, is_unit), 0) + count
    return tuple(BlockRun(kind, count, place, is_unit) for (kind, place, is_unit), count in counts.items())


def kinds_of(workload: Workload) -> tuple[str, ...]:
    """Kinds of block, one for each of `distinct_runs`."""
    return tuple(run.kind for run in distinct_runs(workload))


def n_body(workload: Workload) -> int:
    """Blocks that are dealt to pipeline stages: layers."""
    return sum(run.count for run in workload.layout if run.place == "body")

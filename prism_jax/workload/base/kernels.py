"""KernelTable: the kernels of one block of a model on one device, for one micro-batch.

An `Kernel` is a kernel or a handful of equal kernels; sizes are counts, `flops` are multiply-adds times two, `hbm_bytes` is the
traffic to device memory if nothing stays in cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from ...core.arrays import Counts, Flags, Floats, Values
from ...core.errors import SpecError
from ...core.kernels import PASSES
from ...core.lazy import np
from ...system.hardware import Device


class KernelLaw(Protocol):
    """Seconds of a kernel that do not follow from its sizes alone, such as those of lookups that a cache serves in part."""

    def seconds(self, device: Device, cache_bytes: float) -> Values:
        """Alone on a device with a last-level cache of that size, without the gap before it."""
        ...


# Variants of products and what goes with them: a convolution, one that Winograd's algorithm can do, what only tensor cores need.
CONVOLUTION, WINOGRAD, TENSOR_CORES = "convolution", "winograd", "tensor_cores"
CAST = "cast"  # variant of passes that quantise what a product reads
ROUTED = "expert"  # knob of kernels that route tokens or belong to routed experts


class Kernel(NamedTuple):
    """One kernel signature.

    Attributes:
        phase: F, B or W.
        kernel: class, one of `KERNEL_CLASSES`: gemm (matrix product), attention (fused scores, softmax and values), memory
            (memory-bound), or a caller's own.
        m, n, k, batch: of the matrix product; for attention: query rows, keys, head width, heads times sequences.
        n_launch: kernels started, each time.
        count: how often it runs; a share where only some of the layers run it (recomputation by layer).
        flash_backward: attention only: the fused backward kernel, which is slower per FLOP than the forward.
        variant: of attention: which of `software.FLASH_ATTENTION` it is; of passes: `CAST`; of products:
            `CONVOLUTION`, `WINOGRAD`, `TENSOR_CORES`, or the `kernel` of a `Precision`.
        host_share: host time of starting one of its kernels, over that of a kernel on the lists of `cost/presets`.
        law: its seconds, where they do not follow from its sizes; the class still says how it varies.
        dtype: "plan" where the plan's precision applies, else bf16 or fp32 (scores and router are not run in fp8).
        knob: field of `CostCorrection` that scales it on top of its class's: expert, or none if empty.
    """

    name: str
    phase: str
    kernel: str
    flops: float = 0.0
    hbm_bytes: float = 0.0
    n_launch: float = 1.0
    m: float = 0.0
    n: float = 0.0
    k: float = 0.0
    batch: float = 1.0
    flash_backward: bool = False
    dtype: str = "plan"
    count: float = 1.0
    variant: str = ""
    host_share: float = 1.0
    law: KernelLaw | None = None
    knob: str = ""


def stream(name: str, phase: str, hbm_bytes: float, n_launch: float = 1.0) -> Kernel:
    """A memory-bound pass over `hbm_bytes` bytes."""
    return Kernel(name, phase, "memory", 0.0, hbm_bytes, n_launch)


@dataclass(frozen=True)
class KernelTable:
    """A tuple of ops with its columns as arrays."""

    ops: tuple[Kernel, ...]

    @classmethod
    def of(cls, ops: Iterable[Kernel]) -> KernelTable:
        """The table of some kernels."""
        return cls(tuple(ops))

    def __len__(self) -> int:
        return len(self.ops)

    def __add__(self, other: KernelTable) -> KernelTable:
        return KernelTable(self.ops + other.ops)

    def column(self, name: str) -> Floats:
        """One numeric field of every op, shape [op]."""
        return np.array(self.values(name), dtype=np.float64)

    def values(self, name: str) -> tuple[Any, ...]:
        """Returns one field of every op, [op]."""
        return self._values[Kernel._fields.index(name)] if self.ops else ()

    @cached_property
    def _values(self) -> tuple[tuple[Any, ...], ...]:
        return tuple(zip(*self.ops, strict=True))

    @cached_property
    def phase_index(self) -> Counts:
        """Index into `PASSES`, [op]."""
        return np.array([PASSES.index(phase) for phase in self.values("phase")], dtype=np.int64)

    @cached_property
    def kernel_classes(self) -> tuple[str, ...]:
        """Classes of its kernels, each once."""
        return tuple(dict.fromkeys(self.values("kernel")))

    @cached_property
    def kernel_index(self) -> Counts:
        """Index into `kernel_classes`, [op]."""
        index = {name: number for number, name in enumerate(self.kernel_classes)}
        return np.array([index[name] for name in self.values("kernel")], dtype=np.int64)

    def is_of(self, kernel_class: str) -> Flags:
        """Whether each op is of a class, [op]."""
        known = self.kernel_classes
        return self.kernel_index == (known.index(kernel_class) if kernel_class in known else -1)

    def class_index(self, classes: Sequence[str]) -> Counts:
        """Index of each op's class in `classes`, [op].

        Raises:
            SpecError: a kernel is of none of them.
        """
        if unknown := [name for name in self.kernel_classes if name not in classes]:
            raise SpecError(
                f"kernels of class {', '.join(unknown)}, but the workload states {', '.join(classes)}. Name every class of its "
                "kernels in `kernel_classes`."
            )
        return np.array([classes.index(name) for name in self.kernel_classes], dtype=np.int64)[self.kernel_index]

    def cells(self, classes: Sequence[str]) -> Flags:
        """Masks of the ops of each phase and class of `classes`, class by class of each phase, [phase x class, op].

        Raises:
            SpecError: as `class_index`.
        """
        if (key := tuple(classes)) not in self._cells:
            cell = self.phase_index * len(key) + self.class_index(key)
            self._cells[key] = np.arange(len(PASSES) * len(key))[:, None] == cell
        return self._cells[key]

    @cached_property
    def _cells(self) -> dict[tuple[str, ...], Flags]:
        return {}

    @cached_property
    def launches(self) -> Floats:
        """Kernels that the host starts, [phase]; operations of a chain count with their share of its time."""
        total = np.zeros(len(PASSES))
        if len(self):
            started = self.column("n_launch") * self.column("count") * self.column("host_share")
            np.add.at(total, self.phase_index, started)
        return total

    @cached_property
    def by_knob(self) -> dict[str, Flags]:
        """Further knob -> [op] which ops it scales."""
        own = self.values("knob")
        return {knob: np.array([one == knob for one in own]) for knob in set(own) if knob}

    @cached_property
    def products_in_plan_dtype(self) -> Flags:
        """Matrix products that run in the plan's precision, [op]."""
        return np.array([dtype == "plan" for dtype in self.values("dtype")]) & self.is_of("gemm")

    @cached_property
    def measured_in_step(self) -> Flags | None:
        """Whether the op's seconds were measured inside a step, so that nothing corrects them, [op]; None where none were."""
        found = np.array([law is not None and getattr(law, "in_step", False) for law in self.values("law")], dtype=bool)
        return found if found.any() else None

    def flops(self, *phases: str) -> float:
        """FLOPs of the given phases, all if none is given."""
        return sum(op.count * op.flops for op in self.ops if not phases or op.phase in phases)

    def repeated_in_backward(self, share: Callable[[str], float] = lambda _: 1.0) -> KernelTable:
        """Returns the forward ops as recomputation runs them again in the backward pass; `share` of each, by its name."""
        again = [(op, share(op.name)) for op in self.ops if op.phase == "F"]
        return KernelTable(
            tuple(op._replace(phase="B", name=op.name + " again", count=n * op.count) for op, n in again if n)
        )

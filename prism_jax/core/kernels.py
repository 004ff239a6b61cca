"""Kinds of work in a training step, stated once: passes, kernel classes, axes, recomputation; arrays keep these orders."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from .arrays import Floats
from .errors import Problem, SpecError
from .registry import Registry

PASSES = ("F", "B", "W")  # forward; gradient of the inputs, with recompute; gradient of the weights
COMPUTE_CLASSES = ("gemm", "attention", "memory")  # matrix products; fused attention; bound by device memory
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p")
COMM_AXES = ("tp", "cp", "ep", "dp")  # axes that communicate inside ops; dp: gathering of sharded parameters
LINKS = ("link", "nic")  # of a device: within its node, and its port to others
NETWORK_AXES = (*COMM_AXES, "pp", "end")  # and transfers between stages, and the exchange at the end of the step
# Activations computed again in the backward pass: none, modules, whole layers; by torchtitan's rules. See `plan.recomputation`.
COMMON_RECOMPUTE = ("none", "selective", "full")
RECOMPUTE = (*COMMON_RECOMPUTE, "selective_op", "selective_layer")


class KernelSizes(NamedTuple):
    """Columns [kernel] of the kernels of one class; see `workload.base.kernels.Kernel`."""

    flops: Floats
    hbm_bytes: Floats
    n_launch: Floats
    m: Floats
    n: Floats
    k: Floats
    batch: Floats


class Roof(NamedTuple):
    """Limits of the kernels of one class on one device.

    Attributes:
        peak_flops_per_s: [kernel] of the tensor cores, in the precision that each kernel runs in.
        hbm_bytes_per_s: of device memory.
        n_sm: multiprocessors.
        gemm_s: (m, n, k, batch) -> [kernel] seconds of matrix products of these sizes, with the device's constants.
    """

    peak_flops_per_s: Floats
    hbm_bytes_per_s: float
    n_sm: int
    gemm_s: Callable[[Any, Any, Any, Any], Floats]


@dataclass(frozen=True)
class KernelClass:
    """One class of compute kernels: whose time follows from its sizes alike, and that varies alike between GPUs.

    Attributes:
        name: in kernels of a workload, variability sections, tables and reports.
        about: what such kernels are, in a line.
        busy_s: seconds [kernel] in which arithmetic keeps the device busy; the cost model takes the longer of this and the time
            of the kernel's bytes, and adds launches. None: device memory alone limits the class (and for gemm and attention,
            whose laws are part of `cost.compute`).
        knob: factor of a calibration that scales its seconds: gemm, attention or memory; a calibration has none for new classes.
        varies_like: class whose variability it has where a tree does not name it; empty for none.
        mix: weight, relative to 0.75 of gemm, with which a search looks for slow GPUs before it knows a job's own mix.
        words: name in sentences; `name` if empty.
        colour: "#rrggbb" in pictures; grey if empty.
    """

    name: str
    about: str
    busy_s: Callable[[KernelSizes, Roof], Floats] | None = None
    knob: str = "memory"
    varies_like: str = "memory"
    mix: float = 0.1
    words: str = ""
    colour: str = ""

    def __post_init__(self) -> None:
        if self.name in COLLECTIVES or not self.name.isidentifier():
            raise SpecError.of(Problem("name", f"{self.name!r}, but it must be a word of its own"), "kernel class")
        for field, known in (("knob", COMPUTE_CLASSES), ("varies_like", (*COMPUTE_CLASSES, ""))):
            value = getattr(self, field)
            if value not in known:
                text = f"{value!r}, but it must be one of {', '.join(COMPUTE_CLASSES)}"
                raise SpecError.of(Problem(field, text), f"kernel class {self.name}")


SHIPPED = (
    KernelClass("gemm", "matrix products", None, "gemm", "", 0.75, "GEMM", "#332288"),
    KernelClass("attention", "fused attention", None, "attention", "", 0.1, "attention", "#88CCEE"),
    KernelClass("memory", "bound by device memory", None, "memory", "", 0.15, "memory-bound", "#44AA99"),
)
KERNEL_CLASSES: Registry[KernelClass] = Registry("kernel class", lambda: SHIPPED)


def varying_classes() -> tuple[str, ...]:
    """Names of all kernel classes that may vary: compute, then collectives."""
    return (*KERNEL_CLASSES.names, *COLLECTIVES)


def knobs_of(classes: Iterable[str]) -> list[str]:
    """Knob of each of some compute classes."""
    return [KERNEL_CLASSES.named(name).knob for name in classes]

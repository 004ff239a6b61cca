"""Kernels of the operations of a capture, as the cost model knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...plan.plan import ParallelPlan
from ...plan.precision import QUANTISED
from ...system.hardware import Device
from ..kernels import CONVOLUTION, Kernel
from .rows import CapturedOp

# Host time of an operation of an eager framework over that of a listed kernel: 75 us, which stands for three launches of 23 us.
# Plain PyTorch starts 1.6 kernels for a row of its capture; a step that the host paces takes 37 us a row
# (experiments/capture/measured_gpu).
OPERATION_SHARE = 0.5
# The same of a kernel of a program that XLA compiled: started from C++, a few microseconds each, without Python in between.
# BERT-large in JAX starts 2,496 kernels in a step of 43 ms that the device paces (the same): less than 17 us.
COMPILED_SHARE = 0.1
_BACKWARD_LAUNCHES = 3.0  # of fused attention: preprocess, keys and values, queries (arXiv 2307.08691)
# Of the backward pass of a norm: gradient of the input, those of the weights (aten/src/ATen/native/cuda/layer_norm_kernel.cu).
_NORM_BACKWARD, _NORM_LAUNCHES = "norm_backward", 2.0


@dataclass(frozen=True)
class MeasuredSeconds:
    """A kernel whose time was measured inside a step: no correction from microbenchmarks to steps applies to it.

    Attributes:
        alone_s: seconds on the device that it was measured on.
    """

    alone_s: float
    in_step: ClassVar[bool] = True

    def seconds(self, device: Device, cache_bytes: float) -> float:
        """As measured, whatever the device."""
        return self.alone_s


def kernel_of(op: CapturedOp, plan: ParallelPlan, *, host_share: float) -> Kernel:
    """One operation as a kernel that runs `op.count` times; `host_share`: of starting it, over a listed kernel."""
    law = None if op.seconds is None else MeasuredSeconds(op.seconds)
    name = f"{op.module}.{op.name}" if op.module else op.name
    kernel = Kernel(
        name, op.phase, "memory", op.flops, op.n_bytes, count=float(op.count), law=law, host_share=host_share
    )
    if op.kind in ("gemm", "conv"):
        m, n, k, batch = (float(size) for size in op.sizes)
        variant = CONVOLUTION if op.kind == "conv" else ""
        return kernel._replace(kernel="gemm", m=m, n=n, k=k, batch=batch, variant=variant, dtype=_dtype(op, plan))
    if op.kind != "attention":
        launches = _NORM_LAUNCHES if _NORM_BACKWARD in op.name else 1.0
        return kernel._replace(flops=0.0, n_launch=launches)
    batch, rows, keys, d_qk, d_v = (float(size) for size in op.shape)
    fused = kernel._replace(kernel="attention", m=rows, n=keys, k=(d_qk + d_v) / 2, batch=batch, dtype="bf16")
    backward = op.phase != "F"
    return fused._replace(
        variant=plan.attention_kernel,
        flash_backward=backward,
        n_launch=_BACKWARD_LAUNCHES if backward else 1.0,
    )


def _dtype(op: CapturedOp, plan: ParallelPlan) -> str:
    """Format that it runs in: that of the plan, or 16 bits where it leaves fp8."""
    if plan.dtype in QUANTISED and op.dtype not in ("fp8", "fp4", plan.dtype):
        return "bf16"
    return "plan"

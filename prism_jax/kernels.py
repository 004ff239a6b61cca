"""Kinds of work in a training step, stated once: passes, kernel classes, axes, recomputation; arrays keep these orders."""

from __future__ import annotations

PASSES = ("F", "B", "W")  # forward; gradient of the inputs, with recompute; gradient of the weights
COMPUTE_CLASSES = ("gemm", "attention", "memory")  # matrix products; fused attention; bound by device memory
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p")
KERNEL_CLASSES = COMPUTE_CLASSES + COLLECTIVES
COMM_AXES = ("tp", "cp", "ep", "dp")  # axes that communicate inside ops; dp: gathering of sharded parameters
NETWORK_AXES = (*COMM_AXES, "pp", "end")  # and transfers between stages, and the exchange at the end of the step
RECOMPUTE = (
    "none",
    "selective",
    "full",
)  # activations computed again in the backward pass: none, attention, whole layers

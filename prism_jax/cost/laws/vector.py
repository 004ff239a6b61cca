"""Seconds of element-wise kernels and of kernels over rows (softmax, layer norm): bytes, arithmetic, rows.

    t = max(bytes passes / bandwidth, elements operations / vector peak) + rows row_s / multiprocessors

Bytes that the last-level cache holds are read faster (`compute.stream_s`). Operations are FP32 instructions per element; on all
NVIDIA parts they stay below the bytes, AMD's `pow` does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..._core.lazy_numpy import np
from ..._typing import Floats
from ...system.hardware import Device
from ..compute import stream_s
from ..efficiency import Efficiency


class VectorOp(NamedTuple):
    """An operation.

    Attributes:
        moved: values read and written per element.
        kind: binary (two inputs), unary, softmax, norm.
        is_power: whether it raises to a power, which takes tens of instructions.
    """

    moved: float
    kind: str
    is_power: bool = False


VECTOR_OPS = {
    **{name: VectorOp(3.0, "binary", name == "pow") for name in ("add", "sub", "mul", "div", "pow")},
    **{
        name: VectorOp(2.0, "unary", name == "powu")
        for name in ("addu", "mulu", "divu", "powu", "relu", "gelu", "tanh")
    },
    "softmax": VectorOp(2.0, "softmax"),
    "ln": VectorOp(2.0, "norm"),
}
"""Operations by their name in tables; a trailing u is one with a number as its second operand."""


@dataclass(frozen=True)
class VectorConstants:
    """What the efficiency of a generation does not hold.

    Attributes:
        softmax_passes, norm_passes: bytes moved over one read and one write.
        softmax_row_s, norm_row_s: of a row on a multiprocessor.
        power_operations: instructions of a power, per element, where it is computed by the vector units (AMD).
    """

    softmax_passes: float
    norm_passes: float
    softmax_row_s: float
    norm_row_s: float
    power_operations: float


def vector_s(
    op: VectorOp, rows: Floats, width: Floats, device: Device, eff: Efficiency, constants: VectorConstants
) -> Floats:
    """[kernel] seconds of an operation on `rows` x `width` values in fp32, without the start of the kernel."""
    n = np.asarray(rows, dtype=np.float64) * np.asarray(width, dtype=np.float64)
    passes = {"softmax": constants.softmax_passes, "norm": constants.norm_passes}.get(op.kind, 1.0)
    moved = stream_s(4.0 * op.moved * passes * n, 1.0, device.hbm_bytes_per_s, eff)
    row_s = {"softmax": constants.softmax_row_s, "norm": constants.norm_row_s}.get(op.kind, 0.0)
    if op.is_power and device.generation.startswith("cdna"):
        moved = np.maximum(
            moved, n * constants.power_operations / (0.5 * device.peak("fp32"))
        )  # vector peak: half the matrix peak
    return moved + rows * row_s / device.n_sm

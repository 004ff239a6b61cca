"""StepCost: noise-free seconds of everything one member group does in a step, per model chunk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .._typing import Floats
from ..kernels import COMPUTE_CLASSES


@dataclass(frozen=True)
class StepCost:
    """Seconds per (op kind, model chunk); a schedule that does not split the backward runs B and W as one op.

    Attributes:
        compute_s: [kind, chunk, compute_class] busy time of one device, already slowed by communication that runs beside it.
        comm_s: [kind, chunk, comm_axis] exposed communication inside an op.
        hidden_comm_s: [kind, chunk, comm_axis] communication that runs beside compute.
        p2p_s: [chunk] time to hand activations of chunk q to chunk q + 1 on another stage (gradients take the same); last is 0.
        p2p_blocking: the send also occupies the sender (no overlap).
        end_compute_s: [stage] optimizer update, memory-bound.
        end_comm_s: [stage] exposed gradient reduction and parameter gathering after the last backward.
        end_hidden_comm_s: [stage] the part of it that runs under the backward.
        collective_of: axis -> kernel class of its communication, for tp, cp, ep, dp, pp and end.
        model_flops: of the whole step and all devices, without recompute (MFU).
        hardware_flops: with recompute (HFU).
        classes: names along the axis compute_class; `COMPUTE_CLASSES` come first.
    """

    compute_s: Floats
    comm_s: Floats
    hidden_comm_s: Floats
    p2p_s: Floats
    p2p_blocking: bool
    end_compute_s: Floats
    end_comm_s: Floats
    end_hidden_comm_s: Floats
    collective_of: Mapping[str, str]
    model_flops: float
    hardware_flops: float
    classes: tuple[str, ...] = COMPUTE_CLASSES

"""Correction: how measured training steps differ from what kernels and links alone would take.

Factors multiply seconds; seconds are added. The neutral correction leaves every cost as the kernel model has it. Values come from
a calibration (`calibration.py`): they depend on the device and on the training software.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class CostCorrection:
    """Knobs of the cost model that only whole training steps can decide.

    Attributes:
        gemm, attention, memory: factors of the seconds of each class of compute kernels.
        fp8: factor of matrix products in 8 or 4 bits, on top of `gemm`.
        expert: factor of all compute of a layer with experts, on top of these.
        host: factor of the time in which the host starts kernels.
        scale_up, network: factors of the seconds of collectives and transfers inside a node (or rack), and beyond it.
        scale_up_call_s, network_call_s: seconds each collective takes on top: arrival of the ranks, stream synchronisation.
        overlap_window: share of the compute beside a data-parallel communication during which it makes progress (streams wait
            for each other, kernels start late); what does not fit into that part of the window shows.
        optimizer: factor of the update of the parameters.
        micro_batch_s: seconds per micro-batch and model chunk in which nothing runs: pipeline bookkeeping, data loading.
        step_s: seconds per step in which nothing runs.
        network_step_s: the same per doubling of the number of nodes: ranks that wait for each other.
    """

    gemm: float = 1.0
    attention: float = 1.0
    memory: float = 1.0
    fp8: float = 1.0
    expert: float = 1.0
    host: float = 1.0
    scale_up: float = 1.0
    network: float = 1.0
    scale_up_call_s: float = 0.0
    network_call_s: float = 0.0
    overlap_window: float = 1.0
    optimizer: float = 1.0
    micro_batch_s: float = 0.0
    step_s: float = 0.0
    network_step_s: float = 0.0

    def comm(self, crosses_nodes: bool) -> tuple[float, float]:
        """(factor, seconds per call) of communication in a node, or between nodes."""
        return (self.network, self.network_call_s) if crosses_nodes else (self.scale_up, self.scale_up_call_s)

    def scaled(self, factor: float) -> CostCorrection:
        """The correction under which every step takes `factor` times as long: seconds are linear in all knobs but three."""
        return replace(self, **{name: factor * getattr(self, name) for name in OF_SECONDS})


SHARE = "overlap_window"  # the knob that is a share, of which calibrations take the logit; all others are positive
# All but factors on top of others, and a share: a factor of all seconds leaves those as they are.
OF_SECONDS = tuple(item.name for item in fields(CostCorrection) if item.name not in ("fp8", "expert", SHARE))
NEUTRAL = CostCorrection()

"""Seconds of a step in which a device works, seconds of its host, and the naive sum of everything: what a step time hides.

Of the pipeline stage whose devices work longest, without variability. Waiting of stages for each other and times in which nothing
runs are in none of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..core.arrays import Floats
from ..cost.block_cost import BlockCostModel
from ..cost.chunk_cost import blocks_of
from ..cost.efficiency import Efficiency
from ..cost.partition import chunk_blocks
from ..cost.step import StepCost, step_cost_of
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base.workload import Workload, kinds_of


@dataclass(frozen=True)
class BusyTime:
    """Seconds of one step.

    Attributes:
        gpu_active_s: kernels, and communication without other work at the same time.
        passes_s: the part of it before the end of the step.
        host_s: in which the host starts kernels and collectives; none of what a CUDA graph starts.
        hidden_s: communication during compute.
        p2p_s: handing activations and gradients to other stages.
    """

    gpu_active_s: float
    passes_s: float
    host_s: float
    hidden_s: float
    p2p_s: float

    @property
    def naive_sum_s(self) -> float:
        """Sum of all parts, as if they ran one after another: the baseline."""
        return self.gpu_active_s + self.host_s + self.hidden_s + self.p2p_s

    @property
    def host_bound(self) -> bool:
        """Whether the host takes longer to start the passes than the device to run them."""
        return self.host_s > self.passes_s


def busy_time(model: Workload, cluster: Cluster, plan: ParallelPlan, eff: Efficiency) -> BusyTime:
    """Busy seconds of the stage that works longest.

    Raises:
        SpecError, PlanError: as `step_cost`.
    """
    # without what no device works in, and kernels at their own pace
    only = replace(eff.correction, host=0.0, micro_batch_s=0.0, step_s=0.0, network_step_s=0.0)
    blocks = BlockCostModel(model, cluster, plan, replace(eff, correction=only))
    cost = step_cost_of(blocks)
    launches = _launches(blocks) * eff.host_launch_s * eff.correction.host
    runs = _runs(plan)
    return max((_of_stage(cost, launches, runs, stage) for stage in range(plan.pp)), key=lambda own: own.gpu_active_s)


def _runs(plan: ParallelPlan) -> Floats:
    """[stage, chunk] micro-batches that run a chunk there; schedules from both ends hold every chunk on two stages."""
    schedule, n = plan.pipeline_schedule, plan.n_micro_batch
    runs = np.zeros((plan.pp, plan.n_chunk))
    directions = [schedule.direction(micro_batch, n) for micro_batch in range(n)]
    for direction, stages in enumerate(schedule.placements(plan.pp, plan.virtual_stages)):
        runs[list(stages), np.arange(plan.n_chunk)] += directions.count(direction)
    return runs


def _launches(made: BlockCostModel) -> Floats:
    """[chunk] kernels and collectives that the host starts for one micro-batch."""
    kinds, held = kinds_of(made.model), chunk_blocks(made.model, made.plan)
    count = {chunk: float(blocks_of(chunk, kinds, made.whole).n_launch.sum()) for chunk in set(held)}
    return np.array([count[chunk] for chunk in held])


def _of_stage(cost: StepCost, host_s: Floats, runs: Floats, stage: int) -> BusyTime:
    n = runs[stage]  # micro-batches of every chunk there
    passes_s = float(n @ (cost.compute_s.sum(axis=(0, -1)) + cost.comm_s.sum(axis=(0, -1))))
    end_s = float(cost.end_compute_s[stage] + cost.end_comm_s[stage])
    handed_s = cost.p2p_s + np.append(0.0, cost.p2p_s[:-1])
    return BusyTime(
        gpu_active_s=passes_s + end_s,
        passes_s=passes_s,
        host_s=float(n @ host_s),
        hidden_s=float(n @ cost.hidden_comm_s.sum(axis=(0, -1)) + cost.end_hidden_comm_s[stage]),
        p2p_s=float(n @ handed_s),
    )

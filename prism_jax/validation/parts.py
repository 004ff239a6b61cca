"""Where the noise-free step goes, in four parts that add up: compute, communication that shows, host, bubble. Seconds.

Work is averaged over the stages of the pipeline. `host`: compute that waits for the host to start it, and time in which nothing
runs. `bubble`: the rest; stages that wait for each other, and what lies on the way between them.
"""

from __future__ import annotations

from dataclasses import replace

from ..cost.correction import CostCorrection
from ..cost.step_cost import StepCost
from ..plan.plan import ParallelPlan

PARTS = ("compute", "communication", "host", "bubble")


def without_host(correction: CostCorrection) -> CostCorrection:
    """`correction` as if the host cost nothing."""
    return replace(correction, host=0.0, micro_batch_s=0.0, step_s=0.0, network_step_s=0.0)


def parts_of(plan: ParallelPlan, cost: StepCost, prompt_cost: StepCost, step_s: float) -> dict[str, float]:
    """Seconds of each of `PARTS`.

    Args:
        cost: of the step of `plan`.
        prompt_cost: the same if the host cost nothing.
        step_s: its noise-free step.
    """
    compute_s = _compute_s(plan, prompt_cost)
    host_s = _compute_s(plan, cost) - compute_s
    shown = cost.comm_s.sum() + (2.0 * cost.p2p_s.sum() if cost.p2p_blocking else 0.0)
    comm_s = _per_stage(plan, float(shown)) + float(cost.end_comm_s.mean())
    rest_s = max(0.0, step_s - compute_s - host_s - comm_s)
    return dict(zip(PARTS, (compute_s, comm_s, host_s, rest_s), strict=True))


def _compute_s(plan: ParallelPlan, cost: StepCost) -> float:
    return _per_stage(plan, float(cost.compute_s.sum())) + float(cost.end_compute_s.mean())


def _per_stage(plan: ParallelPlan, chunks_s: float) -> float:
    """Average over stages of what all chunks take, once per micro-batch."""
    return plan.n_micro_batch * chunks_s / plan.pp

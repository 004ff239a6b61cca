"""Sums over the blocks of a model."""

from prism_jax.plan.plan import ParallelPlan
from prism_jax.workload.base.kernels import KernelTable
from prism_jax.workload.base.workload import Workload, distinct_runs


def kernels_of(model: Workload, plan: ParallelPlan) -> KernelTable:
    """Of one micro-batch on one device."""
    blocks = [model.block(run.kind, plan) for run in model.layout for _ in range(run.count)]
    return sum((block.kernels for block in blocks), KernelTable(()))


def flops_of_kernels(model: Workload, plan: ParallelPlan) -> float:
    """Of a step on all devices."""
    per_micro_batch = sum(run.count * model.block(run.kind, plan).kernels.flops() for run in distinct_runs(model))
    return per_micro_batch * plan.n_micro_batch * plan.dp * plan.tp


def params_of_blocks(model: Workload, plan: ParallelPlan) -> float:
    """Sum over blocks on one device; a tensor that several share counts once."""
    total, shared = 0.0, {}
    for run in distinct_runs(model):
        for part in model.block(run.kind, plan).parameters:
            if part.shared:
                shared[part.shared] = part.count
            else:
                total += run.count * part.count
    return total + sum(shared.values())

"""Blocks under several corrections: what they share changes no number."""

from dataclasses import fields, replace

import numpy as np
import pytest

from prism_jax.calibration.surrogate import PROBES
from prism_jax.cost.block_cost import BlockCost, BlockCostModel
from prism_jax.cost.efficiency import CostCorrection, efficiency
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster
from prism_jax.workload.base.workload import kinds_of
from prism_jax.workload.catalog import model

PLANS = {
    "llama-2-7b": ParallelPlan(1, 32, 4096, tp=2, dp=16, sharding="fsdp", dtype="fp8"),
    "mixtral-8x7b": ParallelPlan(1, 32, 4096, tp=2, pp=2, dp=8, ep=8, zero_stage=1),
}
CORRECTIONS = (
    *PROBES,
    CostCorrection(gemm=1.1, attention=0.9, memory=1.3, fp8=0.8, expert=1.7, scale_up=1.2, network=2.0),
    CostCorrection(scale_up_call_s=1e-5, network_call_s=3e-5, host=2.0, overlap_window=0.5),
)


@pytest.mark.parametrize("name", PLANS)
def test_blocks_under_another_correction_are_those_made_from_scratch(name: str) -> None:
    spec, plan, eff = model(name), PLANS[name], efficiency("hopper")
    first = BlockCostModel(spec, cluster("dgx-h100", plan.n_devices), plan, eff)
    for correction in CORRECTIONS:
        anew = replace(first, eff=replace(eff, correction=correction))
        for kind in kinds_of(spec):
            shared, alone = first.under(correction).whole(kind), anew.whole(kind)
            for item in fields(BlockCost):
                assert np.array_equal(getattr(shared, item.name), getattr(alone, item.name)), (kind, item.name)

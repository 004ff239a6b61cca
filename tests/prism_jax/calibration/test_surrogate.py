"""The outline of a step against the simulated step, and what corrections do to both."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from prism_jax.calibration.surrogate import stack, surrogate_of, surrogate_seconds
from prism_jax.cost.efficiency import NEUTRAL, CostCorrection, efficiency
from prism_jax.cost.step import step_cost
from prism_jax.plan.plan import Overlap, ParallelPlan
from prism_jax.schedule.registry import make_schedule
from prism_jax.system import catalog
from prism_jax.workload import catalog as models
from tests.support.pipelines import simulate_cost

PLANS = {
    "one stage": ("llama-2-7b", ParallelPlan(1, 64, 4096, dp=32, sharding="fsdp")),
    "1f1b": ("gpt-3-175b", ParallelPlan(1, 256, 2048, tp=8, pp=8, dp=4, recompute="full", overlap=Overlap(pp=False))),
    "interleaved": (
        "gpt-3-175b",
        ParallelPlan(1, 256, 2048, tp=8, pp=8, dp=4, virtual_stages=2, schedule="interleaved", zero_stage=1),
    ),
    "context": ("llama-3-70b", ParallelPlan(1, 32, 32768, tp=8, pp=4, dp=2, cp=4, sequence_parallel=True)),
    "experts": ("mixtral-8x7b", ParallelPlan(1, 128, 4096, tp=2, pp=2, dp=16, ep=8)),
    "fp8": ("mixtral-8x7b", ParallelPlan(1, 128, 4096, tp=2, pp=2, dp=16, ep=8, dtype="fp8")),
}
CORRECTIONS = {
    "neutral": NEUTRAL,
    "kernels": CostCorrection(gemm=1.2, attention=0.8, memory=1.5, fp8=0.8, expert=1.3, host=0.7),
    "links": CostCorrection(scale_up=1.4, network=2.0, scale_up_call_s=3e-5, network_call_s=2e-4, overlap_window=0.4),
    "constants": CostCorrection(optimizer=2.0, micro_batch_s=2e-3, step_s=0.05, network_step_s=0.02),
}


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("name", PLANS)
def test_outline_is_close_to_the_step_of_the_pipeline(name: str, correction: str) -> None:
    """The oracle is the event simulator on the costs that predictions use."""
    model, plan = models.model(PLANS[name][0]), PLANS[name][1]
    cluster = catalog.cluster("dgx-h100", plan.n_devices)
    eff = replace(efficiency("hopper"), correction=CORRECTIONS[correction])
    cost = step_cost(model, cluster, plan, eff)
    schedule = make_schedule(plan.schedule, plan.pp, plan.n_micro_batch, plan.virtual_stages)
    expected = simulate_cost(schedule, cost).step_s
    found = surrogate_seconds(surrogate_of(model, cluster, plan, eff), CORRECTIONS[correction])
    assert found == pytest.approx(expected, rel=0.03)


def test_rows_do_not_see_each_other() -> None:
    rows = []
    for name, plan in PLANS.values():
        rows.append(
            surrogate_of(models.model(name), catalog.cluster("dgx-h100", plan.n_devices), plan, efficiency("hopper"))
        )
    correction = CORRECTIONS["links"]
    together = surrogate_seconds(stack(rows), correction)
    assert together == pytest.approx([surrogate_seconds(row, correction) for row in rows], rel=1e-12)
    spread: dict[str, Any] = {
        item.name: np.full(len(rows), getattr(correction, item.name)) for item in fields(CostCorrection)
    }
    columns = CostCorrection(**spread)
    assert surrogate_seconds(stack(rows), columns) == pytest.approx(together, rel=1e-12)


@pytest.mark.parametrize("knob", [item.name for item in fields(CostCorrection) if item.name != "overlap_window"])
def test_no_knob_shortens_a_step_when_it_grows(knob: str) -> None:
    name, plan = PLANS["fp8"]
    row = surrogate_of(models.model(name), catalog.cluster("dgx-h100", plan.n_devices), plan, efficiency("hopper"))
    base = getattr(NEUTRAL, knob)
    more = replace(NEUTRAL, **{knob: 1.5 * base if base else 1e-3})
    assert surrogate_seconds(row, more) >= surrogate_seconds(row, NEUTRAL)

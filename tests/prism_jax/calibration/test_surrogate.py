"""The surrogate of the cost model, and fields that a job leaves open."""

from dataclasses import fields, replace
from math import exp, log
from typing import Any

import numpy as np
import pytest

from prism_jax.calibration.band import model_factors
from prism_jax.calibration.calibration import uncalibrated
from prism_jax.calibration.open_fields import OpenField, open_fields
from prism_jax.calibration.surrogate import stack, surrogate_of, surrogate_seconds
from prism_jax.cost.block_cost import BlockCostModel
from prism_jax.cost.efficiency import NEUTRAL, CostCorrection, efficiency
from prism_jax.cost.step import step_cost
from prism_jax.framework.software import SOFTWARE_VALUES, Software
from prism_jax.job.job import Job
from prism_jax.plan.plan import Overlap, ParallelPlan
from prism_jax.schedule.registry import make_schedule
from prism_jax.system import catalog
from prism_jax.system.catalog import default_cluster
from prism_jax.variability.tree import Variability
from prism_jax.workload import catalog as workloads
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
    model, plan = workloads.model(PLANS[name][0]), PLANS[name][1]
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
            surrogate_of(workloads.model(name), catalog.cluster("dgx-h100", plan.n_devices), plan, efficiency("hopper"))
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
    row = surrogate_of(workloads.model(name), catalog.cluster("dgx-h100", plan.n_devices), plan, efficiency("hopper"))
    base = getattr(NEUTRAL, knob)
    more = replace(NEUTRAL, **{knob: 1.5 * base if base else 1e-3})
    assert surrogate_seconds(row, more) >= surrogate_seconds(row, NEUTRAL)


# --- Open fields -----------------------------------------------------------------------------------------------------
# What a job leaves unsaid: a distribution with the right mean and spread, in the prediction and in its interval.


MODEL, CLUSTER = workloads.model("llama-2-7b"), default_cluster("h100-sxm", 8)
PLAN = ParallelPlan(micro_batch=1, global_batch=16, seq_len=4096, dp=8)
STATED = Software("flash2", "fused", "fused", "fused", "fused", "fused", False, "none", "typical")


def job(software: Software, framework: str = "fsdp") -> Job:
    plan = replace(PLAN, software=software)
    return Job(MODEL, CLUSTER, plan, Variability(), framework=framework, calibration=uncalibrated())


def seconds(plan: ParallelPlan) -> float:
    one = surrogate_of(MODEL, CLUSTER, plan, efficiency("hopper"))
    return float(surrogate_seconds(stack([one]), NEUTRAL)[0])


def test_a_job_that_states_everything_has_none() -> None:
    assert job(STATED).open_fields == ()


def test_ratio_mean_and_spread_are_those_of_the_odds() -> None:
    plan = replace(PLAN, software=replace(STATED, norm="eager"))
    base = BlockCostModel(MODEL, CLUSTER, plan, efficiency("hopper"))
    (found,) = open_fields(base, ["norm"], "fsdp", lambda _: efficiency("hopper"))
    ratio = log(seconds(replace(PLAN, software=STATED)) / seconds(plan))
    assert (found.values, found.odds) == (("eager", "fused"), (pytest.approx(0.7), 0.3))
    assert found.log_ratio == (0.0, pytest.approx(ratio, rel=1e-9))
    assert found.mean == pytest.approx(0.3 * ratio)
    assert found.sd == pytest.approx(abs(ratio) * (0.3 * 0.7) ** 0.5)


def test_draws_follow_the_odds() -> None:
    field = OpenField("software.norm", ("eager", "fused"), (0.7, 0.3), (0.0, -0.2))
    drawn = field.drawn(20_000, 0)
    share = np.mean(drawn < 0.0)
    assert abs(share - 0.3) < 4.0 * (0.21 / 20_000) ** 0.5  # false alarm 6e-5
    assert abs(drawn.mean()) < 4.0 * field.sd / 20_000**0.5


@pytest.mark.parametrize("name", [name for name in SOFTWARE_VALUES if name != "tuning"])
def test_stating_the_assumed_value_takes_its_share_of_the_shift_away(name: str) -> None:
    everything = replace(STATED, **{name: None})
    open_, value = job(everything), getattr(job(everything).plan.software, name)
    closed = job(replace(STATED, **{name: value}))
    shift = exp(sum(one.mean for one in open_.open_fields))
    assert open_.efficiency.correction.gemm == pytest.approx(closed.efficiency.correction.gemm * shift, rel=1e-6)


def test_the_interval_is_wider_where_more_is_open() -> None:
    spread = []
    for own in (job(STATED), job(replace(STATED, compile=None)), job(Software())):
        factors = model_factors(
            own.model, own.cluster, own.plan, own.effective_calibration, own.framework, open_fields=own.open_fields
        )
        spread.append(float(np.var(np.log(factors))) if len(factors) > 1 else sum(one.sd**2 for one in own.open_fields))
    assert spread[0] <= spread[1] < sum(one.sd**2 for one in job(Software()).open_fields) + 1e-12


def test_another_framework_fills_the_fields_anew_but_keeps_what_was_stated() -> None:
    first = job(Software(norm="fused"), "fsdp")
    other = replace(first, framework="megatron-core")
    assert first.plan.software.rope == "eager"
    assert other.plan.software.rope == "fused"
    assert other.plan.software.norm == "fused"
    assert "norm" not in other.open_software

"""What a job leaves unsaid: a distribution with the right mean and spread, in the prediction and in its interval."""

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest

from prism_jax.calibration.band import model_factors
from prism_jax.calibration.calibration import uncalibrated
from prism_jax.calibration.open_fields import OpenField, open_fields
from prism_jax.calibration.surrogate import stack, surrogate_of, surrogate_seconds
from prism_jax.cost.efficiency import NEUTRAL, efficiency
from prism_jax.framework.software import SOFTWARE_VALUES, Software
from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import default_cluster
from prism_jax.variability.tree import Variability
from prism_jax.workload import catalog

MODEL, CLUSTER = catalog.model("llama-2-7b"), default_cluster("h100-sxm", 8)
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
    (found,) = open_fields(MODEL, CLUSTER, plan, ["norm"], "fsdp", lambda _: efficiency("hopper"))
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

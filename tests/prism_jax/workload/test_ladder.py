"""A model known by its ladder: its step is the line on the device that was measured, and follows datasheets elsewhere."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prism_jax.cloud.laws import LadderLaw
from prism_jax.core.errors import PrismError, SpecError
from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.step import step_cost
from prism_jax.job.rules import check_plan
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.workload.ladder import LadderSpec, same_as, slowness

MODEL = LadderSpec("mine", 0.02, 1e-3, "v100-16gb", 25_000_000, 128)
PLAN = ParallelPlan(micro_batch=64, global_batch=64, dtype="fp16")


def compute_s(model: LadderSpec, device: str, plan: ParallelPlan = PLAN) -> float:
    """Of one micro-batch on one device, without the optimizer."""
    cluster = catalog.default_cluster(device, 1)
    eff = efficiency(catalog.device(device).generation)
    eff = replace(eff, correction=replace(eff.correction, memory=1.7))
    return float(step_cost(model, cluster, plan, eff).compute_s.sum())


@pytest.mark.parametrize("batch", [1, 64, 128])
def test_a_step_is_the_line_on_the_device_that_was_measured(batch: int) -> None:
    """Whatever a calibration says of kernels."""
    plan = replace(PLAN, micro_batch=batch, global_batch=batch)
    assert compute_s(MODEL, "v100-16gb", plan) == pytest.approx(0.02 + 1e-3 * batch)


def test_the_update_of_the_weights_is_in_the_ladder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole step on the device that was measured is the line, as the ladder was measured with its optimizer."""
    cluster = catalog.default_cluster("v100-16gb", 1)
    cost = step_cost(MODEL, cluster, PLAN, efficiency(cluster.device.generation))
    assert float(cost.end_compute_s.sum()) == 0.0
    monkeypatch.setattr(LadderSpec, "updates_in_step", False)
    apart = step_cost(MODEL, cluster, PLAN, efficiency(cluster.device.generation))
    assert float(apart.end_compute_s.sum()) > 1e-4  # 25 million parameters at 0.9 TB/s


def test_another_device_follows_peak_and_bandwidth() -> None:
    a, b = catalog.device("v100-16gb"), catalog.device("a100-40gb")
    ratio = np.sqrt(a.peak("fp16") / b.peak("fp16") * a.hbm_bytes_per_s / b.hbm_bytes_per_s)
    assert compute_s(MODEL, "a100-40gb") == pytest.approx(0.084 * ratio)
    assert slowness(same_as(a), a.hbm_bytes_per_s, a, "bf16") == pytest.approx(1.0)


def test_a_larger_batch_than_was_measured_is_refused() -> None:
    cluster = catalog.default_cluster("v100-16gb", 1)
    with pytest.raises(PrismError, match="largest batch of the ladder is 128"):
        check_plan(replace(PLAN, micro_batch=256, global_batch=256), MODEL, cluster)


WRONG: dict[str, dict[str, Any]] = {
    "floor_s": {"floor_s": -1.0},
    "s_per_sample": {"floor_s": 0.0, "s_per_sample": 0.0},
    "sample_bytes": {"sample_bytes": float("nan")},
    "measured_on": {"measured_on": "v1000"},
    "n_parameters": {"n_parameters": 0},
    "most_samples": {"most_samples": 0},
}


@pytest.mark.parametrize("field", WRONG)
def test_wrong_figures_are_refused(field: str) -> None:
    with pytest.raises(SpecError, match=field):
        replace(MODEL, **WRONG[field])


def test_a_fitted_ladder_is_a_model() -> None:
    law = LadderLaw(np.array([0.01, 0.02, 0.03]), np.full(3, 1e-3), np.full(3, 0.01), (8.0, 128.0))
    assert law.model("mine", "v100-16gb", 25_000_000) == MODEL

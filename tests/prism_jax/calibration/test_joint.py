"""Factors of several jobs on shared draws, against calibrations made by hand: what they share cancels, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.calibration.band import case_of, joint_factors, model_factors
from prism_jax.calibration.calibration import Calibration, Term, uncalibrated
from prism_jax.calibration.open_fields import OpenField
from prism_jax.calibration.surrogate import SHARED
from prism_jax.system.catalog import cluster
from prism_jax.system.likeness import device_like
from prism_jax.workload.catalog import model
from tests.support.measured_rows import PLANS, only_misfit

PLAN = PLANS[0]
MODEL, AMPERE, HOPPER = model("llama-2-7b"), cluster("dgx-a100", 16), cluster("dgx-h100", 16)
N = 20_000


def only(term: Term, site_sd: float = 0.0) -> Calibration:
    none = np.zeros(N)
    return replace(uncalibrated(), terms=(term,), site_sd=np.full(N, site_sd), misfit=none, misfit_sd=none)


def logs(cases, calibration) -> np.ndarray:
    return np.log(joint_factors(cases, calibration))


def test_devices_share_what_all_share_and_differ_by_their_generation():
    """The knob of generations that nobody has measured is drawn for each; that of all, and the site, once."""
    shared = only(Term("gemm", "all", 0.2, (), np.zeros((N, 0))), site_sd=0.3)
    cases = [case_of(MODEL, device, PLAN, shared, "fsdp") for device in (AMPERE, AMPERE, HOPPER)]
    found = logs(cases, shared)
    assert found[:, 0] == pytest.approx(found[:, 1], abs=1e-12)
    assert (found[:, 2] - found[:, 0]).std() < 0.1 * found[:, 0].std()  # shares of the GEMMs are not quite the same
    own = only(Term("gemm", "generation", 0.2, (), np.zeros((N, 0))), site_sd=0.3)
    apart = logs(cases, own)
    assert apart[:, 0] == pytest.approx(apart[:, 1], abs=1e-12)
    left = (apart[:, 0] - apart[:, 2]).std()
    free = only(Term("gemm", "generation", 0.2, (), np.zeros((N, 0))))
    alone = logs(cases, free)
    assert left == pytest.approx(np.hypot(alone[:, 0].std(), alone[:, 2].std()), rel=0.03)  # 20,000 draws: 0.7 % each


def test_the_law_of_one_case_is_that_of_its_band():
    """Quantiles of 20,000 draws of a heavy tail, both: 4 standard errors are 5 % of the spread."""
    calibration = only_misfit(0.1, N)
    field = OpenField("software.norm", ("eager", "fused"), (0.7, 0.3), (0.0, -0.2))
    joint = logs([case_of(MODEL, AMPERE, PLAN, calibration, "fsdp", [field])], calibration)[:, 0]
    alone = np.log(model_factors(MODEL, AMPERE, PLAN, calibration, "fsdp", 1, [field]))
    at = [0.05, 0.25, 0.5, 0.75, 0.95]
    assert np.quantile(joint, at) == pytest.approx(np.quantile(alone, at), abs=0.05 * joint.std())


def test_own_deviations_of_steps_of_the_same_parts_are_shared_in_part():
    """Twice the batch has nearly the same parts; the median of ratios of Student-t deviations follows from the correlation."""
    calibration = only_misfit(0.1, N)
    twice = replace(PLAN, global_batch=2 * PLAN.global_batch)
    found = logs([case_of(MODEL, AMPERE, plan, calibration, "fsdp") for plan in (PLAN, twice)], calibration)
    apart, alone = (np.median(np.abs(x)) for x in (found[:, 0] - found[:, 1], found[:, 0]))
    assert np.sqrt(2.0 * (1.0 - SHARED)) - 0.03 < apart / alone < 1.0


def test_open_fields_of_the_same_odds_have_the_same_value():
    field = OpenField("software.norm", ("eager", "fused"), (0.7, 0.3), (0.0, -0.2))
    turned = OpenField("software.norm", ("fused", "eager"), (0.3, 0.7), (0.0, 0.2))
    other = OpenField("software.norm", ("eager", "fused"), (0.4, 0.6), (0.0, -0.2))
    exact = replace(uncalibrated(), site_sd=np.zeros(N), misfit=np.zeros(N), misfit_sd=np.zeros(N))
    cases = [case_of(MODEL, AMPERE, PLAN, exact, "fsdp", given) for given in ([field], [turned], [other], [])]
    found = logs(cases, exact)
    assert found[:, 0] == pytest.approx(found[:, 1], abs=1e-12)
    assert abs(np.corrcoef(found[:, 0], found[:, 2])[0, 1]) < 0.03  # 4 standard errors
    assert np.ptp(found[:, 3]) == 0.0


def test_a_device_that_is_only_alike_is_off_by_the_same_on_every_job():
    exact = replace(uncalibrated(), site_sd=np.zeros(N), misfit=np.zeros(N), misfit_sd=np.zeros(N))
    first, second = (device_like(AMPERE.device, name=name, power_watts=300.0) for name in ("one", "two"))
    devices = [replace(AMPERE, device=device) for device in (first, first, second)]
    twice = replace(PLAN, global_batch=2 * PLAN.global_batch)
    cases = [case_of(MODEL, on, plan, exact, "fsdp") for on, plan in zip(devices, (PLAN, twice, PLAN), strict=True)]
    found = logs(cases, exact)
    assert found[:, 0] == pytest.approx(found[:, 1], abs=1e-12)
    assert found[:, 0].std() == pytest.approx(first.likeness_sd, rel=0.03)
    assert abs(np.corrcoef(found[:, 0], found[:, 2])[0, 1]) < 0.03

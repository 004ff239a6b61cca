"""The band of the cost model: what it holds, and of which draws it is made."""

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.stats import t as student

from prism_jax.calibration.band import case_of, joint_factors, model_factors, outline_factors, repeated_factors
from prism_jax.calibration.calibration import DEGREES, Calibration, Term, uncalibrated
from prism_jax.calibration.key import CalibrationKey
from prism_jax.calibration.open_fields import OpenField
from prism_jax.calibration.surrogate import SHARED, stack, surrogate_of, surrogate_seconds
from prism_jax.cost.efficiency import CostCorrection, efficiency
from prism_jax.framework.frameworks import FRAMEWORKS
from prism_jax.job.load_job import load_job
from prism_jax.system.catalog import cluster, device
from prism_jax.system.likeness import device_like
from prism_jax.tables.streams import example_files
from prism_jax.workload.catalog import model
from tests.support.measured_rows import PLANS, only_misfit

PLAN = PLANS[0]
JOB = (model("llama-2-7b"), cluster("dgx-a100", PLAN.n_devices), PLAN)
LOGS = np.array([-0.4, -0.1, 0.0, 0.2, 0.3])


def by_hand(site: np.ndarray | None = None) -> Calibration:
    """Five draws: only the network is in doubt."""
    none = np.zeros(len(LOGS))
    term = Term("network", "all", 0.3, ("all",), LOGS[:, None])
    return replace(uncalibrated(), terms=(term,), site_sd=none, misfit=none, misfit_sd=none, site=site)


def seconds(**knobs: float) -> float:
    """The outline's time where these knobs differ from those of `uncalibrated`."""
    neutral = uncalibrated().correction(CalibrationKey("ampere", ""))
    one = surrogate_of(*JOB, efficiency("ampere"))
    return float(surrogate_seconds(one, replace(neutral, **knobs)))


def test_factors_are_the_outline_under_every_draw_over_the_outline_at_the_mean():
    found = model_factors(*JOB, by_hand(), "fsdp")
    expected = [seconds(network=float(np.exp(value))) for value in LOGS]
    assert found == pytest.approx(np.array(expected) / seconds(network=1.0), rel=1e-12)
    assert found[0] < 1.0 < found[-1]


def test_a_measured_site_shifts_draw_by_draw():
    site = np.array([0.1, -0.2, 0.0, 0.3, 0.05])
    shifted = model_factors(*JOB, by_hand(site), "fsdp")
    assert shifted == pytest.approx(model_factors(*JOB, by_hand(), "fsdp") * np.exp(site), rel=1e-12)


def test_without_doubt_there_is_no_band():
    assert model_factors(*JOB, uncalibrated(), "") == pytest.approx([1.0], rel=1e-12)


def test_a_misfit_alone_gives_the_quantiles_of_its_law():
    """20,000 draws: the error of a 5% quantile of Student's t with 4 degrees is 0.027 scales (one standard deviation)."""
    scale = 0.08
    found = np.log(model_factors(*JOB, only_misfit(scale, 20_000), "fsdp", seed=1))
    expected = scale * student(DEGREES).ppf([0.05, 0.5, 0.95])
    assert np.quantile(found, [0.05, 0.5, 0.95]) == pytest.approx(expected, abs=4 * 0.027 * scale)


def test_software_never_seen_widens_the_band():
    seen = Term("network", "framework", 0.4, ("fsdp",), np.zeros((len(LOGS), 1)))
    known = replace(by_hand(), terms=(seen,))
    assert np.ptp(model_factors(*JOB, known, "fsdp")) == pytest.approx(0.0, abs=1e-12)
    assert np.ptp(model_factors(*JOB, known, "paddle")) > 0.01


def test_a_device_that_is_only_alike_widens_the_band_by_its_likeness():
    """40,000 draws: a standard deviation errs by 0.35%; the measured site says what the device does."""
    model, machine, plan = JOB
    alike = replace(machine, device=device_like(machine.device, power_watts=200, likeness_sd=0.2))
    exact = only_misfit(0.0, 40_000)
    assert np.std(np.log(model_factors(model, alike, plan, exact, "fsdp"))) == pytest.approx(0.2, rel=0.015)
    assert np.ptp(model_factors(*JOB, exact, "fsdp")) == 0.0
    measured = replace(exact, site=np.zeros(40_000))
    assert np.ptp(model_factors(model, alike, plan, measured, "fsdp")) == pytest.approx(0.0, abs=1e-12)


def test_a_likeness_shares_the_deviations_of_what_it_is_like():
    alike = CalibrationKey.of(device_like("tpu-v5p"))
    assert alike.members() == CalibrationKey.of(device("tpu-v5p")).members()


def test_same_seed_same_factors_and_an_outline_at_hand_serves():
    calibration = only_misfit(0.05)
    one = stack([surrogate_of(*JOB, efficiency("ampere"))])
    first = model_factors(*JOB, calibration, "fsdp", 4)
    assert np.array_equal(first, model_factors(*JOB, calibration, "fsdp", 4))
    assert np.array_equal(first, outline_factors(one, CalibrationKey.of(JOB[1].device, "fsdp"), False, calibration, 4))
    assert not np.array_equal(first, model_factors(*JOB, calibration, "fsdp", 5))


def test_every_knob_reaches_the_band():
    """A knob that the outline did not see would leave its doubt out of every band."""
    plan = replace(PLANS[3], ep=1)
    job = (model("mixtral-8x7b"), cluster("dgx-h100", 64), replace(plan, dp=8, ep=8, dtype="fp8"))
    for knob in (item.name for item in fields(CostCorrection)):
        middle = {"scale_up_call_s": -10.0, "network_call_s": -10.0, "micro_batch_s": -7.0, "step_s": -5.0}.get(
            knob, 0.0
        )
        middle = {"network_step_s": -5.0, "overlap_window": -6.0}.get(knob, middle)
        base = uncalibrated()
        term = Term(knob, "all", 0.3, ("all",), LOGS[:, None])
        none = np.zeros(len(LOGS))
        calibration = replace(
            base, centre={**base.centre, knob: middle}, terms=(term,), site_sd=none, misfit=none, misfit_sd=none
        )
        assert np.ptp(model_factors(*job, calibration, "")) > 1e-6, knob


def test_repeated_factors_of_a_row_are_its_own_whatever_stands_beside_it():
    """And without repetition, those that it has alone under the same seeds."""
    setting, calibration = CalibrationKey("ampere", "fsdp"), only_misfit(0.05)
    one = surrogate_of(*JOB, efficiency("ampere"))
    both = repeated_factors(stack([one, one]), setting, [False, True], calibration, [7, 8], 3)
    assert both.shape == (3 * calibration.n_draw, 2)
    for column, (has_experts, seed) in enumerate(((False, 7), (True, 8))):
        alone = repeated_factors(stack([one]), setting, [has_experts], calibration, [seed], 3)
        np.testing.assert_allclose(both[:, [column]], alone, rtol=1e-12)
    once = repeated_factors(stack([one]), setting, [False], calibration, [7], 1)
    np.testing.assert_allclose(once[:, 0], outline_factors(stack([one]), setting, False, calibration, 7), rtol=1e-12)


# --- The model band of a prediction holds its median: for every shipped job, under every framework -------------------


@pytest.mark.parametrize("example", sorted(example_files()))
def test_the_band_holds_the_median_it_is_printed_beside(example: str):
    job = load_job(example, [])
    for framework in ("", *FRAMEWORKS.names):
        factors = model_factors(job.model, job.cluster, job.plan, job.effective_calibration, framework)
        low, high = np.quantile(factors, [0.05, 0.95])
        assert low <= 1.0 <= high, framework


# --- Joint -----------------------------------------------------------------------------------------------------------
# Factors of several jobs on shared draws, against calibrations made by hand: what they share cancels, and nothing
# else.


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
    assert left == pytest.approx(np.hypot(alone[:, 0].std(), alone[:, 2].std()), rel=0.03)  # 20,000 draws: 0.7% each


def test_the_law_of_one_case_is_that_of_its_band():
    """Quantiles of 20,000 draws of a heavy tail, both: 4 standard errors are 5% of the spread."""
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

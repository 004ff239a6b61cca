"""What a calibration says of devices and software it has seen, and of those it has not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prism_jax.calibration.calibration import KNOBS, MISFIT, Calibration, Term, calibration_from, shipped, uncalibrated
from prism_jax.calibration.key import CalibrationKey, Level
from prism_jax.calibration.surrogate import surrogate_of, surrogate_seconds
from prism_jax.core.errors import DataError
from prism_jax.cost.efficiency import NEUTRAL, CostCorrection, efficiency
from prism_jax.framework.frameworks import FRAMEWORKS, style_of
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.workload.catalog import model

N = 400
HOPPER = CalibrationKey("hopper")
rng = np.random.default_rng(0)


def made(**changes: object) -> Calibration:
    """Products 10 % longer on Hopper, one framework 20 % shorter on top; a host that nobody knows."""
    terms = (
        Term("gemm", "generation", 0.05, ("hopper",), np.full((N, 1), np.log(1.1))),
        Term("gemm", "framework", 0.05, ("fsdp", "nanotron"), np.log([[0.8, 1.0]]) + np.zeros((N, 1))),
        Term("host", "style", 0.3, ("fused",), 0.1 * rng.normal(size=(N, 1))),
    )
    base = uncalibrated()
    zero = np.zeros(N)
    kept: dict[str, Any] = {"terms": terms, "site_sd": zero + 0.1, "misfit": zero + 0.05, "misfit_sd": zero, **changes}
    return replace(base, **kept)


def test_deviations_of_all_levels_add_up() -> None:
    assert made().correction(CalibrationKey("hopper", "nanotron")).gemm == pytest.approx(1.1)
    assert made().correction(CalibrationKey("hopper", "fsdp")).gemm == pytest.approx(1.1 * 0.8)
    assert made().correction(CalibrationKey("ampere", "nanotron")).gemm == pytest.approx(1.0)


def test_a_framework_that_is_not_stated_is_one_of_those_measured() -> None:
    """The geometric mean of both; in the draws one or the other, as often (400 draws: 4 standard errors)."""
    setting = CalibrationKey("hopper", "")
    assert made().correction(setting).gemm == pytest.approx(1.1 * 0.8**0.5)
    drawn = np.asarray(made().corrections(setting).gemm)
    assert {*drawn.round(6)} == {1.1, 0.88}
    assert (drawn < 1.0).mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("cluster", ["dgx-a100", "dgx-h100", "b200", "dgx-v100"])
def test_a_framework_that_is_not_stated_does_not_beat_all(cluster: str) -> None:
    """By the outline of the step of three plans, under the shipped calibration."""
    own, spec = catalog.cluster(cluster, 32), model("llama-2-7b")
    for plan in (
        ParallelPlan(1, 64, 2048, dp=32, dtype="fp16"),
        ParallelPlan(1, 64, 2048, dp=32, dtype="fp16", sharding="fsdp", recompute="full"),
        ParallelPlan(1, 64, 2048, tp=4, pp=2, dp=4, dtype="fp16"),
    ):
        rows = surrogate_of(spec, own, plan, efficiency(own.device.generation))
        keys = {name: CalibrationKey.of(own.device, name) for name in ("", *FRAMEWORKS.names)}
        seconds = {name: float(surrogate_seconds(rows, shipped().correction(key))) for name, key in keys.items()}
        assert min(seconds, key=lambda name: seconds[name]) != ""
        assert max(seconds, key=lambda name: seconds[name]) != ""


def test_a_device_may_deviate_where_a_generation_is_a_line_of_chips() -> None:
    """Of TPUs; two devices of Hopper differ by their figures alone, but how far a device may be off is in the draws of both."""
    term = Term("gemm", "device", 0.05, ("h200", "tpu-v5p"), np.full((N, 2), np.log(0.9)))
    own = made(terms=(*made().terms, term))
    assert own.correction(CalibrationKey.of(catalog.device("tpu-v5p"), "nanotron")).gemm == pytest.approx(0.9)
    assert own.correction(CalibrationKey.of(catalog.device("tpu-v6e"), "nanotron")).gemm == pytest.approx(1.0)
    assert own.correction(CalibrationKey.of(catalog.device("h200"), "nanotron")).gemm == pytest.approx(1.1)
    for name in ("h100", "h200", "tpu-v6e"):
        assert np.log(own.corrections(CalibrationKey.of(catalog.device(name), "fsdp")).gemm).std() > 0.03


def test_what_was_never_measured_is_as_wide_as_assumed() -> None:
    unseen = made().corrections(CalibrationKey("hopper", "fsdp")).host  # eager: no member of that style
    seen = made().corrections(CalibrationKey("hopper", "megatron-core")).host
    assert np.log(unseen).std() == pytest.approx(0.3, rel=0.15)  # 400 draws: 4 standard errors
    assert np.log(seen).std() == pytest.approx(0.1, rel=0.15)


def test_same_seed_same_draws() -> None:
    one, two = (made().corrections(CalibrationKey("ampere", ""), seed=3) for _ in range(2))
    assert all(np.array_equal(getattr(one, knob), getattr(two, knob)) for knob in KNOBS)
    assert not np.array_equal(one.gemm, made().corrections(CalibrationKey("ampere", ""), seed=4).gemm)


def test_deviations_of_sites_and_configurations() -> None:
    free = made().deviations(HOPPER, has_experts=False)
    # two Student-t of four degrees, whose variance is 2; by the quartiles, since tails that heavy have no stable variance
    reference = 0.1 * rng.standard_t(4.0, 400_000) + 0.05 * rng.standard_t(4.0, 400_000)
    assert np.ptp(np.quantile(free, [0.25, 0.75])) == pytest.approx(
        np.ptp(np.quantile(reference, [0.25, 0.75])), rel=0.3
    )
    known = made(site=np.full(N, 0.3)).deviations(HOPPER, has_experts=False)
    assert np.median(known) == pytest.approx(0.3, abs=0.02)


def test_configurations_of_one_kind_of_model_may_deviate_more() -> None:
    wider = Term(MISFIT, Level.WORKLOAD, 0.5, ("dlrm",), np.full((N, 1), np.log(3.0)))
    known = made(terms=(wider,), site=np.zeros(N))
    plain, dlrm, other = (
        known.deviations(HOPPER._replace(workload=kind), has_experts=False) for kind in ("", "dlrm", "cnn")
    )
    assert np.allclose(dlrm, 3.0 * plain)
    joint, alone = (
        known.joint_deviations([HOPPER._replace(workload=kind)], np.eye(1), [False]) for kind in ("dlrm", "")
    )
    assert np.allclose(joint, 3.0 * alone)
    assert not np.allclose(other, plain)  # nobody has measured it: a fresh draw of how wide
    assert np.median(np.log(other / plain)) == pytest.approx(0.0, abs=0.1)
    assert known.correction(HOPPER._replace(workload="dlrm")) == known.correction(HOPPER)


def test_neutral_where_nothing_was_calibrated() -> None:
    found = uncalibrated().correction(CalibrationKey("hopper", ""))
    for knob in KNOBS:
        assert getattr(found, knob) == pytest.approx(getattr(NEUTRAL, knob), abs=1e-11)


def test_round_trip() -> None:
    again = calibration_from(made().as_dict()).correction(CalibrationKey("hopper", "fsdp"))
    for knob in KNOBS:
        assert getattr(again, knob) == pytest.approx(
            getattr(made().correction(CalibrationKey("hopper", "fsdp")), knob), rel=1e-4, abs=1e-11
        )


@pytest.mark.parametrize("damage", [{"format": 99}, {"terms": None}, {"site_sd": "wide"}, {"centre": {}}])
def test_damaged_calibrations_are_refused(damage: dict[str, object]) -> None:
    with pytest.raises(DataError):
        calibration_from(made().as_dict() | damage)


def test_shipped_calibration_covers_every_knob_and_stays_near_the_kernels() -> None:
    """Kernels were measured: whole steps may not say that products take half or twice as long."""
    for generation in ("ampere", "hopper", "blackwell"):
        for framework in (*FRAMEWORKS.names, ""):
            correction = shipped().correction(CalibrationKey(generation, framework))
            assert isinstance(correction, CostCorrection)
            assert 0.8 < correction.gemm < 1.3
            assert 0.0 < correction.overlap_window < 1.0
            assert min(getattr(correction, knob) for knob in KNOBS) > 0.0
    record = shipped().record
    assert record is not None
    assert record["rows"] > 3000


def test_every_framework_has_at_most_one_style() -> None:
    assert {style_of(name) for name in (*FRAMEWORKS.names, "")} == {"fused", "eager", ""}

"""Devices like a known one: what replaces, what is taken over, and how wide that makes an interval."""

from math import exp, hypot, log
from typing import Any

import pytest

from prism_jax.core.errors import SpecError
from prism_jax.system.catalog import device
from prism_jax.system.likeness import POWER_SD, SAME_KIND, SHARE_SD, device_like, device_notes
from prism_jax.system.power import population_law, power_law


def test_stated_figures_replace_and_the_rest_is_taken_over() -> None:
    base, found = device("h100-sxm"), device_like("h100-sxm", hbm_bytes=96e9)
    assert (found.hbm_bytes, found.like) == (96e9, "h100-sxm")
    for field in ("peak_flops_per_s", "hbm_bytes_per_s", "power_watts", "n_sm", "generation"):
        assert getattr(found, field) == getattr(base, field)
    assert found.likeness_sd == SAME_KIND  # memory size costs no time


def test_a_lower_limit_scales_the_peaks_by_the_clock_that_the_law_allows() -> None:
    base, found = device("h100-sxm"), device_like("h100-sxm", power_watts=500)
    law = power_law(base)
    assert law is not None
    clock = law.clock_under(500 / 700, law.busy["gemm"])
    assert 0.8 < clock < 0.95
    for dtype, peak in base.peak_flops_per_s.items():
        assert found.peak(dtype) == pytest.approx(peak * clock)
    assert found.hbm_bytes_per_s == base.hbm_bytes_per_s
    assert found.likeness_sd == pytest.approx(hypot(SAME_KIND, POWER_SD * log(7 / 5)))


def test_a_device_without_a_law_takes_that_of_all_gpus() -> None:
    base, found = device("gaudi3"), device_like("gaudi3", power_watts=0.6 * device("gaudi3").power_watts)
    clock = population_law().clock_under(0.6, 1.0)
    assert found.peak("bf16") == pytest.approx(base.peak("bf16") * clock)


def test_a_higher_limit_leaves_the_peaks_of_the_datasheet() -> None:
    assert device_like("h100-pcie", power_watts=700).peak_flops_per_s == device("h100-pcie").peak_flops_per_s


def test_a_stated_peak_scales_the_other_dtypes_and_takes_the_place_of_the_power_law() -> None:
    base = device("h100-sxm")
    found = device_like(base, power_watts=350, peak_flops_per_s={"bf16": base.peak("bf16") / 4})
    assert found.peak("fp8") == pytest.approx(base.peak("fp8") / 4)
    assert found.likeness_sd == pytest.approx(hypot(SAME_KIND, SHARE_SD * log(4)))


def test_likeness_of_a_likeness_adds_up_and_names_the_preset() -> None:
    found = device_like(device_like("a100-80gb"))
    assert found.like == "a100-80gb"
    assert found.likeness_sd == pytest.approx(hypot(SAME_KIND, SAME_KIND))


def test_the_note_states_the_interval() -> None:
    assert device_notes(device("h100-sxm")) == ()
    (note,) = device_notes(device_like("h100-sxm", likeness_sd=0.1))
    assert note.startswith("device like h100-sxm: interval widened by ")
    assert f"{exp(0.1645) - 1:.0%}" in note


@pytest.mark.parametrize(
    ("figures", "rule"),
    [
        ({"power_watts": 1.0}, "at its lowest clock"),
        ({"power_watts": -5.0}, "greater than 0|positive|at least 0"),
        ({"hbm_bytes": 0.0}, "greater than 0|positive|at least 0"),
        ({"likeness_sd": -0.1}, "likeness_sd = -0.1, but it must be between 0 and 5"),
        ({"peak_flops_per_s": {"bf16": -1.0}}, "greater than 0|positive|at least 0"),
    ],
)
def test_impossible_figures_are_refused(figures: dict[str, Any], rule: str) -> None:
    with pytest.raises(SpecError, match=rule):
        device_like("h100-sxm", **figures)


def test_an_unknown_device_is_refused_with_the_remedy() -> None:
    with pytest.raises(SpecError, match=r"Did you mean h100-sxm.*device: \{like: h100-sxm"):
        device_like("h100-smx")

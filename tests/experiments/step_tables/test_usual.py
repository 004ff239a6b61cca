"""What a published run may have done where its table says nothing."""

import pytest

from experiments.step_tables.usual import usual_dtypes, usual_recompute
from prism_jax.framework.frameworks import FRAMEWORKS
from prism_jax.framework.software import TYPICAL, VENDOR
from prism_jax.system import catalog


@pytest.mark.parametrize("name", ["v100-sxm2-32gb", "a100-80gb", "h100-sxm", "b200", "mi300x", "tpu-v4"])
@pytest.mark.parametrize("tuning", [None, TYPICAL, VENDOR])
def test_formats_are_probabilities_of_what_the_device_has(name: str, tuning: str | None) -> None:
    device = catalog.device(name)
    odds = usual_dtypes(device, tuning)
    assert sum(share for _, share in odds) == pytest.approx(1.0)
    assert {value for value, _ in odds} <= set(device.peak_flops_per_s) | {"bf16"}


def test_vendors_use_narrow_formats_where_others_mostly_do_not() -> None:
    hopper = catalog.device("h100-sxm")
    assert usual_dtypes(hopper, VENDOR)[0][0] == "fp8"
    assert usual_dtypes(hopper, TYPICAL) == usual_dtypes(hopper)
    assert usual_dtypes(hopper)[0][0] == "bf16"


def test_recomputation_is_a_distribution_in_the_line_of_deepspeed_alone() -> None:
    for name in FRAMEWORKS.names:
        odds = usual_recompute(name)
        assert sum(share for _, share in odds) == pytest.approx(1.0)
        assert (len(odds) > 1) == (name == "megatron-deepspeed")

"""Devices from texts with words of a variant."""

import pytest

from experiments.device_names import device_of_text
from prism_jax.core.errors import SpecError
from prism_jax.system.catalog import device, device_names


@pytest.mark.parametrize("name", device_names())
def test_a_preset_is_itself(name: str) -> None:
    assert device_of_text(name) == device(name)


@pytest.mark.parametrize(
    ("text", "like", "hbm_bytes", "power_watts"),
    [
        ("H100 96GB 500W", "h100-sxm", 96e9, 500),
        ("MI350X-air", "mi350x", None, None),
        ("A100-SXM-80GB 300W", "a100-80gb", None, 300),
        ("H100-SXM5-80GB (power capped to 450 W)", "h100-sxm", None, 450),
        ("NVIDIA H200 NVL custom", "h200-nvl", None, None),
    ],
)
def test_words_of_a_variant_make_a_likeness(
    text: str, like: str, hbm_bytes: float | None, power_watts: float | None
) -> None:
    known, found = device(like), device_of_text(text)
    assert (found.name, found.like) == (text, like)
    assert found.hbm_bytes == (hbm_bytes or known.hbm_bytes)
    assert found.power_watts == (power_watts or known.power_watts)
    assert found.likeness_sd > 0


@pytest.mark.parametrize("text", ["DGX H100", "H100 80 GB", "A100-80GB (4-GPU node)", "HGX H100 server"])
def test_words_that_say_nothing_of_the_part_make_none(text: str) -> None:
    assert device_of_text(text).likeness_sd == 0


@pytest.mark.parametrize("text", ["RTX 6090", "H100 vs A100", "", "H1000"])
def test_no_device_or_two_are_refused(text: str) -> None:
    with pytest.raises(SpecError):
        device_of_text(text)

"""Utilisation figures: closed forms, and the relation between the figures of a published table."""

import pytest

from prism_jax.core.errors import SpecError
from prism_jax.system.catalog import cluster
from prism_jax.system.hardware import hfu, mfu, tflops_per_gpu, tokens_per_s_per_gpu

H100 = cluster("llama3-h100", 16384)


@pytest.mark.parametrize(("tflops", "published_mfu"), [(430, 0.43), (400, 0.41), (380, 0.38)])
def test_llama3_utilisation_follows_from_its_tflops(tflops: float, published_mfu: float):
    """arXiv 2407.21783, table 4; it rounds to a percent, of a peak it does not state."""
    assert mfu(tflops * 1e12, 1.0, H100, 1, "bf16") == pytest.approx(published_mfu, abs=0.011)


def test_rates_are_per_device_and_second():
    assert tflops_per_gpu(8e15, 2.0, 4) == 1000.0
    assert tokens_per_s_per_gpu(8192, 2.0, 4) == 1024.0


def test_hardware_utilisation_counts_recomputation():
    assert hfu(4e15, 2.0, H100, 8, "bf16") == pytest.approx(4 / 3 * mfu(3e15, 2.0, H100, 8, "bf16"))


def test_a_dtype_that_the_device_lacks_is_refused():
    with pytest.raises(SpecError, match="fp8"):
        mfu(1e15, 1.0, cluster("dgx-a100", 8), 8, "fp8")

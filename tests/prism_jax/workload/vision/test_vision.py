"""Vision transformers: published counts and FLOPs, images that patches do not divide, samples as units."""

from dataclasses import replace

import pytest

from prism_jax.core.errors import SpecError
from prism_jax.plan.plan import ParallelPlan
from prism_jax.workload.catalog import workload
from prism_jax.workload.transformer.dit import DitSpec
from prism_jax.workload.transformer.vit import VitSpec

PLAN = ParallelPlan(micro_batch=8, global_batch=64, dp=8)


def presets() -> tuple[VitSpec, DitSpec]:
    """One of each kind."""
    vit, dit = workload("vit-b-16"), workload("dit-xl-2")
    assert isinstance(vit, VitSpec)
    assert isinstance(dit, DitSpec)
    return vit, dit


VIT, DIT = presets()


@pytest.mark.parametrize(
    ("name", "published"),
    [  # torchvision and timm; facebookresearch/DiT without its fixed positions
        ("vit-b-16", 86_567_656),
        ("vit-l-16", 304_326_632),
        ("vit-h-14", 632_045_800),
        ("deit-tiny-16", 5_717_416),
        ("deit-small-16", 22_050_664),
        ("dit-xl-2", 674_834_720),
    ],
)
def test_parameters_are_those_published(name: str, published: int) -> None:
    assert workload(name).n_params() == published


@pytest.mark.parametrize(
    ("name", "giga_products"),
    [("vit-b-16", 17.58), ("deit-tiny-16", 1.26), ("deit-small-16", 4.61), ("dit-xl-2", 118.64), ("dit-s-2", 6.06)],
)
def test_forward_products_are_those_published(name: str, giga_products: float) -> None:
    """arXiv 2212.09748 table 4 and the table of results of timm; multiply-adds of one image."""
    forward = workload(name).step_flops(replace(PLAN, micro_batch=1, global_batch=1, dp=1), recomputed=False) / 3
    assert forward / 2e9 == pytest.approx(giga_products, rel=0.015)  # patches have no gradient


def test_units_are_images() -> None:
    assert (VIT.sample_unit, VIT.units_per_step(PLAN), VIT.n_tokens, DIT.n_tokens) == ("samples", 64, 197, 256)
    assert [problem.field for problem in VIT.problems(replace(PLAN, seq_len=197))] == ["seq_len"]


def test_larger_images_have_more_tokens() -> None:
    large = replace(VIT, image_size=384)
    assert large.n_tokens == 577
    assert large.step_flops(PLAN, recomputed=False) > 2.9 * VIT.step_flops(PLAN, recomputed=False)


@pytest.mark.parametrize(
    ("model", "field", "value"),
    [
        (VIT, "image_size", 225),
        (VIT, "patch", 0),
        (VIT, "n_classes", 0),
        (DIT, "latent_size", 33),
        (DIT, "n_channels", -1),
    ],
)
def test_impossible_sizes_are_refused(model: VitSpec, field: str, value: int) -> None:
    with pytest.raises(SpecError, match=field):
        replace(model, **{field: value})

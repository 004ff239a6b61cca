"""Parameters, to the last one, and multiply-adds of the shipped networks, against what torchvision publishes.

Source: torchvision 0.15, `num_params` and `_ops` of the weights' metadata (docs: pytorch.org/vision/stable/models.html); the ops
count convolutions and products only.
"""

import pytest

from prism_jax.workload.cnn.architectures import ARCHITECTURES, CM_DARE_TOTALS
from prism_jax.workload.cnn.spec import CnnSpec
from prism_jax.workload.cnn.tape import CnnNetwork

PUBLISHED = {
    "alexnet": (61_100_840, 0.714), "convnext-base": (88_591_464, 15.355), "convnext-large": (197_767_336, 34.361),
    "convnext-small": (50_223_688, 8.684), "convnext-tiny": (28_589_128, 4.456), "densenet-121": (7_978_856, 2.834),
    "densenet-161": (28_681_000, 7.728), "densenet-169": (14_149_480, 3.36), "densenet-201": (20_013_928, 4.291),
    "efficientnet-b0": (5_288_548, 0.386), "efficientnet-b1": (7_794_184, 0.687), "efficientnet-b2": (9_109_994, 1.088),
    "efficientnet-b3": (12_233_232, 1.827), "efficientnet-b4": (19_341_616, 4.394), "efficientnet-b5": (30_389_784, 10.266),
    "efficientnet-b6": (43_040_704, 19.068), "efficientnet-b7": (66_347_960, 37.746), "inception-v3": (27_161_264, 5.713),
    "mnasnet-0.5": (2_218_512, 0.104), "mnasnet-0.75": (3_170_208, 0.215), "mnasnet-1.0": (4_383_312, 0.314),
    "mnasnet-1.3": (6_282_256, 0.526), "mobilenet-v2": (3_504_872, 0.301), "resnet-18": (11_689_512, 1.814),
    "resnet-34": (21_797_672, 3.664), "resnet-50": (25_557_032, 4.089), "resnet-101": (44_549_160, 7.801),
    "resnet-152": (60_192_808, 11.514), "resnext-50-32x4d": (25_028_904, 4.23), "resnext-101-32x8d": (88_791_336, 16.414),
    "shufflenet-v2-x0.5": (1_366_792, 0.04), "shufflenet-v2-x1.0": (2_278_604, 0.145), "shufflenet-v2-x1.5": (3_503_624, 0.296),
    "shufflenet-v2-x2.0": (7_393_996, 0.583), "squeezenet-1.0": (1_248_424, 0.819), "squeezenet-1.1": (1_235_496, 0.349),
    "vgg-11": (132_863_336, 7.609), "vgg-11-bn": (132_868_840, 7.609), "vgg-13": (133_047_848, 11.308),
    "vgg-13-bn": (133_053_736, 11.308), "vgg-16": (138_357_544, 15.47), "vgg-16-bn": (138_365_992, 15.47),
    "vgg-19": (143_667_240, 19.632), "vgg-19-bn": (143_678_248, 19.632), "wide-resnet-50-2": (68_883_240, 11.398),
    "wide-resnet-101-2": (126_886_696, 22.753),
}  # fmt: skip
IMAGES = {"efficientnet-b2": 288}  # rows that torchvision counts at, where they are not those of the paper


# Source: seresnext101_32x4d and resnext101_32x4d of pytorch-image-models; ResNet18 of kuangliu/pytorch-cifar.
OTHERS = {"se-resnext-101-32x4d": 48_955_416, "resnext-101-32x4d": 44_177_704, "resnet-18-cifar": 11_173_962}


@pytest.mark.parametrize("name", OTHERS)
def test_counts_of_others(name: str) -> None:
    assert CnnSpec(name, name).n_params() == OTHERS[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_are_those_of_torchvision(name: str) -> None:
    """Operations are those of evaluation: without Inception's auxiliary head."""
    n_params, giga = PUBLISHED[name]
    model = CnnSpec(name, name, IMAGES.get(name, 0))
    assert model.n_params() == n_params
    kept = tuple(segment for segment in model.network.segments if segment.name != "auxiliary")
    assert CnnNetwork(kept).forward_flops / 2e9 == pytest.approx(giga, rel=0.002, abs=0.001)


def test_every_shipped_network_is_counted() -> None:
    assert {one.name for one in ARCHITECTURES if "torchvision" in one.source} == set(PUBLISHED)


@pytest.mark.parametrize("name", CM_DARE_TOTALS)
def test_networks_of_totals_have_them(name: str) -> None:
    """As nearly as whole widths and edges allow."""
    flops, n_params, n_tensors = CM_DARE_TOTALS[name]
    network = CnnSpec(name, f"cm-dare-{name}").network
    assert network.train_flops == pytest.approx(flops, rel=0.15)
    assert network.n_params == pytest.approx(n_params, rel=0.075)
    assert network.n_tensors == pytest.approx(n_tensors, rel=0.065)

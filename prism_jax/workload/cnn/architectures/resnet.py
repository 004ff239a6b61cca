"""Residual networks: ResNet, ResNeXt and Wide-ResNet, with the stride in the 3x3 convolution (v1.5).

Source: arXiv 1512.03385, 1611.05431, 1605.07146; torchvision `models/resnet.py`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ..layers import Network
from ..tape import Tape, Tensor
from .base import Architecture, Writes

_REDUCTION = 16  # of channels in front of a gate
_STAGES = (64, 128, 256, 512)
_SOURCE = "arXiv 1512.03385; stride as in v1.5, torchvision"


class Kind(NamedTuple):
    """What distinguishes the families.

    Attributes:
        is_deep: blocks narrow and widen again.
        groups: of the 3x3 convolution.
        base: width of a group, over 64, of the inner convolutions.
        squeezes: a gate per channel in front of the sum.
    """

    is_deep: bool = True
    groups: int = 1
    base: int = 64
    squeezes: bool = False


_DEEP = Kind()


def _shortcut(tape: Tape, x: Tensor, width: int, stride: int) -> Tensor:
    if stride == 1 and x.shape.channels == width:
        return x
    return tape.conv_norm_act(x, width, 1, stride, act="")


def _basic(tape: Tape, x: Tensor, width: int, stride: int) -> Tensor:
    y = tape.conv_norm_act(x, width, 3, stride)
    beside = _shortcut(tape, x, width, stride)
    return tape.act(tape.add(tape.conv_norm_act(y, width, 3, act=""), beside))


def _bottleneck(tape: Tape, x: Tensor, width: int, stride: int, kind: Kind) -> Tensor:
    inner = width * kind.base // 64 * kind.groups
    y = tape.conv_norm_act(x, inner, 1)
    y = tape.conv_norm_act(y, inner, 3, stride, groups=kind.groups)
    y = tape.conv_norm_act(y, 4 * width, 1, act="")
    if kind.squeezes:
        gate = tape.act(tape.linear(tape.pool_to(y), 4 * width // _REDUCTION))
        y = tape.scale(y, tape.act(tape.linear(gate, 4 * width), "sigmoid"))
    beside = _shortcut(tape, x, 4 * width, stride)
    return tape.act(tape.add(y, beside))


def _write(depths: tuple[int, ...], kind: Kind, image_size: int, n_classes: int) -> Network:
    tape = Tape(image_size)
    with tape.block("stem", "first"):
        x = tape.conv_norm_act(tape.image, 64, 7, 2)
        x = tape.pool(x, 3, 2, 1)
    for stage, (width, depth) in enumerate(zip(_STAGES, depths, strict=True)):
        for number in range(depth):
            stride = 2 if stage and not number else 1
            with tape.block(f"stage{stage + 1}.{number}"):
                x = _bottleneck(tape, x, width, stride, kind) if kind.is_deep else _basic(tape, x, width, stride)
    with tape.block("classifier", "last"):
        tape.loss(tape.linear(tape.flat(tape.pool_to(x)), n_classes))
    return tape.network


def _cifar(image_size: int, n_classes: int) -> Network:
    """ResNet-18 for small images: a 3x3 convolution in front, and no pool (kuangliu/pytorch-cifar)."""
    tape = Tape(image_size)
    with tape.block("stem", "first"):
        x = tape.conv_norm_act(tape.image, 64, 3)
    for stage, width in enumerate(_STAGES):
        for number in range(2):
            with tape.block(f"stage{stage + 1}.{number}"):
                x = _basic(tape, x, width, 2 if stage and not number else 1)
    with tape.block("classifier", "last"):
        tape.loss(tape.linear(tape.flat(tape.pool_to(x)), n_classes))
    return tape.network


def _resnet(depths: tuple[int, ...], kind: Kind = _DEEP) -> Writes:
    return partial(_write, depths, kind)


_SHORT, _50, _101, _152 = (2, 2, 2, 2), (3, 4, 6, 3), (3, 4, 23, 3), (3, 8, 36, 3)
_NEXT, _SE = "arXiv 1611.05431; torchvision", "arXiv 1709.01507, 1611.05431; NVIDIA DeepLearningExamples"
RESNETS = (
    Architecture("resnet-18", _resnet(_SHORT, Kind(is_deep=False)), source=_SOURCE),
    Architecture("resnet-34", _resnet(_50, Kind(is_deep=False)), source=_SOURCE),
    Architecture("resnet-50", _resnet(_50), source=_SOURCE),
    Architecture("resnet-101", _resnet(_101), source=_SOURCE),
    Architecture("resnet-152", _resnet(_152), source=_SOURCE),
    Architecture("resnext-50-32x4d", _resnet(_50, Kind(groups=32, base=4)), source=_NEXT),
    Architecture("resnext-101-32x4d", _resnet(_101, Kind(groups=32, base=4)), source=_SE),
    Architecture("resnext-101-32x8d", _resnet(_101, Kind(groups=32, base=8)), source=_NEXT),
    Architecture("se-resnext-101-32x4d", _resnet(_101, Kind(groups=32, base=4, squeezes=True)), source=_SE),
    Architecture("wide-resnet-50-2", _resnet(_50, Kind(base=128)), source="arXiv 1605.07146; torchvision"),
    Architecture("wide-resnet-101-2", _resnet(_101, Kind(base=128)), source="arXiv 1605.07146; torchvision"),
    Architecture("resnet-18-cifar", _cifar, 32, 10, "arXiv 1512.03385; kuangliu/pytorch-cifar"),
)

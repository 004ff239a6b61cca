"""Residual networks: ResNet, ResNeXt and Wide-ResNet, with the stride in the 3x3 convolution (v1.5).

Source: arXiv 1512.03385, 1611.05431, 1605.07146; torchvision `models/resnet.py`.
"""

from __future__ import annotations

from functools import partial

from ..layers import Network
from ..tape import Tape, Tensor
from .base import Architecture, Writes

_STAGES = (64, 128, 256, 512)
_SOURCE = "arXiv 1512.03385; stride as in v1.5, torchvision"


def _shortcut(tape: Tape, x: Tensor, width: int, stride: int) -> Tensor:
    if stride == 1 and x.shape.channels == width:
        return x
    return tape.conv_norm_act(x, width, 1, stride, act="")


def _basic(tape: Tape, x: Tensor, width: int, stride: int) -> Tensor:
    y = tape.conv_norm_act(x, width, 3, stride)
    beside = _shortcut(tape, x, width, stride)
    return tape.act(tape.add(tape.conv_norm_act(y, width, 3, act=""), beside))


def _bottleneck(tape: Tape, x: Tensor, width: int, stride: int, groups: int, base: int) -> Tensor:
    inner = width * base // 64 * groups
    y = tape.conv_norm_act(x, inner, 1)
    y = tape.conv_norm_act(y, inner, 3, stride, groups=groups)
    beside = _shortcut(tape, x, 4 * width, stride)
    return tape.act(tape.add(tape.conv_norm_act(y, 4 * width, 1, act=""), beside))


def _write(depths: tuple[int, ...], is_deep: bool, groups: int, base: int, image_size: int, n_classes: int) -> Network:
    tape = Tape(image_size)
    with tape.block("stem", "first"):
        x = tape.conv_norm_act(tape.image, 64, 7, 2)
        x = tape.pool(x, 3, 2, 1)
    for stage, (width, depth) in enumerate(zip(_STAGES, depths, strict=True)):
        for number in range(depth):
            stride = 2 if stage and not number else 1
            with tape.block(f"stage{stage + 1}.{number}"):
                x = _bottleneck(tape, x, width, stride, groups, base) if is_deep else _basic(tape, x, width, stride)
    with tape.block("classifier", "last"):
        tape.loss(tape.linear(tape.flat(tape.pool_to(x)), n_classes))
    return tape.network


def _resnet(depths: tuple[int, ...], is_deep: bool = True, groups: int = 1, base: int = 64) -> Writes:
    return partial(_write, depths, is_deep, groups, base)


RESNETS = (
    Architecture("resnet-18", _resnet((2, 2, 2, 2), False), source=_SOURCE),
    Architecture("resnet-34", _resnet((3, 4, 6, 3), False), source=_SOURCE),
    Architecture("resnet-50", _resnet((3, 4, 6, 3)), source=_SOURCE),
    Architecture("resnet-101", _resnet((3, 4, 23, 3)), source=_SOURCE),
    Architecture("resnet-152", _resnet((3, 8, 36, 3)), source=_SOURCE),
    Architecture("resnext-50-32x4d", _resnet((3, 4, 6, 3), True, 32, 4), source="arXiv 1611.05431; torchvision"),
    Architecture("resnext-101-32x8d", _resnet((3, 4, 23, 3), True, 32, 8), source="arXiv 1611.05431; torchvision"),
    Architecture("wide-resnet-50-2", _resnet((3, 4, 6, 3), True, 1, 128), source="arXiv 1605.07146; torchvision"),
    Architecture("wide-resnet-101-2", _resnet((3, 4, 23, 3), True, 1, 128), source="arXiv 1605.07146; torchvision"),
)

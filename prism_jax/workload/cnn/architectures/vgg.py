"""VGG and AlexNet: plain convolutions with biases, and a large classifier.

Source: arXiv 1409.1556, 1404.5997; torchvision `models/vgg.py`, `models/alexnet.py`.
"""

from __future__ import annotations

from functools import partial

from ..layers import Network
from ..tape import Tape, Tensor
from .base import Architecture

_WIDTHS = (64, 128, 256, 512, 512)


def _plain(
    tape: Tape,
    x: Tensor,
    width: int,
    kernel: int = 3,
    stride: int = 1,
    padding: int | None = None,
    *,
    has_norm: bool = False,
) -> Tensor:
    y = tape.conv(x, width, kernel, stride, padding, bias=True)
    return tape.act(tape.norm(y) if has_norm else y)


def _classifier(tape: Tape, x: Tensor, size: int, n_classes: int, drops_first: bool) -> None:
    with tape.block("classifier", "last"):
        x = tape.flat(tape.pool_to(x, size))
        for _ in range(2):
            if drops_first:
                x = tape.dropout(x)
            x = tape.act(tape.linear(x, 4096))
            if not drops_first:
                x = tape.dropout(x)
        tape.loss(tape.linear(x, n_classes))


def _vgg(depths: tuple[int, ...], has_norm: bool, image_size: int, n_classes: int) -> Network:
    tape = Tape(image_size)
    x = tape.image
    for stage, (width, depth) in enumerate(zip(_WIDTHS, depths, strict=True)):
        for number in range(depth):
            with tape.block(f"stage{stage + 1}.{number}", "first" if stage == number == 0 else "body"):
                x = _plain(tape, x, width, has_norm=has_norm)
                if number == depth - 1:
                    x = tape.pool(x, 2, 2)
    _classifier(tape, x, 7, n_classes, drops_first=False)
    return tape.network


def _alexnet(image_size: int, n_classes: int) -> Network:
    tape = Tape(image_size)
    with tape.block("stem", "first"):
        x = tape.pool(_plain(tape, tape.image, 64, 11, 4, 2), 3, 2)
    with tape.block("conv2"):
        x = tape.pool(_plain(tape, x, 192, 5), 3, 2)
    for number, width in ((3, 384), (4, 256), (5, 256)):
        with tape.block(f"conv{number}"):
            x = _plain(tape, x, width)
            if number == 5:
                x = tape.pool(x, 3, 2)
    _classifier(tape, x, 6, n_classes, drops_first=True)
    return tape.network


_SOURCE = "arXiv 1409.1556; torchvision"
_DEPTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
VGGS = (
    *(Architecture(f"vgg-{depth}", partial(_vgg, each, False), source=_SOURCE) for depth, each in _DEPTHS.items()),
    *(Architecture(f"vgg-{depth}-bn", partial(_vgg, each, True), source=_SOURCE) for depth, each in _DEPTHS.items()),
    Architecture("alexnet", _alexnet, source="arXiv 1404.5997; torchvision"),
)

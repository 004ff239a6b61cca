"""ConvNeXt: depthwise 7x7, layer norm, and two products of every pixel, four times as wide inside.

Source: arXiv 2201.03545; torchvision `models/convnext.py`.
"""

from __future__ import annotations

from functools import partial

from ..layers import Network
from ..tape import Tape, Tensor
from .base import Architecture


def _block(tape: Tape, x: Tensor) -> Tensor:
    width = x.shape.channels
    y = tape.norm(tape.conv(x, width, 7, groups=width, bias=True))
    y = tape.linear(tape.act(tape.linear(y, 4 * width), "gelu"), width)
    return tape.add(tape.layer_scale(y), x)


def _convnext(depths: tuple[int, ...], widths: tuple[int, ...], image_size: int, n_classes: int) -> Network:
    tape = Tape(image_size)
    with tape.block("stem", "first"):
        x = tape.norm(tape.conv(tape.image, widths[0], 4, 4, 0, bias=True))
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        if stage:
            with tape.block(f"downsample{stage}"):
                x = tape.conv(tape.norm(x), width, 2, 2, 0, bias=True)
        for number in range(depth):
            with tape.block(f"stage{stage + 1}.{number}"):
                x = _block(tape, x)
    with tape.block("classifier", "last"):
        tape.loss(tape.linear(tape.flat(tape.norm(tape.pool_to(x))), n_classes))
    return tape.network


_SOURCE = "arXiv 2201.03545; torchvision"
CONVNEXTS = (
    Architecture("convnext-tiny", partial(_convnext, (3, 3, 9, 3), (96, 192, 384, 768)), source=_SOURCE),
    Architecture("convnext-small", partial(_convnext, (3, 3, 27, 3), (96, 192, 384, 768)), source=_SOURCE),
    Architecture("convnext-base", partial(_convnext, (3, 3, 27, 3), (128, 256, 512, 1024)), source=_SOURCE),
    Architecture("convnext-large", partial(_convnext, (3, 3, 27, 3), (192, 384, 768, 1536)), source=_SOURCE),
)

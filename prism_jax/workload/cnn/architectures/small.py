"""SqueezeNet and ShuffleNet v2: small networks for small devices.

Source: arXiv 1602.07360, 1807.11164; torchvision `models/squeezenet.py`, `shufflenetv2.py`.
"""

from __future__ import annotations

from functools import partial

from ..layers import Network
from ..tape import Tape, Tensor
from .base import Architecture


def _fire(tape: Tape, x: Tensor, narrow: int, wide: int) -> Tensor:
    x = tape.act(tape.conv(x, narrow, 1, bias=True))
    return tape.concat(*(tape.act(tape.conv(x, wide, kernel, bias=True)) for kernel in (1, 3)))


# (narrow, wide) of the fire modules; a pool stands in front of those whose number is in the second tuple
_FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))


def _squeezenet(stem: tuple[int, int], pools: tuple[int, ...], image_size: int, n_classes: int) -> Network:
    tape = Tape(image_size)
    with tape.block("stem", "first"):
        x = tape.act(tape.conv(tape.image, *stem, 2, 0, bias=True))
    for number, (narrow, wide) in enumerate(_FIRES):
        with tape.block(f"fire{number + 2}"):
            if number in pools:
                x = tape.pool(x, 3, 2, ceil=True)
            x = _fire(tape, x, narrow, wide)
    with tape.block("classifier", "last"):
        x = tape.act(tape.conv(tape.dropout(x), n_classes, 1, bias=True))
        tape.loss(tape.flat(tape.pool_to(x)))
    return tape.network


def _shuffled(tape: Tape, x: Tensor, width: int, stride: int) -> Tensor:
    half = width // 2
    if stride == 1:
        beside, y = tape.part(x, half), tape.part(x, half)
    else:
        y = x
        beside = tape.conv_norm_act(x, x.shape.channels, 3, stride, groups=x.shape.channels, act="")
        beside = tape.conv_norm_act(beside, half, 1)
    y = tape.conv_norm_act(y, half, 1)
    y = tape.conv_norm_act(tape.conv_norm_act(y, half, 3, stride, groups=half, act=""), half, 1)
    return tape.move(tape.concat(beside, y))


def _shufflenet(widths: tuple[int, int, int], last: int, image_size: int, n_classes: int) -> Network:
    tape = Tape(image_size)
    with tape.block("stem", "first"):
        x = tape.pool(tape.conv_norm_act(tape.image, 24, 3, 2), 3, 2, 1)
    for stage, (width, depth) in enumerate(zip(widths, (4, 8, 4), strict=True)):
        for number in range(depth):
            with tape.block(f"stage{stage + 2}.{number}"):
                x = _shuffled(tape, x, width, 1 if number else 2)
    with tape.block("classifier", "last"):
        x = tape.pool_to(tape.conv_norm_act(x, last, 1))
        tape.loss(tape.linear(tape.flat(x), n_classes))
    return tape.network


_SQUEEZE, _SHUFFLE = "arXiv 1602.07360; torchvision", "arXiv 1807.11164; torchvision"
SMALL = (
    Architecture("squeezenet-1.0", partial(_squeezenet, (96, 7), (0, 3, 7)), source=_SQUEEZE),
    Architecture("squeezenet-1.1", partial(_squeezenet, (64, 3), (0, 2, 4)), source=_SQUEEZE),
    Architecture("shufflenet-v2-x0.5", partial(_shufflenet, (48, 96, 192), 1024), source=_SHUFFLE),
    Architecture("shufflenet-v2-x1.0", partial(_shufflenet, (116, 232, 464), 1024), source=_SHUFFLE),
    Architecture("shufflenet-v2-x1.5", partial(_shufflenet, (176, 352, 704), 1024), source=_SHUFFLE),
    Architecture("shufflenet-v2-x2.0", partial(_shufflenet, (244, 488, 976), 2048), source=_SHUFFLE),
)

"""Inception v3, with its auxiliary classifier: branches side by side, concatenated.

Source: arXiv 1512.00567; torchvision `models/inception.py`.
"""

from __future__ import annotations

from ..layers import Network
from ..tape import Tape, Tensor
from .base import Architecture


def _pooled(tape: Tape, x: Tensor, width: int) -> Tensor:
    return tape.conv_norm_act(tape.pool(x, 3, 1, 1, kind="mean"), width, 1)


def _a(tape: Tape, x: Tensor, pooled: int) -> Tensor:
    one = tape.conv_norm_act(x, 64, 1)
    five = tape.conv_norm_act(tape.conv_norm_act(x, 48, 1), 64, 5)
    three = tape.conv_norm_act(tape.conv_norm_act(tape.conv_norm_act(x, 64, 1), 96), 96)
    return tape.concat(one, five, three, _pooled(tape, x, pooled))


def _b(tape: Tape, x: Tensor) -> Tensor:
    three = tape.conv_norm_act(x, 384, 3, 2, 0)
    double = tape.conv_norm_act(tape.conv_norm_act(tape.conv_norm_act(x, 64, 1), 96), 96, 3, 2, 0)
    return tape.concat(three, double, tape.pool(x, 3, 2))


def _c(tape: Tape, x: Tensor, width: int) -> Tensor:
    one = tape.conv_norm_act(x, 192, 1)
    seven = tape.conv_norm_act(tape.conv_norm_act(tape.conv_norm_act(x, width, 1), width, (1, 7)), 192, (7, 1))
    double = tape.conv_norm_act(tape.conv_norm_act(tape.conv_norm_act(x, width, 1), width, (7, 1)), width, (1, 7))
    double = tape.conv_norm_act(tape.conv_norm_act(double, width, (7, 1)), 192, (1, 7))
    return tape.concat(one, seven, double, _pooled(tape, x, 192))


def _d(tape: Tape, x: Tensor) -> Tensor:
    three = tape.conv_norm_act(tape.conv_norm_act(x, 192, 1), 320, 3, 2, 0)
    seven = tape.conv_norm_act(tape.conv_norm_act(tape.conv_norm_act(x, 192, 1), 192, (1, 7)), 192, (7, 1))
    return tape.concat(three, tape.conv_norm_act(seven, 192, 3, 2, 0), tape.pool(x, 3, 2))


def _e(tape: Tape, x: Tensor) -> Tensor:
    one = tape.conv_norm_act(x, 320, 1)
    three = tape.conv_norm_act(x, 384, 1)
    double = tape.conv_norm_act(tape.conv_norm_act(x, 448, 1), 384)
    split = [tape.conv_norm_act(part, 384, kernel) for part in (three, double) for kernel in ((1, 3), (3, 1))]
    return tape.concat(one, *split, _pooled(tape, x, 192))


def _stem(tape: Tape) -> Tensor:
    with tape.block("stem", "first"):
        x = tape.conv_norm_act(tape.image, 32, 3, 2, 0)
        x = tape.conv_norm_act(tape.conv_norm_act(x, 32, 3, 1, 0), 64)
        x = tape.pool(x, 3, 2)
        x = tape.conv_norm_act(tape.conv_norm_act(x, 80, 1), 192, 3, 1, 0)
        return tape.pool(x, 3, 2)


def _inception(image_size: int, n_classes: int) -> Network:
    tape = Tape(image_size)
    x = _stem(tape)
    for number, width in enumerate((32, 64, 64)):
        with tape.block(f"a{number}"):
            x = _a(tape, x, width)
    with tape.block("b"):
        x = _b(tape, x)
    for number, width in enumerate((128, 160, 160, 192)):
        with tape.block(f"c{number}"):
            x = _c(tape, x, width)
    with tape.block("auxiliary"):
        y = tape.conv_norm_act(tape.pool(x, 5, 3, kind="mean"), 128, 1)
        y = tape.pool_to(tape.conv_norm_act(y, 768, 5, padding=0))
        tape.loss(tape.linear(tape.flat(y), n_classes))
    with tape.block("d"):
        x = _d(tape, x)
    for number in range(2):
        with tape.block(f"e{number}"):
            x = _e(tape, x)
    with tape.block("classifier", "last"):
        tape.loss(tape.linear(tape.dropout(tape.flat(tape.pool_to(x))), n_classes))
    return tape.network


INCEPTIONS = (
    Architecture("inception-v3", _inception, 299, source="arXiv 1512.00567; torchvision, with auxiliary head"),
)

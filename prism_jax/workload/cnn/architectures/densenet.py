"""DenseNet: every layer reads the outputs of all layers of its block before it.

Source: arXiv 1608.06993; torchvision `models/densenet.py` (norm and activation before the convolution, bottleneck of 4).
"""

from __future__ import annotations

from functools import partial

from ..layers import Network
from ..tape import Tape, Tensor
from .base import Architecture

_BOTTLENECK = 4


def _before(tape: Tape, x: Tensor, width: int, kernel: int = 1) -> Tensor:
    """Norm, activation, convolution."""
    return tape.conv(tape.act(tape.norm(x)), width, kernel)


def _densenet(growth: int, depths: tuple[int, ...], stem: int, image_size: int, n_classes: int) -> Network:
    tape = Tape(image_size)
    with tape.block("stem", "first"):
        x = tape.pool(tape.conv_norm_act(tape.image, stem, 7, 2), 3, 2, 1)
    for number, depth in enumerate(depths):
        features = [x]
        for layer in range(depth):
            with tape.block(f"dense{number + 1}.{layer}"):
                read = tape.concat(*features) if layer else x
                features.append(_before(tape, _before(tape, read, _BOTTLENECK * growth), growth, 3))
        if number == len(depths) - 1:
            break
        with tape.block(f"transition{number + 1}"):
            x = tape.concat(*features)
            x = tape.pool(_before(tape, x, x.shape.channels // 2), 2, 2, kind="mean")
    with tape.block("classifier", "last"):
        x = tape.act(tape.norm(tape.concat(*features)))
        tape.loss(tape.linear(tape.flat(tape.pool_to(x)), n_classes))
    return tape.network


_SOURCE = "arXiv 1608.06993; torchvision"
DENSENETS = (
    Architecture("densenet-121", partial(_densenet, 32, (6, 12, 24, 16), 64), source=_SOURCE),
    Architecture("densenet-161", partial(_densenet, 48, (6, 12, 36, 24), 96), source=_SOURCE),
    Architecture("densenet-169", partial(_densenet, 32, (6, 12, 32, 32), 64), source=_SOURCE),
    Architecture("densenet-201", partial(_densenet, 32, (6, 12, 48, 32), 64), source=_SOURCE),
)

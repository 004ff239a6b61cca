"""Networks of inverted residuals: MobileNet v2, MNASNet, EfficientNet. A block widens, convolves each channel by itself, narrows.

Source: arXiv 1801.04381, 1807.11626, 1905.11946; torchvision `models/mobilenetv2.py`, `mnasnet.py`, `efficientnet.py`.
"""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import NamedTuple

from ..layers import Network
from ..tape import Tape, Tensor
from .base import Architecture


class Stage(NamedTuple):
    """`depth` blocks: how much wider inside, kernel, stride of the first, channels out."""

    wider: int
    kernel: int
    stride: int
    width: int
    depth: int


def divisible(width: float, by: int = 8, at_least_share: float = 0.9) -> int:
    """The multiple of `by` nearest to `width`, not less than a share of it."""
    near = max(by, int(width + by / 2) // by * by)
    return near + by if near < at_least_share * width else near


def _squeezed(tape: Tape, x: Tensor, width: int, act: str) -> Tensor:
    """Squeeze and excitation: a gate per channel, from the means of all."""
    gate = tape.act(tape.conv(tape.pool_to(x), width, 1, bias=True), act)
    return tape.scale(x, tape.act(tape.conv(gate, x.shape.channels, 1, bias=True), "sigmoid"))


def _inverted(tape: Tape, x: Tensor, stage: Stage, stride: int, act: str, squeezes: bool) -> Tensor:
    given = x.shape.channels
    inner = given * stage.wider
    y = tape.conv_norm_act(x, inner, 1, act=act) if stage.wider > 1 else x
    y = tape.conv_norm_act(y, inner, stage.kernel, stride, groups=inner, act=act)
    if squeezes:
        y = _squeezed(tape, y, max(1, given // 4), act)
    y = tape.conv_norm_act(y, stage.width, 1, act="")
    return tape.add(y, x) if stride == 1 and given == stage.width else y


def _classified(tape: Tape, x: Tensor, width: int, act: str, n_classes: int) -> Network:
    with tape.block("classifier", "last"):
        x = tape.pool_to(tape.conv_norm_act(x, width, 1, act=act))
        tape.loss(tape.linear(tape.dropout(tape.flat(x)), n_classes))
    return tape.network


def _body(tape: Tape, x: Tensor, stages: tuple[Stage, ...], act: str, squeezes: bool) -> Tensor:
    for number, stage in enumerate(stages):
        for layer in range(stage.depth):
            with tape.block(f"stage{number + 1}.{layer}"):
                x = _inverted(tape, x, stage, 1 if layer else stage.stride, act, squeezes)
    return x


_MOBILENET = (
    Stage(1, 3, 1, 16, 1), Stage(6, 3, 2, 24, 2), Stage(6, 3, 2, 32, 3), Stage(6, 3, 2, 64, 4), Stage(6, 3, 1, 96, 3),
    Stage(6, 3, 2, 160, 3), Stage(6, 3, 1, 320, 1),
)  # fmt: skip
_MNASNET = (
    Stage(3, 3, 2, 24, 3), Stage(3, 5, 2, 40, 3), Stage(6, 5, 2, 80, 3), Stage(6, 3, 1, 96, 2), Stage(6, 5, 2, 192, 4),
    Stage(6, 3, 1, 320, 1),
)  # fmt: skip
_EFFICIENTNET = (
    Stage(1, 3, 1, 16, 1), Stage(6, 3, 2, 24, 2), Stage(6, 5, 2, 40, 2), Stage(6, 3, 2, 80, 3), Stage(6, 5, 1, 112, 3),
    Stage(6, 5, 2, 192, 4), Stage(6, 3, 1, 320, 1),
)  # fmt: skip


def _mobilenet(image_size: int, n_classes: int) -> Network:
    tape = Tape(image_size)
    with tape.block("stem", "first"):
        x = tape.conv_norm_act(tape.image, 32, 3, 2, act="relu6")
    return _classified(tape, _body(tape, x, _MOBILENET, "relu6", False), 1280, "relu6", n_classes)


def _mnasnet(wider: float, image_size: int, n_classes: int) -> Network:
    def width_of(width: int) -> int:
        return divisible(width * wider)

    tape = Tape(image_size)
    with tape.block("stem", "first"):
        x = tape.conv_norm_act(tape.image, width_of(32), 3, 2)
        x = tape.conv_norm_act(x, width_of(32), 3, groups=width_of(32))
        x = tape.conv_norm_act(x, width_of(16), 1, act="")
    stages = tuple(stage._replace(width=width_of(stage.width)) for stage in _MNASNET)
    return _classified(tape, _body(tape, x, stages, "relu", False), 1280, "relu", n_classes)


def _efficientnet(wider: float, deeper: float, image_size: int, n_classes: int) -> Network:
    tape = Tape(image_size)
    with tape.block("stem", "first"):
        x = tape.conv_norm_act(tape.image, divisible(32 * wider), 3, 2, act="silu")
    stages = tuple(
        stage._replace(width=divisible(stage.width * wider), depth=ceil(stage.depth * deeper))
        for stage in _EFFICIENTNET
    )
    x = _body(tape, x, stages, "silu", True)
    return _classified(tape, x, 4 * x.shape.channels, "silu", n_classes)


# (width, depth, rows of an image) of EfficientNet B0 to B7
_COMPOUND = (
    (1.0, 1.0, 224), (1.0, 1.1, 240), (1.1, 1.2, 260), (1.2, 1.4, 300), (1.4, 1.8, 380), (1.6, 2.2, 456), (1.8, 2.6, 528),
    (2.0, 3.1, 600),
)  # fmt: skip
_MNAS = {"0.5": 0.5, "0.75": 0.75, "1.0": 1.0, "1.3": 1.3}
INVERTED = (
    Architecture("mobilenet-v2", _mobilenet, source="arXiv 1801.04381; torchvision"),
    *(
        Architecture(f"mnasnet-{name}", partial(_mnasnet, wider), source="arXiv 1807.11626; torchvision")
        for name, wider in _MNAS.items()
    ),
    *(
        Architecture(
            f"efficientnet-b{number}",
            partial(_efficientnet, wider, deeper),
            size,
            source="arXiv 1905.11946; torchvision",
        )
        for number, (wider, deeper, size) in enumerate(_COMPOUND)
    ),
)

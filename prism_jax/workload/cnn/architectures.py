"""Convolutional networks by name: small ones here, classic ones next door; `ARCHITECTURES.add(...)` adds one.

- Inverted residuals (a block widens, convolves each channel by itself, narrows): MobileNet v2, MNASNet, EfficientNet. arXiv
  1801.04381, 1807.11626, 1905.11946.
- SqueezeNet and ShuffleNet v2, for small devices. arXiv 1602.07360, 1807.11164.
- ConvNeXt: depthwise 7x7, layer norm, and two products of every pixel, four times as wide inside. arXiv 2201.03545.

All as in torchvision. Of the 20 residual and shake-shake networks of CM-DARE (cake-lab/CM-DARE, `step_time_k80`, images of 32
x 32) only totals were published: FLOPs of both passes (thrice as many would exceed the peak of K80), parameters and tensors.
They become equal 3x3 convolutions: of n tensors a third are convolutions, the others scale and shift of their norms; all have
one width and one number of pixels, which follow from parameters and operations; every second one ends a residual block. So
products, passes over memory and what is exchanged have the right totals (parameters to 7%, operations to 14%: widths and
edges are whole numbers), and how they are spread over the depth is not modelled.
"""

from __future__ import annotations

from functools import partial
from math import ceil, sqrt
from typing import NamedTuple

from ...core.registry import Registry
from .classic_networks import DENSENETS, INCEPTIONS, RESNETS, VGGS, CnnArchitecture as Architecture
from .tape import CnnNetwork, ImageTensor, Tape


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


def _squeezed(tape: Tape, x: ImageTensor, width: int, act: str) -> ImageTensor:
    """Squeeze and excitation: a gate per channel, from the means of all."""
    gate = tape.act(tape.conv(tape.pool_to(x), width, 1, bias=True), act)
    return tape.scale(x, tape.act(tape.conv(gate, x.shape.channels, 1, bias=True), "sigmoid"))


def _inverted(tape: Tape, x: ImageTensor, stage: Stage, stride: int, act: str, squeezes: bool) -> ImageTensor:
    given = x.shape.channels
    inner = given * stage.wider
    y = tape.conv_norm_act(x, inner, 1, act=act) if stage.wider > 1 else x
    y = tape.conv_norm_act(y, inner, stage.kernel, stride, groups=inner, act=act)
    if squeezes:
        y = _squeezed(tape, y, max(1, given // 4), act)
    y = tape.conv_norm_act(y, stage.width, 1, act="")
    return tape.add(y, x) if stride == 1 and given == stage.width else y


def _classified(tape: Tape, x: ImageTensor, width: int, act: str, n_classes: int) -> CnnNetwork:
    with tape.block("classifier", "last"):
        x = tape.pool_to(tape.conv_norm_act(x, width, 1, act=act))
        tape.loss(tape.linear(tape.dropout(tape.flat(x)), n_classes))
    return tape.network


def _body(tape: Tape, x: ImageTensor, stages: tuple[Stage, ...], act: str, squeezes: bool) -> ImageTensor:
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


def _mobilenet(image_size: int, n_classes: int) -> CnnNetwork:
    tape = Tape(image_size)
    with tape.block("stem", "first"):
        x = tape.conv_norm_act(tape.image, 32, 3, 2, act="relu6")
    return _classified(tape, _body(tape, x, _MOBILENET, "relu6", False), 1280, "relu6", n_classes)


def _mnasnet(wider: float, image_size: int, n_classes: int) -> CnnNetwork:
    def width_of(width: int) -> int:
        return divisible(width * wider)

    tape = Tape(image_size)
    with tape.block("stem", "first"):
        x = tape.conv_norm_act(tape.image, width_of(32), 3, 2)
        x = tape.conv_norm_act(x, width_of(32), 3, groups=width_of(32))
        x = tape.conv_norm_act(x, width_of(16), 1, act="")
    stages = tuple(stage._replace(width=width_of(stage.width)) for stage in _MNASNET)
    return _classified(tape, _body(tape, x, stages, "relu", False), 1280, "relu", n_classes)


def _efficientnet(wider: float, deeper: float, image_size: int, n_classes: int) -> CnnNetwork:
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


def _fire(tape: Tape, x: ImageTensor, narrow: int, wide: int) -> ImageTensor:
    x = tape.act(tape.conv(x, narrow, 1, bias=True))
    return tape.concat(*(tape.act(tape.conv(x, wide, kernel, bias=True)) for kernel in (1, 3)))


# (narrow, wide) of the fire modules; a pool stands in front of those whose number is in the second tuple
_FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))


def _squeezenet(stem: tuple[int, int], pools: tuple[int, ...], image_size: int, n_classes: int) -> CnnNetwork:
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


def _shuffled(tape: Tape, x: ImageTensor, width: int, stride: int) -> ImageTensor:
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


def _shufflenet(widths: tuple[int, int, int], last: int, image_size: int, n_classes: int) -> CnnNetwork:
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


def _block(tape: Tape, x: ImageTensor) -> ImageTensor:
    width = x.shape.channels
    y = tape.norm(tape.conv(x, width, 7, groups=width, bias=True))
    y = tape.linear(tape.act(tape.linear(y, 4 * width), "gelu"), width)
    return tape.add(tape.layer_scale(y), x)


def _convnext(depths: tuple[int, ...], widths: tuple[int, ...], image_size: int, n_classes: int) -> CnnNetwork:
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


_PASSES = 3.0  # forward, and two products backward


def _of_totals(train_flops: float, n_params: int, n_tensors: int, image_size: int, n_classes: int) -> CnnNetwork:
    n = max(2, n_tensors // 3)
    width = max(1, round(sqrt(n_params / (9.0 * n))))
    pixels = train_flops / _PASSES / (2.0 * 9.0 * width * width * n)
    edge = max(1, round(sqrt(pixels) * image_size / 32.0))
    tape = Tape(edge, channels=width)
    with tape.block("stem", "first"):
        x = tape.conv_norm_act(tape.image, width)
    for number in range((n - 1) // 2):
        with tape.block(f"residual.{number}"):
            y = tape.conv_norm_act(tape.conv_norm_act(x, width), width, act="")
            x = tape.act(tape.add(y, x))
    return tape.classified(x, n_classes)


# Name: FLOPs of a sample in both passes, parameters, tensors.
CM_DARE_TOTALS = {
    "res15": (630_989_589, 693_818, 50), "res32": (1_658_696_889, 1_857_722, 104), "custom1": (860_117_021, 1_063_226, 62),
    "custom2": (1_087_710_757, 1_211_194, 74), "custom3": (1_542_543_029, 1_451_706, 98),
    "custom4": (2_343_835_089, 2_633_658, 140), "custom5": (2_915_531_621, 3_391_034, 170),
    "custom6": (3_943_594_121, 4_610_362, 224), "custom7": (4_970_946_221, 5_718_842, 278),
    "custom8": (5_882_144_461, 6_421_306, 326), "custom9": (2_001_265_989, 2_245_690, 122),
    "custom10": (4_284_629_525, 4_776_890, 242), "shake16": (663_908_170, 737_418, 210),
    "shake48": (5_768_251_646, 6_568_282, 216),
    "shake80": (15_906_945_758, 18_206_970, 216), "shake-small": (2_587_431_950, 2_926_986, 216),
    "shake-mid": (10_208_089_582, 11_661_610, 216), "shake-big": (22_864_820_174, 26_204_362, 216),
    "shake-small-32d": (3_273_945_570, 3_703_818, 264), "shake-mid-32d": (12_950_909_250, 14_763_562, 264),
}  # fmt: skip
CM_DARE = tuple(
    Architecture(f"cm-dare-{name}", partial(_of_totals, *totals), 32, 10, "cake-lab/CM-DARE: totals alone")
    for name, totals in CM_DARE_TOTALS.items()
)


SHIPPED = (*RESNETS, *VGGS, *DENSENETS, *INVERTED, *INCEPTIONS, *SMALL, *CONVNEXTS, *CM_DARE)
ARCHITECTURES: Registry[Architecture] = Registry("convolutional network", lambda: SHIPPED)

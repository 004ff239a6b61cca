"""Classic convolutional networks, each a function from the size of an image and the number of classes to its layers.

- Residual: ResNet (stride in the 3x3 convolution, v1.5), ResNeXt, Wide-ResNet. arXiv 1512.03385, 1611.05431, 1605.07146.
- VGG and AlexNet: plain convolutions with biases, and a large classifier. arXiv 1409.1556, 1404.5997.
- DenseNet: every layer reads all layers of its block before it; norm and activation first, bottleneck of 4. arXiv 1608.06993.
- Inception v3, with its auxiliary classifier: branches side by side, concatenated. arXiv 1512.00567.

Source: torchvision, `models/resnet.py`, `vgg.py`, `alexnet.py`, `densenet.py`, `inception.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from .tape import CnnNetwork, ImageTensor, Tape

Writes = Callable[[int, int], CnnNetwork]


@dataclass(frozen=True)
class CnnArchitecture:
    """One convolutional network.

    Attributes:
        name: as in `architecture: name` of a job file.
        writes: (image size, classes) -> its layers.
        image_size: rows and columns it is usually trained with.
        n_classes: classes it is usually trained with.
        source: paper and implementation.
    """

    name: str
    writes: Writes
    image_size: int = 224
    n_classes: int = 1000
    source: str = ""


_REDUCTION = 16  # of channels in front of a gate
_STAGES = (64, 128, 256, 512)
_SOURCE = "arXiv 1512.03385; stride as in v1.5, torchvision"


class Kind(NamedTuple):
    """Properties in which the families of networks differ.

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


def _shortcut(tape: Tape, x: ImageTensor, width: int, stride: int) -> ImageTensor:
    if stride == 1 and x.shape.channels == width:
        return x
    return tape.conv_norm_act(x, width, 1, stride, act="")


def _basic(tape: Tape, x: ImageTensor, width: int, stride: int) -> ImageTensor:
    y = tape.conv_norm_act(x, width, 3, stride)
    beside = _shortcut(tape, x, width, stride)
    return tape.act(tape.add(tape.conv_norm_act(y, width, 3, act=""), beside))


def _bottleneck(tape: Tape, x: ImageTensor, width: int, stride: int, kind: Kind) -> ImageTensor:
    inner = width * kind.base // 64 * kind.groups
    y = tape.conv_norm_act(x, inner, 1)
    y = tape.conv_norm_act(y, inner, 3, stride, groups=kind.groups)
    y = tape.conv_norm_act(y, 4 * width, 1, act="")
    if kind.squeezes:
        gate = tape.act(tape.linear(tape.pool_to(y), 4 * width // _REDUCTION))
        y = tape.scale(y, tape.act(tape.linear(gate, 4 * width), "sigmoid"))
    beside = _shortcut(tape, x, 4 * width, stride)
    return tape.act(tape.add(y, beside))


def _write(depths: tuple[int, ...], kind: Kind, image_size: int, n_classes: int) -> CnnNetwork:
    tape = Tape(image_size)
    with tape.block("stem", "first"):
        x = tape.pool(tape.conv_norm_act(tape.image, 64, 7, 2), 3, 2, 1)
    return _of_stages(tape, x, depths, kind, n_classes)


def _of_stages(tape: Tape, x: ImageTensor, depths: tuple[int, ...], kind: Kind, n_classes: int) -> CnnNetwork:
    for stage, (width, depth) in enumerate(zip(_STAGES, depths, strict=True)):
        for number in range(depth):
            stride = 2 if stage and not number else 1
            with tape.block(f"stage{stage + 1}.{number}"):
                x = _bottleneck(tape, x, width, stride, kind) if kind.is_deep else _basic(tape, x, width, stride)
    return tape.classified(x, n_classes)


def _cifar(image_size: int, n_classes: int) -> CnnNetwork:
    """ResNet-18 for small images: a 3x3 convolution in front, and no pool (kuangliu/pytorch-cifar)."""
    tape = Tape(image_size)
    with tape.block("stem", "first"):
        x = tape.conv_norm_act(tape.image, 64, 3)
    return _of_stages(tape, x, _SHORT, Kind(is_deep=False), n_classes)


def _resnet(depths: tuple[int, ...], kind: Kind = _DEEP) -> Writes:
    return partial(_write, depths, kind)


_SHORT, _50, _101, _152 = (2, 2, 2, 2), (3, 4, 6, 3), (3, 4, 23, 3), (3, 8, 36, 3)
_NEXT, _SE = "arXiv 1611.05431; torchvision", "arXiv 1709.01507, 1611.05431; NVIDIA DeepLearningExamples"
RESNETS = (
    CnnArchitecture("resnet-18", _resnet(_SHORT, Kind(is_deep=False)), source=_SOURCE),
    CnnArchitecture("resnet-34", _resnet(_50, Kind(is_deep=False)), source=_SOURCE),
    CnnArchitecture("resnet-50", _resnet(_50), source=_SOURCE),
    CnnArchitecture("resnet-101", _resnet(_101), source=_SOURCE),
    CnnArchitecture("resnet-152", _resnet(_152), source=_SOURCE),
    CnnArchitecture("resnext-50-32x4d", _resnet(_50, Kind(groups=32, base=4)), source=_NEXT),
    CnnArchitecture("resnext-101-32x4d", _resnet(_101, Kind(groups=32, base=4)), source=_SE),
    CnnArchitecture("resnext-101-32x8d", _resnet(_101, Kind(groups=32, base=8)), source=_NEXT),
    CnnArchitecture("se-resnext-101-32x4d", _resnet(_101, Kind(groups=32, base=4, squeezes=True)), source=_SE),
    CnnArchitecture("wide-resnet-50-2", _resnet(_50, Kind(base=128)), source="arXiv 1605.07146; torchvision"),
    CnnArchitecture("wide-resnet-101-2", _resnet(_101, Kind(base=128)), source="arXiv 1605.07146; torchvision"),
    CnnArchitecture("resnet-18-cifar", _cifar, 32, 10, "arXiv 1512.03385; kuangliu/pytorch-cifar"),
)


_WIDTHS = (64, 128, 256, 512, 512)


def _plain(
    tape: Tape,
    x: ImageTensor,
    width: int,
    kernel: int = 3,
    stride: int = 1,
    padding: int | None = None,
    *,
    has_norm: bool = False,
) -> ImageTensor:
    y = tape.conv(x, width, kernel, stride, padding, bias=True)
    return tape.act(tape.norm(y) if has_norm else y)


def _classifier(tape: Tape, x: ImageTensor, size: int, n_classes: int, drops_first: bool) -> None:
    with tape.block("classifier", "last"):
        x = tape.flat(tape.pool_to(x, size))
        for _ in range(2):
            if drops_first:
                x = tape.dropout(x)
            x = tape.act(tape.linear(x, 4096))
            if not drops_first:
                x = tape.dropout(x)
        tape.loss(tape.linear(x, n_classes))


def _vgg(depths: tuple[int, ...], has_norm: bool, image_size: int, n_classes: int) -> CnnNetwork:
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


def _alexnet(image_size: int, n_classes: int) -> CnnNetwork:
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


_VGG_SOURCE = "arXiv 1409.1556; torchvision"
_DEPTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
VGGS = (
    *(
        CnnArchitecture(f"vgg-{depth}{ending}", partial(_vgg, each, has_norm), source=_VGG_SOURCE)
        for has_norm, ending in ((False, ""), (True, "-bn"))
        for depth, each in _DEPTHS.items()
    ),
    CnnArchitecture("alexnet", _alexnet, source="arXiv 1404.5997; torchvision"),
)


_BOTTLENECK = 4


def _before(tape: Tape, x: ImageTensor, width: int, kernel: int = 1) -> ImageTensor:
    """Writes norm, activation and convolution, in this order."""
    return tape.conv(tape.act(tape.norm(x)), width, kernel)


def _densenet(growth: int, depths: tuple[int, ...], stem: int, image_size: int, n_classes: int) -> CnnNetwork:
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


_DENSENET_SOURCE = "arXiv 1608.06993; torchvision"
DENSENETS = (
    CnnArchitecture("densenet-121", partial(_densenet, 32, (6, 12, 24, 16), 64), source=_DENSENET_SOURCE),
    CnnArchitecture("densenet-161", partial(_densenet, 48, (6, 12, 36, 24), 96), source=_DENSENET_SOURCE),
    CnnArchitecture("densenet-169", partial(_densenet, 32, (6, 12, 32, 32), 64), source=_DENSENET_SOURCE),
    CnnArchitecture("densenet-201", partial(_densenet, 32, (6, 12, 48, 32), 64), source=_DENSENET_SOURCE),
)


def _pooled(tape: Tape, x: ImageTensor, width: int) -> ImageTensor:
    return tape.conv_norm_act(tape.pool(x, 3, 1, 1, kind="mean"), width, 1)


def _a(tape: Tape, x: ImageTensor, pooled: int) -> ImageTensor:
    one = tape.conv_norm_act(x, 64, 1)
    five = tape.conv_norm_act(tape.conv_norm_act(x, 48, 1), 64, 5)
    three = tape.conv_norm_act(tape.conv_norm_act(tape.conv_norm_act(x, 64, 1), 96), 96)
    return tape.concat(one, five, three, _pooled(tape, x, pooled))


def _b(tape: Tape, x: ImageTensor) -> ImageTensor:
    three = tape.conv_norm_act(x, 384, 3, 2, 0)
    double = tape.conv_norm_act(tape.conv_norm_act(tape.conv_norm_act(x, 64, 1), 96), 96, 3, 2, 0)
    return tape.concat(three, double, tape.pool(x, 3, 2))


def _c(tape: Tape, x: ImageTensor, width: int) -> ImageTensor:
    one = tape.conv_norm_act(x, 192, 1)
    seven = tape.conv_norm_act(tape.conv_norm_act(tape.conv_norm_act(x, width, 1), width, (1, 7)), 192, (7, 1))
    double = tape.conv_norm_act(tape.conv_norm_act(tape.conv_norm_act(x, width, 1), width, (7, 1)), width, (1, 7))
    double = tape.conv_norm_act(tape.conv_norm_act(double, width, (7, 1)), 192, (1, 7))
    return tape.concat(one, seven, double, _pooled(tape, x, 192))


def _d(tape: Tape, x: ImageTensor) -> ImageTensor:
    three = tape.conv_norm_act(tape.conv_norm_act(x, 192, 1), 320, 3, 2, 0)
    seven = tape.conv_norm_act(tape.conv_norm_act(tape.conv_norm_act(x, 192, 1), 192, (1, 7)), 192, (7, 1))
    return tape.concat(three, tape.conv_norm_act(seven, 192, 3, 2, 0), tape.pool(x, 3, 2))


def _e(tape: Tape, x: ImageTensor) -> ImageTensor:
    one = tape.conv_norm_act(x, 320, 1)
    three = tape.conv_norm_act(x, 384, 1)
    double = tape.conv_norm_act(tape.conv_norm_act(x, 448, 1), 384)
    split = [tape.conv_norm_act(part, 384, kernel) for part in (three, double) for kernel in ((1, 3), (3, 1))]
    return tape.concat(one, *split, _pooled(tape, x, 192))


def _stem(tape: Tape) -> ImageTensor:
    with tape.block("stem", "first"):
        x = tape.conv_norm_act(tape.image, 32, 3, 2, 0)
        x = tape.conv_norm_act(tape.conv_norm_act(x, 32, 3, 1, 0), 64)
        x = tape.pool(x, 3, 2)
        x = tape.conv_norm_act(tape.conv_norm_act(x, 80, 1), 192, 3, 1, 0)
        return tape.pool(x, 3, 2)


def _inception(image_size: int, n_classes: int) -> CnnNetwork:
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
    CnnArchitecture("inception-v3", _inception, 299, source="arXiv 1512.00567; torchvision, with auxiliary head"),
)

"""Tape: writes a convolutional network down, layer by layer, as one would call its modules; a layer has the sizes of one sample.

    tape = Tape(224)
    with tape.block("stem", "first"):
        x = tape.conv_norm_act(tape.image, 64, 7, stride=2)

A layer knows no batch, precision or device; `blocks` turns it into kernels. What the backward pass keeps follows from who
reads what: convolutions, norms and products keep their inputs, a ReLU its output (in place of its input), and a tensor is
kept once. A tensor that is read again adds a sum of gradients.

Source: PyTorch's autograd formulas (`tools/autograd/derivatives.yaml`); sizes as in torch.nn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ...core.errors import SpecError

PRODUCTS = ("conv", "linear")


class ImageShape(NamedTuple):
    """Shape of the tensor of one sample."""

    channels: int
    height: int = 1
    width: int = 1

    @property
    def pixels(self) -> int:
        """Number of pixels: rows times columns."""
        return self.height * self.width

    @property
    def elements(self) -> int:
        """Number of elements of the tensor."""
        return self.channels * self.pixels


class Layer(NamedTuple):
    """One layer.

    Attributes:
        op: conv, linear, norm, act, add, scale (by a gate per channel), pool, concat, move (a copy in another order), dropout,
            loss, or gradient_sum (nothing forward; a tensor that several layers read has the sum of their gradients).
        inputs, outputs: shapes of one sample; of several equal inputs, one.
        kernel: rows and columns of a convolution or a pool; (1, 1) elsewhere.
        stride: of a convolution, both ways.
        groups: of a convolution.
        n_params: trained.
        n_tensors: tensors that hold them.
        has_input_grad: whether the gradient of its input is wanted: not of the image.
        saved: elements that the backward pass needs and that no earlier layer kept, per sample.
        saved_bytes: bytes kept in addition, equal in every precision, per sample: indices, masks.
    """

    op: str
    inputs: ImageShape
    outputs: ImageShape
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    groups: int = 1
    n_params: int = 0
    n_tensors: int = 0
    has_input_grad: bool = True
    saved: int = 0
    saved_bytes: int = 0

    @property
    def is_depthwise(self) -> bool:
        """A convolution of every channel by itself."""
        return self.op == "conv" and self.groups > 1 and self.groups == self.inputs.channels

    @property
    def n_weights(self) -> int:
        """Number of weights of a convolution or product, without its bias."""
        if self.op not in PRODUCTS:
            return 0
        rows, columns = self.kernel
        return self.outputs.channels * (self.inputs.channels // self.groups) * rows * columns

    @property
    def forward_flops(self) -> float:
        """FLOPs of products per sample: two per multiply-add."""
        return 2.0 * self.n_weights * self.outputs.pixels


class Segment(NamedTuple):
    """`count` equal blocks, one after another.

    Attributes:
        name: of the first of them, as the network calls it.
        place: body, first or last; see `workload.base.workload.BlockRun`.
        layers: of one of them, in order.
        count: how many.
    """

    name: str
    place: str
    layers: tuple[Layer, ...]
    count: int = 1

    @property
    def outputs(self) -> ImageShape:
        """Shape of the tensor that one block hands to the next."""
        return self.layers[-1].outputs


class CnnNetwork(NamedTuple):
    """A whole network at one size of image."""

    segments: tuple[Segment, ...]

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All layers, repeated ones as often as they run."""
        return tuple(layer for segment in self.segments for _ in range(segment.count) for layer in segment.layers)

    @property
    def n_params(self) -> int:
        """Number of trained parameters."""
        return sum(layer.n_params for layer in self.layers)

    @property
    def n_tensors(self) -> int:
        """Number of parameter tensors, over which an optimizer loops."""
        return sum(layer.n_tensors for layer in self.layers)

    @property
    def forward_flops(self) -> float:
        """FLOPs of products, per sample."""
        return sum(segment.count * layer.forward_flops for segment in self.segments for layer in segment.layers)

    @property
    def train_flops(self) -> float:
        """FLOPs of a forward and a backward pass, per sample: three products per layer, two where no input gradient is wanted."""
        return sum(
            segment.count * layer.forward_flops * (3.0 if layer.has_input_grad else 2.0)
            for segment in self.segments
            for layer in segment.layers
        )


INDEX_BYTES = 8  # a maximum's place, int64
IN_PLACE = ("relu", "relu6", "hard_tanh")  # overwrite their input, and need their output alone


class ImageTensor(NamedTuple):
    """One tensor of the network: `number` tells tensors of one shape apart; 0 is the image."""

    number: int
    shape: ImageShape


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


class Tape:
    """A network as it is written down.

    Args:
        image_size: rows and columns of a (square) image.
        channels: of the image.
    """

    def __init__(self, image_size: int, channels: int = 3) -> None:
        self.image = ImageTensor(0, ImageShape(channels, image_size, image_size))
        self._n_tensor = 1
        self._kept: set[int] = set()
        self._read: set[int] = set()
        self._segments: list[Segment] = []
        self._layers: list[Layer] = []

    @contextmanager
    def block(self, name: str, place: str = "body") -> Iterator[None]:
        """Collects the layers written inside the context as one block; equal neighbours become one segment."""
        self._layers = []
        yield
        new = Segment(name, place, tuple(self._layers))
        last = self._segments[-1] if self._segments else None
        if last is not None and (last.place, last.layers) == (place, new.layers):
            self._segments[-1] = last._replace(count=last.count + 1)
        else:
            self._segments.append(new)

    @property
    def network(self) -> CnnNetwork:
        """Network of all blocks that were written."""
        return CnnNetwork(tuple(self._segments))

    def conv(
        self,
        x: ImageTensor,
        width: int,
        kernel: int | tuple[int, int] = 3,
        stride: int = 1,
        padding: int | tuple[int, int] | None = None,
        groups: int = 1,
        bias: bool = False,
    ) -> ImageTensor:
        """A convolution to `width` channels; padding keeps the size at stride 1 if it is not given."""
        rows, columns = _pair(kernel)
        pad = ((rows - 1) // 2, (columns - 1) // 2) if padding is None else _pair(padding)
        shape = ImageShape(width, *self._swept(x, (rows, columns), stride, pad))
        weights = width * (x.shape.channels // groups) * rows * columns
        return self._write(
            Layer(
                "conv", x.shape, shape, (rows, columns), stride, groups, weights + width * bias, 1 + bias, x.number > 0
            ),
            (x,),
            keeps=x,
        )

    def norm(self, x: ImageTensor) -> ImageTensor:
        """Batch norm, or layer norm over channels: a scale and a shift per channel."""
        return self._write(Layer("norm", x.shape, x.shape, n_params=2 * x.shape.channels, n_tensors=2), (x,), keeps=x)

    def act(self, x: ImageTensor, name: str = "relu") -> ImageTensor:
        """Applies an activation."""
        done = self._write(Layer("act", x.shape, x.shape), (x,), keeps=None if name in IN_PLACE else x)
        return self._keep(done) if name in IN_PLACE else done

    def conv_norm_act(
        self,
        x: ImageTensor,
        width: int,
        kernel: int | tuple[int, int] = 3,
        stride: int = 1,
        padding: int | tuple[int, int] | None = None,
        groups: int = 1,
        act: str = "relu",
    ) -> ImageTensor:
        """A convolution, its batch norm and, unless its name is empty, an activation."""
        done = self.norm(self.conv(x, width, kernel, stride, padding, groups))
        return self.act(done, act) if act else done

    def pool(
        self, x: ImageTensor, kernel: int, stride: int, padding: int = 0, *, kind: str = "max", ceil: bool = False
    ) -> ImageTensor:
        """Maximum or mean over windows."""
        size = self._swept(x, (kernel, kernel), stride, (padding, padding), ceil)
        shape = ImageShape(x.shape.channels, *size)
        indices = INDEX_BYTES * shape.elements if kind == "max" else 0
        layer = Layer("pool", x.shape, shape, (kernel, kernel), stride, saved_bytes=indices)
        return self._write(layer, (x,), keeps=x if kind == "max" else None)

    def pool_to(self, x: ImageTensor, size: int = 1) -> ImageTensor:
        """Mean over as many windows as give `size` rows and columns."""
        return self._write(Layer("pool", x.shape, ImageShape(x.shape.channels, size, size)), (x,))

    def flat(self, x: ImageTensor) -> ImageTensor:
        """Returns the image as a vector; nothing is moved."""
        return ImageTensor(x.number, ImageShape(x.shape.elements))

    def linear(self, x: ImageTensor, width: int, bias: bool = True) -> ImageTensor:
        """A product of every pixel with a matrix."""
        shape = ImageShape(width, x.shape.height, x.shape.width)
        n_params = x.shape.channels * width + width * bias
        layer = Layer("linear", x.shape, shape, n_params=n_params, n_tensors=1 + bias, has_input_grad=x.number > 0)
        return self._write(layer, (x,), keeps=x)

    def add(self, x: ImageTensor, y: ImageTensor) -> ImageTensor:
        """Sum of two tensors of one shape.

        Raises:
            SpecError: their shapes differ.
        """
        if x.shape != y.shape:
            raise SpecError(f"tensors of {tuple(x.shape)} and {tuple(y.shape)} cannot be added up")
        return self._write(Layer("add", x.shape, x.shape), (x, y))

    def concat(self, *parts: ImageTensor) -> ImageTensor:
        """Channels of all parts in one tensor."""
        first = parts[0].shape
        shape = first._replace(channels=sum(part.shape.channels for part in parts))
        return self._write(Layer("concat", shape, shape), parts)

    def part(self, x: ImageTensor, channels: int) -> ImageTensor:
        """Returns some of the image's channels; nothing is moved."""
        return ImageTensor(x.number, x.shape._replace(channels=channels))

    def scale(self, x: ImageTensor, gate: ImageTensor) -> ImageTensor:
        """`x` times a gate per channel; both are kept."""
        self._kept.add(gate.number)
        return self._write(Layer("scale", x.shape, x.shape), (x, gate), keeps=x)

    def layer_scale(self, x: ImageTensor) -> ImageTensor:
        """`x` times a trained factor per channel."""
        return self._write(Layer("scale", x.shape, x.shape, n_params=x.shape.channels, n_tensors=1), (x,), keeps=x)

    def move(self, x: ImageTensor) -> ImageTensor:
        """A copy in another order: a shuffle of channels, a change of layout."""
        return self._write(Layer("move", x.shape, x.shape), (x,))

    def dropout(self, x: ImageTensor) -> ImageTensor:
        """Sets some elements to zero; a mask of bytes is kept."""
        return self._write(Layer("dropout", x.shape, x.shape, saved_bytes=x.shape.elements), (x,))

    def loss(self, x: ImageTensor) -> ImageTensor:
        """Cross entropy over its channels."""
        return self._write(Layer("loss", x.shape, ImageShape(1)), (x,), keeps=x)

    def classified(self, x: ImageTensor, n_classes: int) -> CnnNetwork:
        """The whole network, with a classifier of the mean over the pixels behind `x` and its loss."""
        with self.block("classifier", "last"):
            self.loss(self.linear(self.flat(self.pool_to(x)), n_classes))
        return self.network

    def _swept(
        self, x: ImageTensor, kernel: tuple[int, int], stride: int, padding: tuple[int, int], ceil: bool = False
    ) -> tuple[int, int]:
        """Rows and columns of places where a window fits.

        Raises:
            SpecError: there is none.
        """
        given = (x.shape.height, x.shape.width)
        room = [size + 2 * pad - window for size, pad, window in zip(given, padding, kernel, strict=True)]
        if min(room) < 0:
            size = self.image.shape.height
            raise SpecError(
                f"image_size = {size} is too small: a window of {kernel[0]} x {kernel[1]} meets {given[0]} x {given[1]}. "
                "Use larger images."
            )
        height, width = ((-(-space // stride) if ceil else space // stride) + 1 for space in room)
        return height, width

    def _write(self, layer: Layer, reads: tuple[ImageTensor, ...], keeps: ImageTensor | None = None) -> ImageTensor:
        """Appends a layer after the sums of gradients that its inputs now need."""
        for x in reads:
            if x.number in self._read and x.number > 0:
                self._layers.append(Layer("gradient_sum", x.shape, x.shape))
            self._read.add(x.number)
        if keeps is not None and keeps.number not in self._kept:
            self._kept.add(keeps.number)
            layer = layer._replace(saved=keeps.shape.elements)
        self._layers.append(layer)
        self._n_tensor += 1
        return ImageTensor(self._n_tensor - 1, layer.outputs)

    def _keep(self, x: ImageTensor) -> ImageTensor:
        """Notes that the last layer keeps its output."""
        self._kept.add(x.number)
        self._layers[-1] = self._layers[-1]._replace(saved=x.shape.elements)
        return x

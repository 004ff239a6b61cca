"""Layers of a convolutional network, as sizes of one sample: channels, rows and columns of what goes in and out.

A layer knows no batch, precision or device; `op_lists` turn it into kernels. Networks are written down by a `Tape`.
"""

from __future__ import annotations

from typing import NamedTuple

PRODUCTS = ("conv", "linear")


class Shape(NamedTuple):
    """Of one sample's tensor."""

    channels: int
    height: int = 1
    width: int = 1

    @property
    def pixels(self) -> int:
        """Rows times columns."""
        return self.height * self.width

    @property
    def elements(self) -> int:
        """Numbers in it."""
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
        saved_bytes: bytes kept beside them whatever the precision, per sample: indices, masks.
    """

    op: str
    inputs: Shape
    outputs: Shape
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
        """Of a convolution or product, without its bias."""
        if self.op not in PRODUCTS:
            return 0
        rows, columns = self.kernel
        return self.outputs.channels * (self.inputs.channels // self.groups) * rows * columns

    @property
    def forward_flops(self) -> float:
        """Of products, per sample: multiply-adds times two."""
        return 2.0 * self.n_weights * self.outputs.pixels


class Segment(NamedTuple):
    """`count` equal blocks, one after another.

    Attributes:
        name: of the first of them, as the network calls it.
        place: body, first or last; see `workload.base.BlockRun`.
        layers: of one of them, in order.
        count: how many.
    """

    name: str
    place: str
    layers: tuple[Layer, ...]
    count: int = 1

    @property
    def outputs(self) -> Shape:
        """What one hands to the next."""
        return self.layers[-1].outputs


class Network(NamedTuple):
    """A whole network at one size of image."""

    segments: tuple[Segment, ...]

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All layers, repeated ones as often as they run."""
        return tuple(layer for segment in self.segments for _ in range(segment.count) for layer in segment.layers)

    @property
    def n_params(self) -> int:
        """Trained parameters."""
        return sum(segment.count * layer.n_params for segment in self.segments for layer in segment.layers)

    @property
    def n_tensors(self) -> int:
        """Tensors that hold them: what an optimizer loops over."""
        return sum(segment.count * layer.n_tensors for segment in self.segments for layer in segment.layers)

    @property
    def forward_flops(self) -> float:
        """Of products, per sample."""
        return sum(segment.count * layer.forward_flops for segment in self.segments for layer in segment.layers)

    @property
    def train_flops(self) -> float:
        """Of a forward and a backward pass, per sample: three products for each, two where no input gradient is wanted."""
        return sum(
            segment.count * layer.forward_flops * (3.0 if layer.has_input_grad else 2.0)
            for segment in self.segments
            for layer in segment.layers
        )

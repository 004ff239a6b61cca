"""CnnSpec: a convolutional network that is trained data parallel, as blocks counted in samples, and the kernels of its layers.

It is one of `ARCHITECTURES`, at a size of image and a number of classes of one's own; job files name each by its own name.

A convolution is a matrix product that never writes its inner dimension down (implicit GEMM): m = batch x pixels out, n =
channels out, k = channels in x kernel. Backward it is two more: the gradient of the input (m = batch x pixels in) and of the
weights (k = batch x pixels out). Convolutions in groups have too few channels per group to fill a tile and are bound by memory.
All else passes over device memory; passes are counted in tensors read and written.

Source: implicit GEMM NVIDIA, "Convolutional Layers User's Guide"; passes of batch norm cuDNN (spatial persistent mode keeps the
mean while it reads: 2 reads and 1 write forward, 3 reads and 1 write backward).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from ...core.bounds import check_bounds
from ...core.errors import Problem, SpecError
from ...framework.base import MemoryOptions
from ...plan.fields import QUANTISED
from ...plan.plan import ParallelPlan
from ..base.kernels import CONVOLUTION, TENSOR_CORES, WINOGRAD, Kernel, KernelTable, stream
from ..base.workload import DENSE, Block, BlockRun, Parameters, SavedTensor, Split, WorkloadDefaults, total_bytes, uncut
from .architectures import ARCHITECTURES, SHIPPED
from .classic_networks import CnnArchitecture, Writes
from .tape import CnnNetwork, Layer, Segment

_MASK = 1.0 / 8.0  # bytes of an element of the mask that a fused norm and ReLU keeps


@dataclass(frozen=True)
class Batch:
    """Properties of the plan and of a network's software that change its kernels.

    Attributes:
        samples: of a micro-batch.
        element_bytes: of an activation.
        fuses: batch norm takes the sum and the activation behind it along.
        transposes: tensors have channels first; tensor cores want them last, so they are moved before and after a convolution.
    """

    samples: float
    element_bytes: float
    fuses: bool
    transposes: bool

    @classmethod
    def of(cls, plan: ParallelPlan, channels_last: bool) -> Batch:
        """Makes the batch of a plan."""
        fuses = not plan.software.is_eager("norm")
        element = plan.element_bytes
        return cls(float(plan.micro_batch), element, fuses, not channels_last)

    def tensor_bytes(self, elements: float) -> float:
        """Returns the bytes of a tensor with so many elements per sample."""
        return self.element_bytes * self.samples * elements


def layer_kernels(layers: tuple[Layer, ...], batch: Batch) -> list[Kernel]:
    """Kernels of some layers, one after another."""
    if batch.fuses:
        return _fused_kernels(layers, batch)
    return [kernel for layer in layers for kernel in _KERNELS[layer.op](layer, batch)]


def _fused_kernels(layers: tuple[Layer, ...], batch: Batch) -> list[Kernel]:
    """A sum or an activation behind a norm runs inside its kernel: the other summand is one more read, its gradient one write."""
    made: list[Kernel] = []
    inside = False
    for layer in layers:
        if not inside or layer.op not in ("add", "act"):
            made += _KERNELS[layer.op](layer, batch)
            inside = layer.op == "norm" or (inside and layer.op == "gradient_sum")
            continue
        size = batch.tensor_bytes(layer.outputs.elements)
        if layer.op == "add":
            made += [stream("norm_add", "F", size, 0.0), stream("norm_add", "B", size, 0.0)]
        else:
            mask = batch.samples * layer.outputs.elements * _MASK
            made += [stream("norm_act", "F", mask, 0.0), stream("norm_act", "B", mask, 0.0)]
    return made


def _passes(
    name: str, layer: Layer, batch: Batch, forward: float, backward: float, launches: float = 1.0
) -> list[Kernel]:
    """Returns kernels that pass so many times over the layer's output in each direction."""
    size = batch.tensor_bytes(layer.outputs.elements)
    made = [stream(name, "F", forward * size, launches)] if forward else []
    return made + ([stream(name, "B", backward * size, launches)] if backward else [])


def _conv(layer: Layer, batch: Batch) -> list[Kernel]:
    products = _grouped(layer, batch) if layer.groups > 1 else _product(layer, batch)
    made = [kernel for kernel in products if layer.has_input_grad or kernel.phase != "B"]
    if layer.n_params > layer.n_weights:
        made.append(stream(f"{layer.op}_bias", "W", batch.tensor_bytes(layer.outputs.elements)))
    return made


def _product(layer: Layer, batch: Batch) -> list[Kernel]:
    """Returns the kernels of a convolution without groups, or of a linear layer."""
    rows, columns = layer.kernel
    window = rows * columns
    c_in, c_out, n = layer.inputs.channels, layer.outputs.channels, batch.samples
    out, into = n * layer.outputs.pixels, n * layer.inputs.pixels
    inner = c_out * window * out / into  # a stride leaves out taps: as many multiply-adds as forward
    flops = n * layer.forward_flops
    a, w, y = (batch.element_bytes * size for size in (into * c_in, layer.n_weights, out * c_out))
    name = _name(layer)
    moves = []
    if batch.transposes and layer.op == "conv":
        around = stream(f"{name}_layout", "F", 2.0 * (a + y), 2.0)._replace(variant=TENSOR_CORES, host_share=0.0)
        moves = [around._replace(phase=phase) for phase in "FBW"]
    forward = Kernel(name, "F", "gemm", flops, a + w + y, 1.0, out, c_out, c_in * window, variant=_variant(layer))
    input_grad = forward._replace(phase="B", m=into, n=c_in, k=inner)
    weight_grad = forward._replace(phase="W", m=c_out, n=c_in * window, k=out)
    return [forward, input_grad, weight_grad, *moves]


def _variant(layer: Layer) -> str:
    """Convolutions of 3 x 3 at stride 1 may run by Winograd's algorithm; see `cost.compute`."""
    if layer.op == "linear":
        return ""
    return WINOGRAD if (layer.kernel, layer.stride) == ((3, 3), 1) else CONVOLUTION


def _name(layer: Layer) -> str:
    rows, columns = layer.kernel
    return layer.op if layer.op == "linear" else f"conv_{rows}x{columns}"


def _grouped(layer: Layer, batch: Batch) -> list[Kernel]:
    """Reads what it needs and writes its result; no tile of a matrix product is filled by the channels of one group."""
    a, y = (batch.tensor_bytes(shape.elements) for shape in (layer.inputs, layer.outputs))
    w = batch.element_bytes * layer.n_weights
    return [stream("conv_depthwise" if layer.is_depthwise else "conv_grouped", phase, a + w + y) for phase in "FBW"]


def _counted(name: str, forward: float, backward: float) -> Callable[[Layer, Batch], list[Kernel]]:
    """Kernels of a layer that takes so many passes over its output, whatever it is."""
    return lambda layer, batch: _passes(name, layer, batch, forward, backward)


def _dropout(layer: Layer, batch: Batch) -> list[Kernel]:
    share = 1.0 / batch.element_bytes
    return _passes("dropout", layer, batch, 2.0 + share, 2.0 + share)


def _pool(layer: Layer, batch: Batch) -> list[Kernel]:
    a, y = (batch.tensor_bytes(shape.elements) for shape in (layer.inputs, layer.outputs))
    size = a + y + batch.samples * layer.saved_bytes
    return [stream("pool", phase, size) for phase in "FB"]


def _loss(layer: Layer, batch: Batch) -> list[Kernel]:
    """Logarithms of the softmax in fp32 and the loss of each row."""
    size = 4.0 * batch.samples * layer.inputs.elements
    return [stream("loss", "F", 2.0 * size, 2.0), stream("loss", "B", 2.0 * size, 2.0)]


_KERNELS: dict[str, Callable[[Layer, Batch], list[Kernel]]] = {
    "conv": _conv,
    "linear": _conv,
    "norm": _counted("norm", 3.0, 4.0),
    "act": _counted("act", 2.0, 3.0),
    "add": _counted("add", 3.0, 0.0),  # its gradient is that of both summands: nothing runs
    "gradient_sum": _counted("gradient_sum", 0.0, 3.0),
    "concat": _counted("concat", 2.0, 0.0),  # gradients of its parts are views
    "move": _counted("move", 2.0, 2.0),
    "scale": _counted(
        "scale", 2.0, 4.0
    ),  # backward: of the input 2 reads, with its write one more; of the factors 2 reads
    "dropout": _dropout,
    "pool": _pool,
    "loss": _loss,
}


@dataclass(frozen=True)
class CnnBlock(Block):
    """Block of layers.

    Attributes:
        segment: its layers.
        plan: under which it runs.
        channels_last: order of its tensors.
    """

    segment: Segment
    plan: ParallelPlan
    channels_last: bool

    @property
    def _recomputes(self) -> bool:
        return self.plan.recompute == "full" and self.segment.place == "body"

    @property
    def kernels(self) -> KernelTable:
        """Kernels of its layers; forward again in B where it is recomputed."""
        table = KernelTable.of(layer_kernels(self.segment.layers, Batch.of(self.plan, self.channels_last)))
        return table + table.repeated_in_backward() if self._recomputes else table

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """Parameters of the block, in one group."""
        return (Parameters(DENSE, float(sum(layer.n_params for layer in self.segment.layers))),)

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Returns the tensors that autograd keeps: only the block's input where the block is recomputed."""
        if self._recomputes:
            return (SavedTensor("input", self._bytes(self.segment.layers[0].inputs.elements)),)
        return self._kept()

    def _kept(self) -> tuple[SavedTensor, ...]:
        batch = self.plan.micro_batch
        made = (
            (f"{layer.op} {number}", self._bytes(layer.saved) + batch * layer.saved_bytes)
            for number, layer in enumerate(self.segment.layers)
        )
        return tuple(SavedTensor(name, size) for name, size in made if size)

    def _bytes(self, elements: int) -> float:
        return self.plan.element_bytes * self.plan.micro_batch * elements

    def forward_peak_bytes(self, rules: MemoryOptions) -> float:
        """Bytes of the largest result, in addition to what is kept."""
        return self._bytes(max(layer.outputs.elements for layer in self.segment.layers))

    def backward_peak_bytes(self, rules: MemoryOptions) -> float:
        """Gradients at both sides of its largest layer."""
        return self._bytes(max(layer.inputs.elements + layer.outputs.elements for layer in self.segment.layers))

    def recomputed_bytes(self, rules: MemoryOptions) -> float:
        """Bytes of the tensors that recomputation restores for one block."""
        return total_bytes(self._kept()) if self._recomputes else 0.0


MOST_PIXELS, MOST_CLASSES = 8192, 100_000_000  # rows of an image; classes
_RECOMPUTES = ("none", "full")


@cache
def _written(writes: Writes, image_size: int, n_classes: int) -> CnnNetwork:
    return writes(image_size, n_classes)


@dataclass(frozen=True)
class CnnSpec(WorkloadDefaults):
    """A convolutional network.

    Attributes:
        name: in reports.
        architecture: one of `ARCHITECTURES`.
        image_size: rows and columns of an image; 0: as the architecture is usually trained.
        n_classes: of the classifier; 0: as the network is usually trained.
        channels_last: order of tensors in memory (NHWC), which 16-bit products want; other orders are moved around each of them.
        source: where it comes from.

    Raises:
        SpecError: no such architecture, or images that it cannot take.
    """

    name: str
    architecture: str
    image_size: int = 0
    n_classes: int = 0
    channels_last: bool = True
    source: str = ""

    # What convolutional networks run where nothing is said: batch norm, sum and activation as kernels of their own.
    sure_software: ClassVar[dict[str, str]] = {"norm": "eager"}

    def __post_init__(self) -> None:
        check_bounds(SpecError, f"model {self.name}", MOST_PIXELS, image_size=self.image_size)
        check_bounds(SpecError, f"model {self.name}", MOST_CLASSES, n_classes=self.n_classes)
        if self.architecture not in ARCHITECTURES:
            try:
                ARCHITECTURES.named(self.architecture)
            except SpecError as error:
                raise SpecError.of(Problem("architecture", str(error)), f"model {self.name}") from None
        try:
            _ = self.network if self.image_size else None  # at its usual size an architecture is known to work
        except SpecError as error:
            raise SpecError.of(Problem("image_size", str(error)), f"model {self.name}") from None

    @property
    def _base(self) -> CnnArchitecture:
        return ARCHITECTURES.named(self.architecture)

    @property
    def network(self) -> CnnNetwork:
        """Layers of the network."""
        base = self._base
        return _written(base.writes, self.image_size or base.image_size, self.n_classes or base.n_classes)

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        """Blocks of the network, in order."""
        return tuple(BlockRun(one.name, one.count, one.place) for one in self.network.segments)

    def block(self, kind: str, plan: ParallelPlan) -> CnnBlock:
        """Returns one block under a plan."""
        segment = next(one for one in self.network.segments if one.name == kind)
        return CnnBlock(segment, plan, self.channels_last)

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        """The largest that one block of the body hands on: later ones hand on less."""
        handed = (one.outputs.elements for one in self.network.segments if one.place != "last")
        return plan.element_bytes * plan.micro_batch * max(handed, default=0)

    def n_params(self) -> int:
        """Returns the exact number of all parameters."""
        return self.network.n_params

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        """Returns the FLOPs of products alone, as they are usually counted; the gradient of the image is not computed."""
        again = 0.0
        if recomputed and plan.recompute == "full":
            body = tuple(one for one in self.network.segments if one.place == "body")
            again = CnnNetwork(body).forward_flops
        return plan.global_batch * (self.network.train_flops + again)

    def deeper(self, n: int) -> CnnSpec:
        """Refuses: there is no deeper network of the same name.

        Raises:
            SpecError: always.
        """
        raise SpecError(f"{self.name} has no variant with {n} more blocks")

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        """Copies of the whole network, or stages of it."""
        return uncut("columns that can be cut")

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        """Yields the options that a convolutional network does not have."""
        if plan.recompute not in _RECOMPUTES:
            text = (
                f"{plan.recompute}, but a convolutional network recomputes whole blocks or nothing. Use full or none."
            )
            yield Problem("recompute", text)
        if plan.dtype in QUANTISED:
            yield Problem("dtype", f"{plan.dtype}, but convolutions run in 16 bits or fp32. Use bf16, fp16 or fp32.")
        if plan.seq_len:
            yield Problem("seq_len", f"{plan.seq_len}, but samples of {self.name} are images. Leave it out.")


PRESETS = tuple(CnnSpec(one.name, one.name, source=one.source) for one in SHIPPED)
WORDS = {
    "architecture": "network: one of the convolutional networks of `prism-jax show models`",
    "image_size": "rows and columns of an image; 0: as the network is usually trained",
    "n_classes": "classes of the classifier; 0: as the network is usually trained",
    "channels_last": "order of tensors in memory (NHWC), which 16-bit products want; else they are moved around each product",
}

"""Laws of fp32 kernels on CUDA cores (no TF32): seconds of convolutions, of element-wise kernels and of kernels over rows.

A convolution takes the fastest of the ways in which libraries compute it:

| way | products (rows x columns x inner, how many) | also moved |
|---|---|---|
| implicit GEMM | B Ho Wo x Cout x Cin kh kw, 1 | - |
| Winograd F(2x2, 3x3), one kernel | B ceil(Ho/2) ceil(Wo/2) x Cout x Cin, 16: 2.25 times fewer FLOPs | 16 Cin Cout weights |
| Winograd F(4x4, 3x3), transforms apart | B ceil(Ho/4) ceil(Wo/4) x Cout x Cin, 36: 4 times fewer | tiles, before and after |
| FFT in tiles of 32 x 32 | B ceil(Ho/(33-kh)) ceil(Wo/(33-kw)) x Cout x 4 Cin (complex), 32 x 17 | the same |

Winograd is for kernels of 3 x 3 with stride 1, FFT for stride 1. So the FLOPs of the direct formula over the time may exceed the
peak. Sources: Lavin and Gray, arXiv 1509.09308 sections 4 and 5 (F(2x2, 3x3), F(4x4, 3x3)); Mathieu, arXiv 1312.5851 (FFT).

Element-wise kernels and softmax or layer norm over rows: bytes (those that the last-level cache holds are read faster),
arithmetic (FP32 instructions; on NVIDIA parts below the bytes, AMD's `pow` is not), rows:

    t = max(bytes passes / bandwidth, elements operations / vector peak) + rows row_s / multiprocessors

Constants stand in `presets/cuda_cores.toml`, apart from `efficiency`, whose products run on tensor cores where there are some.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from ..core.arrays import Floats
from ..core.lazy import np
from ..system.catalog import load_toml
from ..system.hardware import Device
from .compute import gemm_s, stream_s
from .efficiency import Efficiency, efficiency

_BYTES = 4.0  # fp32
_FFT = 32  # edge of a tile; its spectrum has 32 x 17 complex values


class Convolution(NamedTuple):
    """Sizes [kernel]: samples, channels in and out, height and width of the output, of the filter, stride, groups of channels."""

    batch: Any
    c_in: Any
    c_out: Any
    height: Any
    width: Any
    filter_height: Any
    filter_width: Any
    stride: Any = 1.0
    groups: Any = 1.0

    @property
    def flops(self) -> Any:
        """FLOPs of the direct formula."""
        inner = self.c_in / self.groups * self.filter_height * self.filter_width
        return 2.0 * self.batch * self.height * self.width * self.c_out * inner

    def hbm_bytes(self, element_bytes: float) -> Any:
        """Input, output and weights, each once."""
        seen = self.batch * self.c_in * self.height * self.width * self.stride**2
        weights = self.c_in / self.groups * self.c_out * self.filter_height * self.filter_width
        return element_bytes * (seen + self.batch * self.c_out * self.height * self.width + weights)


@dataclass(frozen=True)
class ConvolutionWays:
    """Speeds of the ways of computing convolutions.

    Attributes:
        implicit, winograd, winograd_apart, fft: speed of its products over that of a plain matrix product.
        transformed: share of transformed tiles' bytes that pass through device memory rather than the cache.
        apart_s: starting the transforms of a way that has them apart.
    """

    implicit: float
    winograd: float
    winograd_apart: float
    fft: float
    transformed: float
    apart_s: float


def convolution_s(conv: Convolution, device: Device, eff: Efficiency, ways: ConvolutionWays) -> Floats:
    """Seconds of the fastest way in fp32 on the CUDA cores (or fp32 matrix cores), without the start of the kernel, [kernel]."""
    return ways_s(conv, device, eff, ways).min(axis=0)


def ways_s(conv: Convolution, device: Device, eff: Efficiency, ways: ConvolutionWays) -> Floats:
    """Seconds of every way, [4, kernel], in the order of the table above; infinite where it does not apply."""
    sizes = Convolution(*np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in conv)))
    peak = device.peak("fp32")
    moved = stream_s(sizes.hbm_bytes(_BYTES), 1.0, device.hbm_bytes_per_s, eff)
    inner = sizes.c_in / sizes.groups * sizes.filter_height * sizes.filter_width
    direct = sizes.batch * sizes.height * sizes.width
    product = gemm_s(direct, sizes.c_out / sizes.groups, inner, sizes.groups, peak, device, eff)
    plain = (sizes.stride == 1.0) & (sizes.groups == 1.0)
    square = plain & (sizes.filter_height == 3.0) & (sizes.filter_width == 3.0)
    small, large = (_tiles(sizes, edge, edge, (edge + 2) ** 2, sizes.c_in) for edge in (2, 4))  # of Winograd
    own = [
        np.maximum(product / ways.implicit, moved),
        np.where(square, _tiled_s(small, device, eff, ways.winograd) + moved, np.inf),
        np.where(square, _tiled_s(large, device, eff, ways.winograd_apart, ways) + moved, np.inf),
        np.where(plain, _tiled_s(_spectra(sizes), device, eff, ways.fft, ways) + moved, np.inf),
    ]
    return np.stack(own)


class Tiles(NamedTuple):
    """Products over tiles of the output: `n_product` of `tiles` x c_out x `inner`, for a convolution of c_in channels."""

    tiles: Floats
    n_product: int
    inner: Floats
    c_in: Floats
    c_out: Floats


def _tiles(sizes: Convolution, high: Any, wide: Any, n_product: int, inner: Any) -> Tiles:
    """Tiles of `high` x `wide` outputs."""
    tiles = sizes.batch * np.ceil(sizes.height / high) * np.ceil(sizes.width / wide)
    return Tiles(tiles, n_product, inner, sizes.c_in, sizes.c_out)


def _spectra(sizes: Convolution) -> Tiles:
    """Complex products over the spectra of tiles: four real ones, and two values each to move."""
    high, wide = (np.maximum(_FFT + 1 - size, 1.0) for size in (sizes.filter_height, sizes.filter_width))
    return _tiles(sizes, high, wide, _FFT * (_FFT // 2 + 1), 4.0 * sizes.c_in)


def _tiled_s(of: Tiles, device: Device, eff: Efficiency, speed: float, apart: ConvolutionWays | None = None) -> Floats:
    """Seconds of products at a speed over that of a plain one; operands are written and read where transforms are `apart`."""
    product = gemm_s(of.tiles, of.c_out, of.inner, of.n_product, device.peak("fp32"), device, eff) / speed
    if apart is None:
        return np.maximum(product, _BYTES * of.n_product * of.c_in * of.c_out / device.hbm_bytes_per_s)
    values = 1.0 + (of.inner > of.c_in)  # complex
    operands = of.tiles * (of.c_in + of.c_out) + of.c_in * of.c_out
    moved = 2.0 * _BYTES * values * of.n_product * operands * apart.transformed / (device.hbm_bytes_per_s * eff.memory)
    return product + moved + apart.apart_s


class VectorOp(NamedTuple):
    """An operation.

    Attributes:
        moved: values read and written per element.
        kind: binary (two inputs), unary, softmax, norm.
        is_power: whether it raises to a power, which takes tens of instructions.
    """

    moved: float
    kind: str
    is_power: bool = False


VECTOR_OPS = {
    **{name: VectorOp(3.0, "binary", name == "pow") for name in ("add", "sub", "mul", "div", "pow")},
    **{
        name: VectorOp(2.0, "unary", name == "powu")
        for name in ("addu", "mulu", "divu", "powu", "relu", "gelu", "tanh")
    },
    "softmax": VectorOp(2.0, "softmax"),
    "ln": VectorOp(2.0, "norm"),
}
"""Operations by their name in tables; a trailing u is one with a number as its second operand."""


@dataclass(frozen=True)
class VectorConstants:
    """Constants of a generation that its efficiency does not hold.

    Attributes:
        softmax_passes, norm_passes: bytes moved over one read and one write.
        softmax_row_s, norm_row_s: of a row on a multiprocessor.
        power_operations: instructions of a power, per element, where it is computed by the vector units (AMD).
    """

    softmax_passes: float
    norm_passes: float
    softmax_row_s: float
    norm_row_s: float
    power_operations: float


def vector_s(
    op: VectorOp, rows: Floats, width: Floats, device: Device, eff: Efficiency, constants: VectorConstants
) -> Floats:
    """Seconds of an operation on `rows` x `width` values in fp32, without the start of the kernel, [kernel]."""
    n = np.asarray(rows, dtype=np.float64) * np.asarray(width, dtype=np.float64)
    passes = {"softmax": constants.softmax_passes, "norm": constants.norm_passes}.get(op.kind, 1.0)
    moved = stream_s(4.0 * op.moved * passes * n, 1.0, device.hbm_bytes_per_s, eff)
    row_s = {"softmax": constants.softmax_row_s, "norm": constants.norm_row_s}.get(op.kind, 0.0)
    if op.is_power and device.generation.startswith("cdna"):
        moved = np.maximum(
            moved, n * constants.power_operations / (0.5 * device.peak("fp32"))
        )  # vector peak: half the matrix peak
    return moved + rows * row_s / device.n_sm


def cuda_core_device(device: Device) -> Device:
    """Returns the same device without TF32, so that products of a plan in fp32 run at its fp32 peak."""
    return replace(device, peak_flops_per_s={"fp32": device.peak("fp32")})


def cuda_core_efficiency(device: Device) -> Efficiency:
    """Constants of fp32 products and memory passes on a device; others are as in its generation's preset.

    Raises:
        SpecError: no preset for its generation.
    """
    population = dict(_table()["population"])
    population["gemm_tiles"] = tuple(tuple(float(x) for x in tile) for tile in population["gemm_tiles"])
    population["flop_joules"] *= relative_flop_joules(device.generation)
    return replace(efficiency(device.generation), **population)


def relative_flop_joules(generation: str) -> float:
    """Energy of a FLOP over that of a part of 12 nm; 1 where the process is not known."""
    return float(_table()["relative_flop_joules"].get(generation, 1.0))


def convolution_ways() -> ConvolutionWays:
    """Returns the speeds of the ways of computing convolutions, over all GPUs."""
    return ConvolutionWays(**_table()["convolution"])


def vector_constants() -> VectorConstants:
    """Constants of element-wise and row kernels, over all GPUs."""
    return VectorConstants(**_table()["vector"])


@cache
def _table() -> dict[str, Any]:
    return load_toml(__name__.rpartition(".")[0], "cuda_cores.toml")

"""Seconds of a convolution: the fastest of the ways in which libraries compute it.

| way | products (rows x columns x inner, how many) | also moved |
|---|---|---|
| implicit GEMM | B Ho Wo x Cout x Cin kh kw, 1 | - |
| Winograd F(2x2, 3x3), one kernel | B ceil(Ho/2) ceil(Wo/2) x Cout x Cin, 16: 2.25 times fewer FLOPs | 16 Cin Cout weights |
| Winograd F(4x4, 3x3), transforms apart | B ceil(Ho/4) ceil(Wo/4) x Cout x Cin, 36: 4 times fewer | tiles, before and after |
| FFT in tiles of 32 x 32 | B ceil(Ho/(33-kh)) ceil(Wo/(33-kw)) x Cout x 4 Cin (complex), 32 x 17 | the same |

Winograd is for kernels of 3 x 3 with stride 1, FFT for stride 1. So the FLOPs of the direct formula over the time may exceed the
peak. Sources: Lavin and Gray, arXiv 1509.09308 sections 4 and 5 (F(2x2, 3x3), F(4x4, 3x3)); Mathieu, arXiv 1312.5851 (FFT).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..._core.lazy_numpy import np
from ..._typing import Floats
from ...system.hardware import Device
from ..compute import gemm_s, stream_s
from ..efficiency import Efficiency

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
        """Of the direct formula."""
        inner = self.c_in / self.groups * self.filter_height * self.filter_width
        return 2.0 * self.batch * self.height * self.width * self.c_out * inner

    def hbm_bytes(self, element_bytes: float) -> Any:
        """Input, output and weights, each once."""
        seen = self.batch * self.c_in * self.height * self.width * self.stride**2
        weights = self.c_in / self.groups * self.c_out * self.filter_height * self.filter_width
        return element_bytes * (seen + self.batch * self.c_out * self.height * self.width + weights)


@dataclass(frozen=True)
class ConvolutionWays:
    """How fast each way is.

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
    """[kernel] seconds of the fastest way in fp32 on the CUDA cores (or fp32 matrix cores), without the start of the kernel."""
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
    return np.stack(
        [
            np.maximum(product / ways.implicit, moved),
            np.where(square, _winograd_s(sizes, 2, ways.winograd, False, device, eff, ways) + moved, np.inf),
            np.where(square, _winograd_s(sizes, 4, ways.winograd_apart, True, device, eff, ways) + moved, np.inf),
            np.where(plain, _fft_s(sizes, device, eff, ways) + moved, np.inf),
        ]
    )


def _winograd_s(
    sizes: Convolution, edge: int, speed: float, apart: bool, device: Device, eff: Efficiency, ways: ConvolutionWays
) -> Floats:
    """Products over tiles of `edge` x `edge` outputs, and the transforms where they are apart."""
    tiles = sizes.batch * np.ceil(sizes.height / edge) * np.ceil(sizes.width / edge)
    return _tiled_s(sizes, tiles, (edge + 2) ** 2, sizes.c_in, speed, apart, device, eff, ways)


def _fft_s(sizes: Convolution, device: Device, eff: Efficiency, ways: ConvolutionWays) -> Floats:
    """Complex products over the spectra of tiles: four real ones, and two values each to move."""
    high, wide = np.maximum(_FFT + 1 - sizes.filter_height, 1.0), np.maximum(_FFT + 1 - sizes.filter_width, 1.0)
    tiles = sizes.batch * np.ceil(sizes.height / high) * np.ceil(sizes.width / wide)
    n = _FFT * (_FFT // 2 + 1)
    return _tiled_s(sizes, tiles, n, 4.0 * sizes.c_in, ways.fft, True, device, eff, ways)


def _tiled_s(
    sizes: Convolution,
    tiles: Floats,
    n_product: int,
    inner: Floats,
    speed: float,
    apart: bool,
    device: Device,
    eff: Efficiency,
    ways: ConvolutionWays,
) -> Floats:
    """`n_product` products of `tiles` x Cout x `inner`; their operands written and read where transforms are apart."""
    product = gemm_s(tiles, sizes.c_out, inner, n_product, device.peak("fp32"), device, eff) / speed
    if not apart:
        return np.maximum(product, _BYTES * n_product * sizes.c_in * sizes.c_out / device.hbm_bytes_per_s)
    values = 1.0 + (inner > sizes.c_in)  # complex
    operands = tiles * (sizes.c_in + sizes.c_out) + sizes.c_in * sizes.c_out
    moved = 2.0 * _BYTES * values * n_product * operands * ways.transformed / (device.hbm_bytes_per_s * eff.memory)
    return product + moved + ways.apart_s

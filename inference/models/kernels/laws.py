"""Laws that carry over between GPUs: log seconds of fp32 kernels from a device's datasheet and constants that GPUs share.

A class (op and dtype) has a law where its kernels run without tensor cores: products, convolutions and element-wise kernels in
fp32. The law's constants are pooled over the GPUs of the class (robust least squares, every GPU with the same weight, priors
below); the deviations of single GPUs are what the model's coefficients say: the features of such a class are the slopes of the
law in its constants, so that a GPU that was not measured deviates by the spread that the measured ones show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from prism_jax._typing import Floats
from prism_jax.cost.compute import gemm_s, stream_s
from prism_jax.cost.efficiency import Efficiency
from prism_jax.cost.laws.convolution import Convolution, convolution_s
from prism_jax.cost.laws.cuda_cores import (
    convolution_ways,
    cuda_core_efficiency,
    relative_flop_joules,
    vector_constants,
)
from prism_jax.cost.laws.vector import VECTOR_OPS, vector_s
from prism_jax.system.hardware import Device

from . import shapes as shapes

Values = Mapping[str, float]
MOST_CONSTANTS = 16
MOST_CELLS = 500  # of one GPU for the pooled constants, evenly chosen
UNEVEN = 0.1  # log seconds: farther from the law than this, a shape counts less
PRIOR_WEIGHT = 9.0  # shapes that a prior standard deviation counts for
PRIORS = (
    5.0  # prior standard deviations per unit of a coefficient: GPUs, whose coefficients spread by 0.1, by half of one
)
STEP = 1e-3


@dataclass(frozen=True)
class Law:
    """Constants (name, centre, standard deviation of the logarithm) and log seconds [row] of sizes [row, axis] with them."""

    constants: tuple[tuple[str, float, float], ...]
    log_seconds: Callable[[str, Floats, Device, Values], Floats]

    @property
    def names(self) -> list[str]:
        """Of the constants."""
        return [name for name, *_ in self.constants]

    def at(self, op: str, size: Floats, device: Device, logs: Floats) -> Floats:
        """Log seconds with constants whose logarithms are `logs`."""
        return self.log_seconds(op, size, device, self.values(logs))

    def values(self, logs: Floats) -> dict[str, float]:
        """Constants by name, from their logarithms."""
        return dict(zip(self.names, np.exp(logs[: len(self.constants)]).tolist(), strict=True))

    def slopes(self, op: str, size: Floats, device: Device, logs: Floats) -> Floats:
        """Derivatives of minus the log seconds in the log constants, [row, constant]."""
        columns = []
        for c in range(len(self.constants)):
            step = np.zeros(len(logs))
            step[c] = 20.0 * STEP
            high, low = (self.at(op, size, device, logs + sign * step) for sign in (1.0, -1.0))
            columns.append((low - high) / (40.0 * STEP))
        return np.stack(columns, axis=1)


def law_of(name: str) -> Law | None:
    """Law of a class "op | dtype"; None where the class is described by its measured shapes alone."""
    op, _, dtype = name.partition(" | ")
    return LAWS.get(shapes.family(op)) if dtype == "fp32" else None


def pooled(law: Law, op: str, parts: Sequence[tuple[Device, Floats, Floats]]) -> Floats:
    """Logarithms of the constants, filled up with zeros to `MOST_CONSTANTS`, from (device, sizes, log seconds) of every GPU."""
    centre = np.log([value for _, value, _ in law.constants])
    sd = np.array([own for *_, own in law.constants])
    thin = [(d, s[:: -(-len(s) // MOST_CELLS)], t[:: -(-len(t) // MOST_CELLS)]) for d, s, t in parts]
    most = max(len(t) for *_, t in thin)

    def off(x: Floats) -> Floats:
        weights = [np.sqrt(min(most / len(t), 4.0)) for *_, t in thin]
        parts = [w * (law.at(op, s, d, centre + x) - t) / UNEVEN for w, (d, s, t) in zip(weights, thin, strict=True)]
        return np.concatenate([*parts, np.sqrt(PRIOR_WEIGHT) * x / sd])

    found = least_squares(off, np.zeros(len(sd)), loss="soft_l1", diff_step=STEP, x_scale=sd, max_nfev=20).x
    out = np.zeros(MOST_CONSTANTS)
    out[: len(found)] = centre + found
    return out


def efficiency_of(device: Device, values: Values) -> Efficiency:
    """Constants of fp32 kernels on a device; what `values` does not hold is as in `cost.cuda_cores`."""
    base = cuda_core_efficiency(device)
    is_amd = device.generation.startswith(("cdna", "gcn"))
    own: dict[str, float] = {}
    for name in ("gemm_max", "gemm_k_half", "gemm_misaligned", "memory", "memory_half_bytes", "cache_speed"):
        if name in values:
            own[name] = values[name] * (values.get(f"amd_{name}", 1.0) if is_amd else 1.0)
    if "flop_joules" in values:
        own["flop_joules"] = values["flop_joules"] * relative_flop_joules(device.generation)
    small = {64: values.get("tile_64", 0.8), 32: values.get("tile_32", 0.7)}
    tiles = tuple(
        (r, c, small.get(int(min(r, c) if min(r, c) == 32 else max(r, c)), 1.0)) for r, c, _ in base.gemm_tiles
    )
    return replace(base, **own, **({"gemm_tiles": tiles} if "tile_64" in values else {}))


def _start_s(device: Device, values: Values) -> float:
    return values["start_s"] * (values.get("amd_start", 1.0) if device.generation.startswith(("cdna", "gcn")) else 1.0)


def _product(op: str, size: Floats, device: Device, values: Values) -> Floats:
    m, n, k, batch = size.T[:4]
    eff = efficiency_of(device, values)
    busy = gemm_s(m, n, k, batch, device.peak("fp32"), device, eff)
    moved = stream_s(4.0 * batch * (m * k + k * n + m * n), 1.0, device.hbm_bytes_per_s, eff)
    return np.log(_longer(busy, moved) + _start_s(device, values))


def _convolution(op: str, size: Floats, device: Device, values: Values) -> Floats:
    eff = efficiency_of(device, values)
    known = {name: values[name] for name in vars(convolution_ways()) if name in values}
    ways = replace(convolution_ways(), **known)
    return np.log(convolution_s(Convolution(*size.T[:9]), device, eff, ways) + _start_s(device, values))


def _vector(op: str, size: Floats, device: Device, values: Values) -> Floats:
    eff = efficiency_of(device, values)
    known = {name: values[name] for name in vars(vector_constants()) if name in values}
    busy = vector_s(VECTOR_OPS[op], size[:, 0], size[:, 1], device, eff, replace(vector_constants(), **known))
    # The host hands over the next event while the kernel runs: what is measured of a short kernel is that alone.
    return np.log(_start_s(device, values) + _longer(busy, np.full(len(size), values["beside_s"])))


def _longer(one: Floats, other: Floats) -> Floats:
    """The longer of two, smooth where they are alike, as roofs are not sharp."""
    return (one**4 + other**4) ** 0.25


_GEMM = (
    ("gemm_max", 0.92, 0.10),
    ("gemm_k_half", 20.0, 1.0),
    ("tile_64", 0.8, 0.3),
    ("tile_32", 0.7, 0.3),
    ("gemm_misaligned", 1.1, 0.2),
    ("memory", 0.80, 0.15),
    ("flop_joules", 18e-12, 0.15),
    ("start_s", 25e-6, 0.4),
    ("amd_gemm_max", 0.78, 0.2),
    ("amd_gemm_k_half", 1.0, 0.5),
    ("amd_memory", 1.0, 0.15),
    ("amd_start", 0.6, 0.4),
)
_CONVOLUTION = (
    ("gemm_k_half", 20.0, 0.7),
    ("tile_64", 0.8, 0.2),
    ("tile_32", 0.75, 0.2),
    ("flop_joules", 18e-12, 0.1),
    ("start_s", 60e-6, 0.7),
    ("implicit", 0.8, 0.3),
    ("winograd", 0.6, 0.3),
    ("winograd_apart", 0.7, 0.3),
    ("fft", 0.5, 0.5),
    ("transformed", 0.4, 0.5),
)
_VECTOR = (
    ("memory", 0.82, 0.1),
    ("memory_half_bytes", 0.3e6, 0.7),
    ("cache_speed", 2.5, 0.3),
    ("start_s", 18e-6, 0.3),
    ("beside_s", 11e-6, 0.3),
    ("softmax_passes", 1.2, 0.2),
    ("norm_passes", 1.4, 0.2),
    ("softmax_row_s", 2e-9, 0.7),
    ("norm_row_s", 8e-9, 0.7),
    ("power_operations", 300.0, 0.5),
    ("amd_start", 0.7, 0.3),
)
LAWS = {"gemm": Law(_GEMM, _product), "convolution": Law(_CONVOLUTION, _convolution), "vector": Law(_VECTOR, _vector)}
"""By the family of an op."""

"""Constants of true fp32 (no TF32): products, convolutions and memory passes on CUDA cores, from `presets/cuda_cores.toml`.

They are apart from `efficiency`, whose products run on tensor cores where there are some: a job in fp32 runs there as TF32.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from ...system.hardware import Device
from ...system.names import load_toml
from ..efficiency import Efficiency, efficiency
from .convolution import ConvolutionWays
from .vector import VectorConstants


def cuda_core_device(device: Device) -> Device:
    """The same device without TF32, so that products of a plan in fp32 run at its fp32 peak."""
    return replace(device, peak_flops_per_s={"fp32": device.peak("fp32")})


def cuda_core_efficiency(device: Device) -> Efficiency:
    """Constants of fp32 products and memory passes on a device; what they do not tell is as its generation's preset.

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
    """How fast the ways of computing convolutions are, over all GPUs."""
    return ConvolutionWays(**_table()["convolution"])


def vector_constants() -> VectorConstants:
    """Constants of element-wise and row kernels, over all GPUs."""
    return VectorConstants(**_table()["vector"])


@cache
def _table() -> dict[str, Any]:
    return load_toml(__name__.rpartition(".")[0], "cuda_cores.toml")

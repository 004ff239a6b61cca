"""Efficiency: which share of its peaks a GPU generation reaches, from `presets/efficiency.toml`, with the sources there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ..errors import SpecError
from ..system.names import load_toml
from .correction import NEUTRAL, CostCorrection


@dataclass(frozen=True)
class Efficiency:
    """Constants of one GPU generation; shares of the datasheet peak unless the name says otherwise.

    Every number may be traced by JAX (`_arrays`), the knobs of the correction included; the tiles may not.

    Attributes:
        gemm_max: of a large matrix product with perfectly filled waves.
        gemm_fp8: what a product in fp8 reaches of its (higher) peak, over `gemm_max`; taken for formats of 4 bits too.
        gemm_k_half: inner dimension at which a tile spends half its time on prologue and epilogue.
        gemm_misaligned: time of a product whose columns or inner dimension are no multiple of `ALIGNED` elements, over that of
            one whose are.
        gemm_tiles: (rows, columns, efficiency relative to `gemm_max`) of the kernels the library chooses from.
        attention_forward, attention_backward: fused attention, useful FLOPs (causal half; backward = 2 x forward).
        attention_forward_half_waves, attention_backward_half_waves: waves of 128-row blocks at which they reach half of that.
        attention_half_width: head width at which they would reach half of an infinitely wide head (the shares hold for 128).
        attention_kernels: (name, seconds over those of the kernel that the shares are of); names of `software.FLASH_ATTENTION`.
        memory: of the HBM bandwidth in a large memory-bound pass.
        memory_half_bytes: size at which a pass reaches half of that.
        cache_bytes: last-level cache; a pass over less finds part of its data there.
        cache_speed: bandwidth of that cache over `memory` times the HBM's.
        launch_s: gap between two kernels on the stream.
        host_launch_s: time of the host (Python, autograd, driver) per listed kernel; no chunk runs faster than it is launched.
        in_step: speed of kernels inside a training step over that in a microbenchmark: clocks under the power cap, cold caches,
            small kernels that no list names. The one constant per generation that is fitted to whole training steps.
        overlap_slowdown: extra time of compute per second of communication beside it.
        flop_joules: energy of one FLOP of a product, padding included, at the clock where the board meets its power limit; 0: the
            limit is taken to be in `gemm_max`.
        correction: what measured training steps say on top of all this; neutral in the presets.
    """

    gemm_max: float
    gemm_fp8: float
    gemm_k_half: float
    gemm_misaligned: float
    gemm_tiles: tuple[tuple[float, float, float], ...]
    attention_forward: float
    attention_backward: float
    attention_forward_half_waves: float
    attention_backward_half_waves: float
    attention_half_width: float
    attention_kernels: tuple[tuple[str, float], ...]
    memory: float
    memory_half_bytes: float
    cache_bytes: float
    cache_speed: float
    launch_s: float
    host_launch_s: float
    in_step: float
    overlap_slowdown: float
    flop_joules: float = 0.0
    correction: CostCorrection = NEUTRAL


def efficiency(generation: str) -> Efficiency:
    """The preset of a GPU generation.

    Raises:
        SpecError: no preset for that generation.
    """
    table = _table()
    if generation not in table:
        raise SpecError(
            f"no efficiency preset for generation {generation!r}. Set device.generation to one of {', '.join(table)}."
        )
    return _build(generation)


def with_cuda_core_products(eff: Efficiency) -> Efficiency:
    """`eff` with what products reach outside of tensor cores, which need no long inner dimensions; see `cuda_cores.toml`."""
    return replace(eff, **_cuda_core_products())


@cache
def _cuda_core_products() -> dict[str, Any]:
    own = load_toml(__name__.rpartition(".")[0], "cuda_cores.toml")["population"]
    tiles = tuple(tuple(float(x) for x in tile) for tile in own["gemm_tiles"])
    return {name: own[name] for name in ("gemm_max", "gemm_k_half", "gemm_misaligned")} | {"gemm_tiles": tiles}


@cache
def _build(generation: str) -> Efficiency:
    entry = dict(_table()[generation])
    entry["gemm_tiles"] = tuple(tuple(float(x) for x in tile) for tile in entry["gemm_tiles"])
    entry["attention_kernels"] = tuple(sorted(entry["attention_kernels"].items()))
    return Efficiency(**entry)


@cache
def _table() -> dict[str, dict[str, Any]]:
    return load_toml(__name__.rpartition(".")[0], "efficiency.toml")

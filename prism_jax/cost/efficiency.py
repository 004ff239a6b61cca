"""Shares of a device's peaks that kernels reach: presets, corrected by whole training steps, or as measured tables say.

`CostCorrection`: how measured steps differ from what kernels and links alone would take; factors multiply seconds, seconds
are added, and the neutral one changes nothing. `Efficiency`: shares of the peaks, from `presets/efficiency.toml` with the
sources there. `MeasuredTables`: tables of kernels, collectives and overlap, measured on the user's hardware. They replace
constants of the device or the seconds of collectives, and with them the part of the correction that stands for the same
hardware: the deviation of its generation from presets. What only whole steps show (all devices alike, style and framework of
the software, `in_step`) stays on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

from ..core.content import ByContent
from ..core.errors import SpecError
from ..system.catalog import load_toml
from ..system.hardware import Cluster
from ..system.network_kinds import MeasuredCollectives


@dataclass(frozen=True)
class CostCorrection:
    """Knobs of the cost model that only whole training steps can decide.

    Attributes:
        gemm, attention, memory: factors of the seconds of each class of compute kernels.
        fp8: factor of matrix products in 8 or 4 bits, on top of `gemm`.
        expert: factor of what routing adds to a layer (router, permutation, routed experts), on top of these.
        host: factor of the time in which the host starts kernels.
        scale_up, network: factors of the seconds of collectives and transfers inside a node (or rack), and beyond it.
        scale_up_call_s, network_call_s: seconds each collective takes on top: arrival of the ranks, stream synchronisation.
        overlap_window: share of the compute during a data-parallel communication in which it makes progress (streams wait
            for each other, kernels start late); what does not fit into that part of the window shows.
        optimizer: factor of the update of the parameters.
        micro_batch_s: seconds per micro-batch and model chunk in which nothing runs: pipeline bookkeeping, data loading.
        step_s: seconds per step in which nothing runs.
        network_step_s: idle seconds per step and doubling of the number of nodes: ranks that wait for each other.
    """

    gemm: float = 1.0
    attention: float = 1.0
    memory: float = 1.0
    fp8: float = 1.0
    expert: float = 1.0
    host: float = 1.0
    scale_up: float = 1.0
    network: float = 1.0
    scale_up_call_s: float = 0.0
    network_call_s: float = 0.0
    overlap_window: float = 1.0
    optimizer: float = 1.0
    micro_batch_s: float = 0.0
    step_s: float = 0.0
    network_step_s: float = 0.0

    def comm(self, crosses_nodes: bool) -> tuple[float, float]:
        """(factor, seconds per call) of communication in a node, or between nodes."""
        return (self.network, self.network_call_s) if crosses_nodes else (self.scale_up, self.scale_up_call_s)

    def scaled(self, factor: float) -> CostCorrection:
        """The correction under which every step takes `factor` times as long: seconds are linear in all knobs but three."""
        return replace(self, **{name: factor * getattr(self, name) for name in OF_SECONDS})


SHARE = "overlap_window"  # the knob that is a share, of which calibrations take the logit; all others are positive
# All but factors on top of others, and a share: a factor of all seconds leaves those as they are.
OF_SECONDS = tuple(item.name for item in fields(CostCorrection) if item.name not in ("fp8", "expert", SHARE))
NEUTRAL = CostCorrection()


@dataclass(frozen=True)
class Efficiency:
    """Constants of one GPU generation; shares of the datasheet peak unless the name says otherwise.

    Every number may be traced by JAX (`_arrays`), the knobs of the correction included; the tiles may not.

    Attributes:
        gemm_max: of a large matrix product with perfectly filled waves.
        gemm_fp8: share of its (higher) peak that a product in fp8 reaches, over `gemm_max`; taken for formats of 4 bits too.
        gemm_recipes: (name, seconds of a product in fp8 with other scales over those with one scale per tensor); names of
            `plan.fields.Precision.kernel`.
        gemm_k_half: inner dimension at which a tile spends half its time on prologue and epilogue.
        gemm_misaligned: time of a product whose columns or inner dimension are no multiple of `ALIGNED` elements, over that of
            one whose are.
        gemm_tiles: (rows, columns, efficiency relative to `gemm_max`) of the kernels the library chooses from.
        attention_forward, attention_backward: fused attention over endless sequences, useful FLOPs (causal half; backward = 2 x
            forward).
        attention_forward_half_waves, attention_backward_half_waves: waves of 128-row blocks at which they reach half of that.
        attention_forward_half_keys, attention_backward_half_keys: keys that a query sees at which they reach half of that.
        attention_half_width: head width at which they would reach half of an infinitely wide head (the shares hold for 128).
        attention_kernels: (name, seconds over those of the kernel that the shares are of); names of `software.FLASH_ATTENTION`.
        memory: of the HBM bandwidth in a large memory-bound pass.
        cast_traffic: bytes of the passes that quantise, over those where casts write transposed copies on their way.
        memory_half_bytes: size at which a pass reaches half of that.
        cache_bytes: last-level cache; a pass over less finds part of its data there.
        cache_speed: bandwidth of that cache over `memory` times the HBM's.
        launch_s: gap between two kernels on the stream.
        host_launch_s: time of the host (Python, autograd, driver) per listed kernel; no chunk runs faster than it is launched.
        in_step: speed of kernels inside a training step over that in a microbenchmark: clocks under the power cap, cold caches,
            small kernels that no list names. The one constant per generation that is fitted to whole training steps.
        overlap_slowdown: extra time of compute per second of communication at the same time.
        flop_joules: energy of one FLOP of a product, padding included, at the clock where the board meets its power limit; 0: the
            limit is taken to be in `gemm_max`.
        correction: by measured training steps, on top of all this; neutral in the presets.
    """

    gemm_max: float
    gemm_fp8: float
    gemm_recipes: tuple[tuple[str, float], ...]
    gemm_k_half: float
    gemm_misaligned: float
    gemm_tiles: tuple[tuple[float, float, float], ...]
    attention_forward: float
    attention_backward: float
    attention_forward_half_waves: float
    attention_backward_half_waves: float
    attention_forward_half_keys: float
    attention_backward_half_keys: float
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
    cast_traffic: float = 1.0
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


def generations() -> tuple[str, ...]:
    """Names of the generations that have a preset."""
    return tuple(_table())


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
    entry["gemm_recipes"] = tuple(sorted(entry["gemm_recipes"].items()))
    entry["attention_kernels"] = tuple(sorted(entry["attention_kernels"].items()))
    return Efficiency(**entry)


@cache
def _table() -> dict[str, dict[str, Any]]:
    return load_toml(__name__.rpartition(".")[0], "efficiency.toml")


@dataclass(frozen=True, eq=False)
class MeasuredCost(ByContent):
    """Constants and collectives as measured, or as one posterior draw has them.

    Attributes:
        constants: fields of `Efficiency` with their values; what is not among them keeps the preset.
        collectives: None: those of the cluster's own network.
    """

    constants: Mapping[str, Any] = field(default_factory=dict)
    collectives: MeasuredCollectives | None = None

    def constants_of(self, preset: Efficiency) -> Efficiency:
        """Returns the preset with the measured constants."""
        return replace(preset, **self.constants)

    def on(self, cluster: Cluster) -> Cluster:
        """Returns the cluster with the measured collectives."""
        return cluster if self.collectives is None else replace(cluster, measured=self.collectives)

    def over(self, under: MeasuredCost) -> MeasuredCost:
        """Merges both; of values that both have, these count."""
        both = under.collectives if self.collectives is None else self.collectives.over(under.collectives)
        return MeasuredCost({**under.constants, **self.constants}, both)


@dataclass(frozen=True, eq=False)
class MeasuredTables(ByContent):
    """Measured costs, and the knobs that they leave open.

    Attributes:
        mean: costs that predictions use.
        draws: of the posterior; equally many of every table.
        knobs: fields of `CostCorrection` whose hardware part is replaced.
        covers: measured kernels and collectives, in words.
        notes: gaps in the measurements, and values taken from nearby ones, in sentences.
    """

    mean: MeasuredCost
    draws: tuple[MeasuredCost, ...]
    knobs: frozenset[str] = frozenset()
    covers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def over(self, under: MeasuredTables | None) -> MeasuredTables:
        """Merges both; tables are independent, so their draws meet in any order.

        Notes: `covers` and `notes` are of one table each, and are not kept.
        """
        if under is None:
            return replace(self, covers=(), notes=())
        draws = [own.over(other) for own, other in zip(self.draws, under.draws, strict=True)]
        return MeasuredTables(self.mean.over(under.mean), tuple(draws), self.knobs | under.knobs)

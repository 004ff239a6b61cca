"""Constants of the cost model's kernels on one device, from the shapes that a kernels fit holds.

Least squares of log seconds of the measured shapes, robust against single shapes, with the preset as a weak prior: what they
do not tell keeps the preset. The law is an approximation, so what it leaves of neighbouring shapes is alike. The constants'
covariance counts that in (sandwich, with the correlation of the fit's field of residuals):

    cov = A^-1 (J' C J / s^4 + P) A^-1        A = J' J / s^2 + P        C = s^2 correlation        P = prior precision
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from prism_jax.core.arrays import Floats
from prism_jax.core.errors import DataError
from prism_jax.core.robust import robust_sd
from prism_jax.cost.compute import attention_s, gemm_s, stream_s
from prism_jax.cost.efficiency import Efficiency, MeasuredCost, MeasuredTables, efficiency
from prism_jax.system import catalog
from prism_jax.system.hardware import Device
from prism_jax.system.likeness import board_speed

from . import laws
from .data import START_LEVEL, KernelsData
from .residual_field import ResidualField

# A product of 4,096 tokens in a layer of hidden size 4,096 has 1.4e11 FLOPs. In shorter ones the start of a kernel and casts to
# fp8 decide, which the cost model counts apart, and training steps spend little time in them.
SMALLEST_FLOPS = 1e11
MOST_CELLS = 1500  # shapes of a class, evenly chosen: constants of a law need no more
UNEVEN = 0.1  # log seconds: farther from the law than this, a shape counts less
# Of the preset, log: a share of the peak; a size of half speed; a tile over the best
LEVEL_SD, SHAPE_SD, TILE_SD = (1.0, 0.5, 0.1)
FEWEST = 5
POOR = 0.1  # mean relative error of the law on its shapes from which a note says so
HALF = ("bf16", "fp16")
BYTES = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
Law = Callable[[Efficiency], Floats]


@dataclass(frozen=True)
class KernelPart:
    """One kind of kernels and the constants that say how long it takes.

    Attributes:
        words: what was measured.
        knobs: of the correction that scale it.
        constants: (field of `Efficiency`, sd of its prior), log.
        law: log seconds of the shapes [cell] under constants.
        measured: log seconds [cell].
        position: of the shapes in doublings [cell, axis].
    """

    words: str
    knobs: tuple[str, ...]
    constants: tuple[tuple[str, float], ...]
    law: Law
    measured: Floats
    position: Floats


def measured_constants(
    data: KernelsData, device: Device, dtype: str, n_draw: int, rng: np.random.Generator
) -> MeasuredTables:
    """Constants of `device` with draws.

    Args:
        dtype: of the plan: which products it runs.
        n_draw: how many draws.

    Raises:
        DataError: no kernel of that device was measured that the cost model has a law for.
        SpecError: no constants for the device.
    """
    preset = efficiency(device.generation)
    table = np.flatnonzero([catalog.is_called(gpu, device) for gpu in data.table_gpus])
    if not len(table):
        there = ", ".join(sorted(set(data.table_gpus)))
        raise DataError(
            f"kernels of {there}, but the job runs on {device.name}. Fit kernels that were measured on {device.name} "
            "(`prism-jax fit kernels TABLE --where gpu=NAME`, with the GPU's name in the table)."
        )
    parts, notes = _parts(data, table, device, dtype, preset)
    if not parts:
        classes = ", ".join(sorted({data.classes[data.table_class[t]] for t in table}))
        raise DataError(
            f"{classes} of {device.name}: nothing that the cost model has a law for. It takes gemm, attention (sdp_fwd, sdp_bwd) "
            f"in {', '.join(HALF)} or fp8, of {FEWEST} shapes or more beyond {SMALLEST_FLOPS:.0e} FLOPs, and memory."
        )
    found, draws = preset, [preset] * n_draw
    field = ResidualField(data.reach, data.nugget, data.tail, data.stretch)
    for part in parts:
        value, covariance, centre = _fitted(part, found, field)
        found = _with(found, part.constants, centre, value)
        factor = np.linalg.cholesky(covariance + 1e-14 * np.eye(len(value)))
        drawn = value + rng.standard_normal((n_draw, len(value))) @ factor.T
        draws = [_with(one, part.constants, centre, own) for one, own in zip(draws, drawn, strict=True)]
        miss = float(np.abs(np.expm1(part.law(found) - part.measured)).mean())
        notes += (
            [f"{part.words}: the cost model's law misses these shapes by {miss:.0%} on average"] if miss > POOR else []
        )
    knobs = frozenset(knob for part in parts for knob in part.knobs)
    kept = [knob for knob in ("attention", "memory") if knob not in knobs]
    notes += [f"{' and '.join(kept)} of {device.name}: not measured, as the preset has it"] if kept else []
    covers = tuple(part.words for part in parts)
    mean, drawn_costs = _changes(found, preset), tuple(_changes(one, preset) for one in draws)
    return MeasuredTables(mean, drawn_costs, knobs, covers, tuple(notes))


def _parts(
    data: KernelsData, tables: np.ndarray, device: Device, dtype: str, preset: Efficiency
) -> tuple[list[KernelPart], list[str]]:
    """Parts of the cost model that the tables of the device determine, and notes on parts kept as the preset has them."""
    product = device.product_dtype(dtype)
    base = HALF if product in (*HALF, "fp8") else (product,)
    parts, notes = [], []
    own = _gemm(data, tables, device, ("fp8",) if product == "fp8" else base, preset)
    parts += [] if own is None else [replace(own, knobs=("gemm", "fp8") if product == "fp8" else ("gemm",))]
    # Products that stay in 16 bits: their level, as the constants of size are those of the plan's products
    if product == "fp8":
        half = _gemm(data, tables, device, base, preset)
        parts += [] if half is None else [replace(half, constants=half.constants[: 1 if own else None])]
    if own is None:
        notes.append(f"products in {product} of {device.name}: not measured, as the preset has it")
    attention = [_attention(data, tables, device, side) for side in ("forward", "backward")]
    both = all(one is not None for one in attention)
    parts += [replace(one, knobs=("attention",) if both else ()) for one in attention if one is not None]
    memory = _memory(data, tables, device)
    parts += [] if memory is None else [memory]
    return parts, notes


def _cells(data: KernelsData, tables: np.ndarray, ops: Sequence[str], dtypes: Sequence[str]) -> np.ndarray:
    """Measured shapes of these operations and formats, evenly chosen."""
    names = [data.classes[c].split(" | ") for c in data.table_class]
    own = [t for t in tables if names[t][0] in ops and (not dtypes or names[t][1] in dtypes)]
    cells = np.flatnonzero(np.isin(data.cell_table, own))
    return cells[:: -(-len(cells) // MOST_CELLS)] if len(cells) else cells


def _names(data: KernelsData, cells: np.ndarray) -> np.ndarray:
    """Operation and format of cells, [cell, 2]."""
    return np.array([data.classes[data.table_class[t]].split(" | ") for t in data.cell_table[cells]]).reshape(-1, 2)


def _gemm(
    data: KernelsData, tables: np.ndarray, device: Device, dtypes: Sequence[str], preset: Efficiency
) -> KernelPart | None:
    """Matrix products in these formats."""
    cells = _cells(data, tables, ("gemm",), [one for one in dtypes if one in device.peak_flops_per_s])
    work = laws.flops("gemm", data.size[cells])
    names = _names(data, cells)[:, 1]
    peak = np.array([_stated_peak(device, name) for name in names])
    kept = work > SMALLEST_FLOPS
    if kept.sum() < FEWEST:
        return None
    cells, work, peak, names = cells[kept], work[kept], peak[kept], names[kept]
    m, n, k, batch = data.size[cells].T[:4]
    width = np.array([BYTES[name] for name in names])
    hbm = batch * (width * (m * k + k * n) + 2.0 * m * n)
    top = np.array([device.peak(name) for name in names]) * board_speed(device)
    is_fp8 = names == "fp8"

    def law(eff: Efficiency) -> Floats:
        busy = gemm_s(m, n, k, batch, top * np.where(is_fp8, eff.gemm_fp8, 1.0), device, eff)
        return np.log(np.maximum(busy, stream_s(hbm, 1.0, device.hbm_bytes_per_s, eff)))

    shape = (("gemm_k_half", SHAPE_SD), *((f"gemm_tiles.{i}", TILE_SD) for i in range(1, len(preset.gemm_tiles))))
    constants = (("gemm_fp8" if is_fp8.any() else "gemm_max", LEVEL_SD), *shape)
    seconds = np.log(work / peak) - START_LEVEL - data.log_efficiency[cells]
    words = f"gemm in {' and '.join(sorted(set(names.tolist())))}"
    return KernelPart(words, (), constants, law, seconds, np.log2(data.size[cells]))


def _attention(data: KernelsData, tables: np.ndarray, device: Device, side: str) -> KernelPart | None:
    """Fused attention of one pass.

    Tables count the whole square, and 2.5 times that backward; the cost model half of it under a causal mask, and twice that.
    """
    ops = [name.split(" | ")[0] for name in data.classes]
    ops = [op for op in ops if laws.family(op) == "attention" and laws.is_backward(op) == (side == "backward")]
    cells = _cells(data, tables, ops, HALF)
    if len(cells) < FEWEST:
        return None
    rows, heads, width, _ = data.size[cells].T[:4]
    names, dtypes = _names(data, cells).T
    useful = np.array([0.5 if laws.is_causal(op) else 1.0 for op in names])
    useful = useful * (2.0 / 2.5 if side == "backward" else 1.0)
    speed = board_speed(device)
    work = (2.5 if side == "backward" else 1.0) * 4.0 * heads * rows**2 * width

    def law(eff: Efficiency) -> Floats:
        seconds = attention_s(useful * work, rows, heads, width, side == "backward", speed, device.n_sm, eff)
        return np.log(seconds / work)

    widths = (("attention_half_width", SHAPE_SD),) if np.ptp(width) > 0 and width.min() < 128 else ()
    constants = ((f"attention_{side}", LEVEL_SD), (f"attention_{side}_half_waves", SHAPE_SD), *widths)
    stated = np.array([_stated_peak(device, name) / device.peak(name) for name in dtypes])
    seconds = -START_LEVEL - data.log_efficiency[cells] - np.log(stated)
    return KernelPart(f"attention {side}", (), constants, law, seconds, np.log2(data.size[cells]))


def _memory(data: KernelsData, tables: np.ndarray, device: Device) -> KernelPart | None:
    """Passes over memory."""
    ops = [op for op in (name.split(" | ")[0] for name in data.classes) if laws.family(op) == "memory"]
    cells = _cells(data, tables, ops, ())
    if len(cells) < FEWEST:
        return None
    size = data.size[cells, 0]
    stated = laws.hbm_bytes_per_s(device.name)
    peak = stated if np.isfinite(stated) else device.hbm_bytes_per_s

    def law(eff: Efficiency) -> Floats:
        return np.log(stream_s(size, 1.0, device.hbm_bytes_per_s, eff))

    constants = (("memory", LEVEL_SD), ("memory_half_bytes", SHAPE_SD))
    seconds = np.log(size / peak) - START_LEVEL - data.log_efficiency[cells]
    return KernelPart("memory", ("memory",), constants, law, seconds, np.log2(data.size[cells]))


def _stated_peak(device: Device, dtype: str) -> float:
    """The peak that the fit counted efficiencies from: the datasheet's, whatever the job says of its device."""
    stated = laws.peak_flops_per_s(device.name, dtype)
    return stated if np.isfinite(stated) else device.peak(dtype)


def _fitted(part: KernelPart, start: Efficiency, field: ResidualField) -> tuple[Floats, Floats, Floats]:
    """Log constants over the starting ones [constant], their covariance, and the starting ones (log)."""
    centre = np.array([np.log(_value(start, name)) for name, _ in part.constants])
    sd = np.array([sd for _, sd in part.constants])

    def off(x: Floats) -> Floats:
        return part.law(_with(start, part.constants, centre, x)) - part.measured

    def every(x: Floats) -> Floats:
        return np.concatenate([off(x) / UNEVEN, x / sd])

    found = least_squares(every, np.zeros(len(sd)), loss="soft_l1", x_scale=np.maximum(sd, 0.05)).x
    left = off(found)
    scale = max(robust_sd(left, 0.0), 1e-3)
    step = 1e-3
    slope = np.stack([(off(found + step * e) - off(found - step * e)) / (2 * step) for e in np.eye(len(sd))], axis=1)
    apart = np.linalg.norm(part.position[:, None] - part.position[None], axis=-1)
    correlation = (1.0 - field.nugget) * np.exp(-apart / field.reach) + field.nugget * np.eye(len(apart))
    prior = np.diag(sd**-2.0)
    inverse = np.linalg.inv(slope.T @ slope / scale**2 + prior)
    covariance = inverse @ (slope.T @ correlation @ slope / scale**2 + prior) @ inverse
    return found, 0.5 * (covariance + covariance.T), centre


def _value(eff: Efficiency, name: str) -> float:
    field, _, index = name.partition(".")
    return eff.gemm_tiles[int(index)][2] if index else getattr(eff, field)


def _with(eff: Efficiency, constants: Sequence[tuple[str, float]], centre: Floats, over: Floats) -> Efficiency:
    """Constants `over` [constant] above `centre`, both logarithms; a tile's is over the best tile's.

    Notes: where products in 16 bits change, those in fp8, whose constant is over theirs, stay.
    """
    change: dict[str, Any] = {}
    tiles = [list(tile) for tile in eff.gemm_tiles]
    for (name, _), value in zip(constants, np.exp(centre + over), strict=True):
        field, _, index = name.partition(".")
        if index:
            tiles[int(index)][2] = float(value)
        else:
            change[field] = float(value)
    if "gemm_max" in change:
        change["gemm_fp8"] = eff.gemm_fp8 * eff.gemm_max / change["gemm_max"]
    if "gemm_k_half" in change:
        change["gemm_tiles"] = tuple((rows, columns, share) for rows, columns, share in tiles)
    return replace(eff, **change)


def _changes(found: Efficiency, preset: Efficiency) -> MeasuredCost:
    """Returns the values that differ from the preset."""
    names = [name for name in vars(preset) if name != "correction"]
    return MeasuredCost({name: getattr(found, name) for name in names if getattr(found, name) != getattr(preset, name)})

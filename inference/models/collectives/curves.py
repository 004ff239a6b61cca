"""Fitted curves beside what was measured: bus bandwidth by message size, for pictures and for checks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prism_jax._typing import Floats

from ...model import Draws
from .columns import FABRIC
from .data import CollectivesData
from .predict import Place, log_centre

PER_OCTAVE = 2  # points of a curve
SEED = 0


@dataclass(frozen=True)
class FittedCurve:
    """One operation at one scale.

    Attributes:
        op, n_gpus, n_nodes: which.
        fabric: GPU, network and source, as far as known.
        measured_bytes, measured_bus: message sizes, and bytes per second over a link there [cell].
        n_bytes: sizes at which the curve is given [size].
        bus: 5 %, median and 95 % of the bus bandwidth there, bytes per second [3, size].
    """

    op: str
    n_gpus: int
    n_nodes: int
    fabric: str
    measured_bytes: Floats
    measured_bus: Floats
    n_bytes: Floats
    bus: Floats


def fitted_curves(law: str, data: CollectivesData, draws: Draws) -> list[FittedCurve]:
    """Every measured curve, from its smallest to its largest size."""
    return [_curve(law, data, draws, curve) for curve in range(len(data.curve_gpus))]


def band(law: str, data: CollectivesData, draws: Draws, curve: int, n_bytes: Floats) -> Floats:
    """Seconds of a curve at some sizes, without unevenness and noise: 5 %, median and 95 % [3, size]."""
    fabric = int(data.curve_fabric[curve])
    place = Place(
        data.fabric_op[fabric], float(data.curve_gpus[curve]), float(data.curve_nodes[curve]), fabric, config=-1
    )
    drawn = np.exp(log_centre(law, data, draws, place, n_bytes, np.random.default_rng(SEED)))
    return np.quantile(drawn, [0.05, 0.5, 0.95], axis=0)


def _curve(law: str, data: CollectivesData, draws: Draws, curve: int) -> FittedCurve:
    here, bus = data.curve == curve, float(data.curve_bus[curve])
    measured = np.exp(data.log_bytes[here])
    low, high = float(np.log2(measured.min())), float(np.log2(measured.max()))
    n_bytes = np.exp2(np.linspace(low, high, max(2, int(PER_OCTAVE * (high - low)) + 1)))
    key = data.fabric_keys[int(data.curve_fabric[curve])]
    return FittedCurve(
        op=data.fabric_op[int(data.curve_fabric[curve])],
        n_gpus=round(float(data.curve_gpus[curve])),
        n_nodes=round(float(data.curve_nodes[curve])),
        fabric=", ".join(part for name, part in zip(FABRIC, key, strict=True) if part and name != "op"),
        measured_bytes=measured,
        measured_bus=bus * measured / np.exp(data.log_s[here]),
        n_bytes=n_bytes,
        bus=bus * n_bytes / band(law, data, draws, curve, n_bytes)[::-1],
    )

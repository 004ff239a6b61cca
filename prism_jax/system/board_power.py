"""Speed of products on tensor cores by the power of the board: PCIe cards run them at lower clocks than boards on sockets.

A generation's shares of its peak (`cost.efficiency`) hold for one board. On another one

    speed = min(most, g^-1(w))          w = (watts / peak) of this board, over that of the measured one

where g is what dynamic power makes of the clock, by the law of power of the generation. So A100 PCIe (300 W for the peak of 400)
reaches 0.92 of A100 SXM's share, L4 0.83 and L40 1.22 of L40S's. On the measured board itself the speed is 1. More peak on
the same watts is never slower. Products on CUDA cores have an energy per FLOP of their own (`Efficiency.flop_joules`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from .._core.arrays import Values, namespace
from ..power import population_law, power_law
from . import catalog
from .hardware import Device
from .names import load_toml

_RATED = "fp16"  # the format whose peak is compared; those of other formats are multiples of it


def board_speed(device: Device) -> Values:
    """Speed of products on tensor cores over what the shares of the generation say; 1 where no law is known.

    Notes:
        A device that is like a preset has that one's speed: a lower power limit has lowered its peaks already
        (`system.likeness`). Peaks and watts of a device of its own may be traced by JAX.
    """
    known = catalog.known_device(device.like or device.name)
    return _speed_of_preset(known) if known else _speed(device)


@cache
def _speed_of_preset(name: str) -> float:
    return float(_speed(catalog.device(name)))


def _speed(device: Device) -> Values:
    own = _table().get(device.generation)
    if own is None or _RATED not in device.peak_flops_per_s:
        return 1.0
    board = catalog.device(own["board"])
    room = (device.power_watts / device.peak(_RATED)) / (board.power_watts / board.peak(_RATED))
    law = power_law(device) or population_law()
    return namespace(room).minimum(own["most"], law.clock_at(room))


@cache
def _table() -> dict[str, dict[str, Any]]:
    return load_toml(__name__.rpartition(".")[0], "boards.toml")

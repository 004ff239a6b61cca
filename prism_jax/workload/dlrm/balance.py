"""Which device gets which part of which table: the heaviest parts first, each to the device with the least so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..._core.lazy_numpy import np

MEMORY_SHARE = 0.25  # of a device's share of bytes held in what counts as its load, so that equal loads spread memory


class Load(NamedTuple):
    """One table that is cut into equal parts.

    Attributes:
        item: index of the table.
        work: of one part, in any unit.
        held_bytes: of one part.
        devices: of its parts, in their order; empty: where they balance best.
    """

    item: int
    work: float
    held_bytes: float
    devices: tuple[int, ...] = ()


def balanced(loads: Sequence[Load], n_part: Mapping[int, int], n_device: int) -> dict[int, list[int]]:
    """item -> devices of its parts; parts of one item are on devices of their own as long as there are enough."""
    work, held = (
        sum(getattr(load, name) * n_part[load.item] for load in loads) / n_device for name in ("work", "held_bytes")
    )
    total = np.zeros(n_device)
    found: dict[int, list[int]] = {}
    for load in sorted(loads, key=lambda load: (not load.devices, -load.work, -load.held_bytes, load.item)):
        n = n_part[load.item]
        own = load.work / max(work, 1e-300) + MEMORY_SHARE * load.held_bytes / max(held, 1e-300)
        if load.devices:
            chosen = [load.devices[part % len(load.devices)] for part in range(n)]
        else:
            order = np.argsort(total, kind="stable")
            chosen = [int(order[part % n_device]) for part in range(n)]
        np.add.at(total, chosen, own)
        found[load.item] = chosen
    return found

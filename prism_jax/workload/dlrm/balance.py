"""Which device gets which part of which table: the heaviest parts first, each to the device with the least so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..._core.lazy_numpy import np
from ..._typing import Floats, Positions

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


def balanced(
    loads: Sequence[Load], n_part: Mapping[int, int], n_device: int, node_size: int = 0
) -> dict[int, list[int]]:
    """item -> devices of its parts; parts of one item are on devices of their own as long as there are enough.

    Args:
        node_size: where it is given, parts of one item are on as few nodes as hold them.
    """
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
            order = _least_loaded(total, n, node_size)
            chosen = [int(order[part % len(order)]) for part in range(n)]
        np.add.at(total, chosen, own)
        found[load.item] = chosen
    return found


def _least_loaded(total: Floats, n: int, node_size: int) -> Positions:
    """Devices by load, the least first; of the least loaded nodes that hold `n` parts together."""
    if not node_size or n == 1:
        return np.argsort(total, kind="stable")
    nodes = np.sort(total.reshape(-1, node_size), axis=1)[:, : min(n, node_size)].sum(axis=1)
    chosen = np.argsort(nodes, kind="stable")[: -(-n // node_size)]
    devices = (chosen[:, None] * node_size + np.arange(node_size)).ravel()
    return devices[np.argsort(total[devices], kind="stable")]

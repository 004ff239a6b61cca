"""Which slot of a job plays which part: stages, replicas and members of a node's GPUs.

A slot is the place of one node: `node_size` consecutive devices in the plan's axis order. It may hold one member group (tp = 8 in
nodes of 8), several (tp = 1: eight groups of one GPU), or a share of one (a sharding group over many nodes).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..job import Job
from ..simulate.layout import device_layout


@dataclass(frozen=True, eq=False)
class Slots:
    """The slots of a job.

    Attributes:
        n_slot: nodes that the job runs on.
        slot: [lane, replica, share] slot that holds a share of a member group; `n_slot` where the group has fewer shares.
        part: [lane, replica, share] index into `parts`: which GPUs of the node belong to the group.
        parts: sets of GPU indices within a node, increasing.
        replicas: [slot, touched] replicas a slot belongs to; the last repeated where a slot has fewer.
        lanes: [slot] lowest lane of the GPUs of a slot, for pictures and sorting.
        last_lanes: [slot] highest lane of the GPUs of a slot.
    """

    n_slot: int
    slot: NDArray[np.int32]
    part: NDArray[np.int32]
    parts: tuple[tuple[int, ...], ...]
    replicas: NDArray[np.int32]
    lanes: NDArray[np.int32]
    last_lanes: NDArray[np.int32]

    @property
    def n_lane(self) -> int:
        """Pipeline stages."""
        return self.slot.shape[0]

    @property
    def n_replica(self) -> int:
        """Columns that meet at the end of the step."""
        return self.slot.shape[1]


def slots_of(job: Job) -> Slots:
    """The slots of `job`.

    Raises:
        DataError: the job does not fill whole nodes.
    """
    n_devices, node_size = job.plan.n_devices, job.cluster.node_size
    if n_devices % node_size:
        raise DataError(
            f"the job's {n_devices} GPUs do not fill whole nodes of {node_size}, so there are no nodes to place. "
            "Choose degrees whose product is a multiple of the node size."
        )
    devices = np.sort(device_layout(job.plan), axis=0)  # [member, lane, replica]
    n_slot = n_devices // node_size
    _, n_lane, n_replica = devices.shape
    known: dict[tuple[int, ...], int] = {}
    shares = [
        [_shares(devices[:, lane, replica], node_size, known) for replica in range(n_replica)] for lane in range(n_lane)
    ]
    n_share = max(len(group) for lane in shares for group in lane)
    filled = [[group + [(n_slot, 0)] * (n_share - len(group)) for group in lane] for lane in shares]
    table = np.array(filled, dtype=np.int32)  # [lane, replica, share, 2]
    first = np.full(n_slot, n_lane, dtype=np.int32)
    lane_of = np.broadcast_to(np.arange(n_lane, dtype=np.int32)[None, :, None], devices.shape)
    last = np.zeros(n_slot, dtype=np.int32)
    np.minimum.at(first, devices // node_size, lane_of)
    np.maximum.at(last, devices // node_size, lane_of)
    return Slots(
        n_slot, table[..., 0], table[..., 1], tuple(known), _touched(devices // node_size, n_slot), first, last
    )


def _shares(devices: NDArray[np.int32], node_size: int, known: dict[tuple[int, ...], int]) -> list[tuple[int, int]]:
    """(slot, part) of every node that holds GPUs of one group; new parts are added to `known`."""
    slots, local = devices // node_size, devices % node_size
    edges = [0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(slots)]
    found = []
    for start, stop in pairwise(edges):
        gpus = tuple(local[start:stop].tolist())
        found.append((int(slots[start]), known.setdefault(gpus, len(known))))
    return found


def _touched(slots: NDArray[np.int32], n_slot: int) -> NDArray[np.int32]:
    """[slot, touched] replicas that hold a GPU of every slot."""
    n_replica = slots.shape[2]
    replica = np.broadcast_to(np.arange(n_replica)[None, None, :], slots.shape)
    pairs = np.unique(slots.astype(np.int64) * n_replica + replica)
    by_slot = [pairs[pairs // n_replica == s] % n_replica for s in range(n_slot)] if n_slot < 64 else None
    if by_slot is None:
        by_slot = np.split(pairs % n_replica, np.searchsorted(pairs // n_replica, np.arange(1, n_slot)))
    width = max(len(r) for r in by_slot)
    return np.array([np.append(r, np.repeat(r[-1:], width - len(r))) for r in by_slot], dtype=np.int32)

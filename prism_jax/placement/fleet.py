"""Defines Fleet, how slow every GPU of every node is, as measured, and which slot of a job plays which part.

Parts are stages, replicas and members of a node's GPUs. A slot is the place of one node: `node_size` consecutive devices in the
plan's axis order. It may hold one member group (tp = 8 in nodes of 8), several (tp = 1: eight groups of one GPU), or a share of
one (a sharding group over many nodes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.errors import DataError
from ..core.kernels import COMPUTE_CLASSES, LINKS
from ..core.registry import did_you_mean
from ..job.job import Job
from ..plan.plan import device_layout
from ..slowdowns.slow_gpus import EXTREMES_ALONE

MOST_NAMED = 5  # of many missing nodes


@dataclass(frozen=True, eq=False)
class MeasuredFleet:
    """Persistent slowdown factors of every GPU.

    Attributes:
        factor: [compute_class, node, gpu] with GPUs in their order within the node; 1.05 is 5% slower.
        hosts: [node] names; empty where nodes are numbered.
        links: [2, node, gpu] factors of links within the node and of the port to others; None where none was measured.
    """

    factor: Floats
    hosts: tuple[str, ...] = ()
    links: Floats | None = None

    @property
    def n_node(self) -> int:
        """Nodes there are, spares included."""
        return self.factor.shape[1]

    def slowness(self, share: Floats) -> Floats:
        """[node] factor of a node's slowest GPU in work of the given mix [compute_class], which ranks nodes."""
        return np.einsum("c,cng->ng", share, self.factor).max(axis=-1)


def fleet_of(
    slowdown: Mapping[str, Mapping[int, float]] | Floats | MeasuredFleet,
    node_size: int,
    classes: Sequence[str] = COMPUTE_CLASSES,
    hosts: Sequence[str] = (),
) -> MeasuredFleet:
    """A fleet from what was measured.

    Args:
        slowdown: [node] or [node, gpu] factors, or kernel class (or "all", "link", "nic") -> GPU -> factor, GPUs counted node by
            node; links that are not listed are at 1.
        node_size: GPUs per node.
        classes: compute classes of the model (`Workload.kernel_classes`).
        hosts: [node] names; empty where nodes are numbered.

    Raises:
        DataError: unknown class, GPUs that are missing, or a factor that is not a positive number.
    """
    if isinstance(slowdown, MeasuredFleet):
        if len(slowdown.factor) != len(classes):
            raise DataError(f"a fleet of {len(slowdown.factor)} kernel classes, but the model has {', '.join(classes)}")
        return slowdown
    links = None
    if isinstance(slowdown, Mapping):
        factor = _from_mapping(slowdown, node_size, classes, hosts)
        factor, measured = np.split(factor, [len(classes)])
        links = None if set(LINKS).isdisjoint(slowdown) else measured
    else:
        values = np.asarray(slowdown, dtype=np.float64)
        if values.ndim not in (1, 2) or (values.ndim == 2 and values.shape[1] != node_size):
            raise DataError(f"slowdowns have shape {values.shape}, but must be [node] or [node, {node_size}]")
        by_gpu = values[:, None] if values.ndim == 1 else values
        factor = np.broadcast_to(by_gpu, (len(classes), len(values), node_size)).copy()
    if not all(np.isfinite(one).all() and (one > 0).all() for one in (factor, links) if one is not None):
        raise DataError("slowdowns must be positive numbers (1.05 = 5% slower)")
    if hosts and len(hosts) != factor.shape[1]:
        raise DataError(f"{len(hosts)} host names for {factor.shape[1]} nodes")
    return MeasuredFleet(factor, tuple(hosts), links)


def _from_mapping(
    slowdown: Mapping[str, Mapping[int, float]], node_size: int, classes: Sequence[str], hosts: Sequence[str]
) -> Floats:
    """Factors [class and link, node, gpu]."""
    devices = {device for values in slowdown.values() for device in values}
    if not devices:
        raise DataError("slowdowns: no GPU is given")
    n_node = max(len(hosts), -(-(max(devices) + 1) // node_size))
    known = ("all", *classes, *LINKS)
    factor = np.ones((len(known) - 1, n_node * node_size))
    for name, values in slowdown.items():
        if name not in known:
            raise DataError(f"slowdowns: unknown kernel class {name!r}{did_you_mean(name, known)}")
        rows = slice(len(classes)) if name == "all" else known.index(name) - 1
        factor[rows, list(values)] = list(values.values())
    missing = sorted(set(range(n_node * node_size)) - devices)
    if missing:
        nodes = sorted({device // node_size for device in missing})
        named = ", ".join(str(hosts[n] if hosts else n) for n in nodes[:MOST_NAMED])
        named += ", ..." if len(nodes) > MOST_NAMED else ""
        raise DataError(
            f"slowdowns: {len(missing)} GPUs are missing (of node{'s' if len(nodes) > 1 else ''} {named}); a placement needs "
            f"every node's slowdown. List them, with 1 where nothing was measured, or begin the table with `{EXTREMES_ALONE}`."
        )
    return factor.reshape(-1, n_node, node_size)


def check_counts(fleet: MeasuredFleet, n_slot: int, spares: int) -> None:
    """Raises a DataError unless the fleet is as many nodes as there are slots and spares."""
    if spares < 0:
        raise DataError(f"spares = {spares}, but it must be at least 0")
    if fleet.n_node == n_slot + spares:
        return
    more = fleet.n_node - n_slot
    if more < 0:
        raise DataError(f"slowdowns of {fleet.n_node} nodes, but the job runs on {n_slot}. List every node.")
    remedy = f"Use --spares {more} to leave out the {more} that hurt most." if more else "Use --spares 0."
    raise DataError(
        f"slowdowns of {fleet.n_node} nodes, but the job runs on {n_slot} and {spares} spares were asked for. {remedy}"
    )


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
    by_slot = np.split(pairs % n_replica, np.searchsorted(pairs // n_replica, np.arange(1, n_slot)))
    width = max(len(r) for r in by_slot)
    return np.array([np.append(r, np.repeat(r[-1:], width - len(r))) for r in by_slot], dtype=np.int32)

"""Fleet: how slow every GPU of every node is, as measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .._typing import Floats
from ..errors import DataError
from ..hints import did_you_mean
from ..kernels import COMPUTE_CLASSES

MOST_NAMED = 5  # of many missing nodes


@dataclass(frozen=True, eq=False)
class Fleet:
    """Persistent slowdown factors of every GPU.

    Attributes:
        factor: [compute_class, node, gpu] with GPUs in their order within the node; 1.05 is 5 % slower.
        hosts: [node] names; empty where nodes are numbered.
    """

    factor: Floats
    hosts: tuple[str, ...] = ()

    @property
    def n_node(self) -> int:
        """Nodes there are, spares included."""
        return self.factor.shape[1]

    def slowness(self, share: Floats) -> Floats:
        """[node] factor of a node's slowest GPU in work of the given mix [compute_class], which ranks nodes."""
        return np.einsum("c,cng->ng", share, self.factor).max(axis=-1)


def fleet_of(
    slowdown: Mapping[str, Mapping[int, float]] | Floats | Fleet,
    node_size: int,
    classes: Sequence[str] = COMPUTE_CLASSES,
    hosts: Sequence[str] = (),
) -> Fleet:
    """A fleet from what was measured.

    Args:
        slowdown: [node] or [node, gpu] factors, or kernel class (or "all") -> GPU -> factor, GPUs counted node by node.
        node_size: GPUs per node.
        classes: compute classes of the model (`Workload.kernel_classes`).
        hosts: [node] names; empty where nodes are numbered.

    Raises:
        DataError: unknown class, GPUs that are missing, or a factor that is not a positive number.
    """
    if isinstance(slowdown, Fleet):
        if len(slowdown.factor) != len(classes):
            raise DataError(f"a fleet of {len(slowdown.factor)} kernel classes, but the model has {', '.join(classes)}")
        return slowdown
    if isinstance(slowdown, Mapping):
        factor = _from_mapping(slowdown, node_size, classes, hosts)
    else:
        values = np.asarray(slowdown, dtype=np.float64)
        if values.ndim not in (1, 2) or (values.ndim == 2 and values.shape[1] != node_size):
            raise DataError(f"slowdowns have shape {values.shape}, but must be [node] or [node, {node_size}]")
        by_gpu = values[:, None] if values.ndim == 1 else values
        factor = np.broadcast_to(by_gpu, (len(classes), len(values), node_size)).copy()
    if not (np.isfinite(factor).all() and (factor > 0).all()):
        raise DataError("slowdowns must be positive numbers (1.05 = 5 % slower)")
    if hosts and len(hosts) != factor.shape[1]:
        raise DataError(f"{len(hosts)} host names for {factor.shape[1]} nodes")
    return Fleet(factor, tuple(hosts))


def _from_mapping(
    slowdown: Mapping[str, Mapping[int, float]], node_size: int, classes: Sequence[str], hosts: Sequence[str]
) -> Floats:
    devices = {device for values in slowdown.values() for device in values}
    if not devices:
        raise DataError("slowdowns: no GPU is given")
    n_node = max(len(hosts), -(-(max(devices) + 1) // node_size))
    factor = np.ones((len(classes), n_node * node_size))
    for name, values in slowdown.items():
        if name != "all" and name not in classes:
            raise DataError(f"slowdowns: unknown kernel class {name!r}{did_you_mean(name, ('all', *classes))}")
        rows = slice(None) if name == "all" else classes.index(name)
        factor[rows, list(values)] = list(values.values())
    missing = sorted(set(range(n_node * node_size)) - devices)
    if missing:
        nodes = sorted({device // node_size for device in missing})
        named = ", ".join(str(hosts[n] if hosts else n) for n in nodes[:MOST_NAMED])
        named += ", ..." if len(nodes) > MOST_NAMED else ""
        raise DataError(
            f"slowdowns: {len(missing)} GPUs are missing (of node{'s' if len(nodes) > 1 else ''} {named}); a placement needs "
            "every node's slowdown. List them, with 1 where nothing was measured."
        )
    return factor.reshape(len(classes), n_node, node_size)


def check_counts(fleet: Fleet, n_slot: int, spares: int) -> None:
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

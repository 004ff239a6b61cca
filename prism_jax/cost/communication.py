"""Seconds of collectives on a cluster, and whether they leave a node: what the cost model asks of a network."""

from __future__ import annotations

from ..system.hardware import Cluster
from ..system.network.base import CollectiveTime


def collective_s(kind: str, n_bytes: float, cluster: Cluster, stride: int, size: int) -> CollectiveTime:
    """Seconds of `kind` over `size` devices `stride` apart, and the algorithm that takes them; 0 without bytes or peers.

    Args:
        kind: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or p2p (then `size` is 2).
        n_bytes: as `Network.collective` counts them.
    """
    if size <= 1 or n_bytes <= 0.0:
        return CollectiveTime(0.0, "none")
    return cluster.fabric.collective(kind, n_bytes, stride, size)


def crosses_nodes(cluster: Cluster, stride: int, size: int) -> bool:
    """Whether the group of `size` devices, `stride` apart, is on several nodes."""
    return cluster.fabric.n_node(stride, size) > 1

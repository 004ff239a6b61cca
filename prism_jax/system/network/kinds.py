"""Kinds of network and libraries of collectives by name: what `cluster.network` of a job file may be."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..._core.registry import Registry
from .library import CollectiveLibrary
from .nccl import NCCL
from .tiered import TieredNetwork

# What a network may have as a field and a job file does not say again: it is the cluster's.
FROM_CLUSTER = ("tiers", "generation", "node_size", "n_devices")


@dataclass(frozen=True)
class NetworkKind:
    """One kind of network.

    Attributes:
        name: as in `network: {kind: name}` of a job file.
        spec: frozen dataclass that is a `Network`; the fields of the section are its fields, without those in `FROM_CLUSTER`.
        about: what it is, in a line.
    """

    name: str
    spec: type
    about: str

    @property
    def from_cluster(self) -> tuple[str, ...]:
        """Fields that are the cluster's."""
        return tuple(item.name for item in fields(self.spec) if item.name in FROM_CLUSTER)


TIERED = NetworkKind("tiered", TieredNetwork, "nested tiers under a collective library; what clusters have by default")
NETWORKS: Registry[NetworkKind] = Registry("kind of network", lambda: (TIERED,))
LIBRARIES: Registry[CollectiveLibrary] = Registry("collective library", lambda: (NCCL,))

"""Kinds of network and libraries of collectives by name (`cluster.network` of a job file); nested tiers are the default.

`MeasuredNetwork` puts measured collectives on top of a network: its own law times measured over predicted seconds, known at
the measured message and group sizes, in a node and between nodes apart. Between two sizes and between two groups the ratio is
interpolated (in logarithms), beyond them it stays what it is at the last one: there the algorithms' own law says how latency
grows with the hops and the wire with the bytes. A collective that was not measured keeps the network's seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from itertools import pairwise
from math import log
from typing import Any

from ..core.arrays import Positions, Values, is_numpy, namespace
from ..core.lazy import np
from ..core.registry import Registry
from .collectives import NCCL, CollectiveLibrary, TierGroup, candidates
from .network import CollectiveTime, Network, Tier

TRACED = "cheapest"  # which algorithm that is depends on traced numbers


@dataclass(frozen=True)
class TieredNetwork:
    """Nested tiers, innermost first; the innermost is a node, and the last spans all devices. Implements `Network`.

    Attributes:
        tiers: of the network; a distance is the index of the innermost tier that joins two devices.
        generation: of the devices: clusters of some generations reach less of their ports.
        library: constants of the library that runs the collectives.
    """

    tiers: tuple[Tier, ...]
    generation: str = ""
    library: CollectiveLibrary = NCCL

    @property
    def n_devices(self) -> int:
        """Devices of the outermost tier."""
        return self.tiers[-1].n_devices

    @property
    def n_distance(self) -> int:
        """Number of tiers."""
        return len(self.tiers)

    def of_size(self, n_devices: int) -> TieredNetwork:
        """The outermost tier spans `n_devices`, if need be by growing."""
        *inner, outer = self.tiers
        return replace(self, tiers=(*inner, replace(outer, n_devices=max(outer.n_devices, n_devices))))

    def group(self, stride: int, size: int) -> TierGroup:
        """The group of `size` devices that are `stride` apart."""
        return TierGroup.of(self.tiers, stride, size, self.library, self.generation)

    def collective(self, kind: str, n_bytes: float, stride: int, size: int) -> CollectiveTime:
        """The cheapest algorithm, with its best protocol; see `algorithms`."""
        group = self.group(stride, size)
        options = candidates(kind, n_bytes, group)
        if not is_numpy(group.xp):
            return CollectiveTime(reduce(group.xp.minimum, options.values()), TRACED)
        name = min(options, key=lambda key: float(options[key]))
        return CollectiveTime(float(options[name]), name)

    def n_node(self, stride: int, size: int) -> int:
        """Domains of the innermost tier that the group spans."""
        return self.group(stride, size).n_node

    def distances(self, first: Positions, second: Positions) -> Positions:
        """Index of the innermost tier that joins two devices, [edge]."""
        distances = np.full(first.shape, len(self.tiers) - 1, dtype=np.intp)
        for level in reversed(range(len(self.tiers) - 1)):
            n = self.tiers[level].n_devices
            distances[first // n == second // n] = level
        return distances

    def leaves_node(self, distance: int) -> bool:
        """Whether it is any tier but the innermost."""
        return distance > 0

    def send_s(self, n_bytes: Values, distance: int, stride: int) -> Values:
        """A message between the same position of two stages that meet at tier `distance`.

        Notes:
            An oversubscribed tier is shared by those who cross it at the same time: one stage of every domain below.
        """
        tier = self.tiers[distance]
        if distance > 0:
            crossing = min(1.0, stride / self.tiers[distance - 1].n_devices)
            rate = namespace(tier).minimum(tier.bytes_per_s, tier.effective_bytes_per_s / crossing)
            n_bytes = n_bytes * (tier.effective_bytes_per_s / rate)
        members = tuple(2 if i == distance else 1 for i in range(len(self.tiers)))
        group = replace(self.group(stride, 2), members=members)
        return candidates("p2p", n_bytes, group)["direct"]


@dataclass(frozen=True)
class MeasuredCurve:
    """One collective on groups of one size.

    Attributes:
        kind: as in `Network.collective`.
        crosses_nodes: whether the groups spanned several nodes.
        n_members: of a group.
        log_bytes: logarithm of message bytes, increasing.
        log_ratio: logarithm of measured over predicted seconds there.
    """

    kind: str
    crosses_nodes: bool
    n_members: int
    log_bytes: tuple[float, ...]
    log_ratio: tuple[float, ...]


SERVED_BY = {
    "reduce_scatter": ("all_gather", "all_reduce"),
    "all_gather": ("reduce_scatter", "all_reduce"),
    "all_reduce": ("reduce_scatter", "all_gather"),
}
"""Collective -> those whose measurements at the same bytes serve it where it was not measured, best first: a ring all-reduce is a
reduce-scatter and an all-gather of the same bytes over the same wires."""


@dataclass(frozen=True)
class MeasuredCollectives:
    """Measured curves of a cluster's collectives."""

    curves: tuple[MeasuredCurve, ...]

    def over(self, under: MeasuredCollectives | None) -> MeasuredCollectives:
        """Merges both; of a collective that both measured on the same side of a node's border, these count."""
        own = {(curve.kind, curve.crosses_nodes) for curve in self.curves}
        kept = () if under is None else under.curves
        return MeasuredCollectives((*self.curves, *[one for one in kept if (one.kind, one.crosses_nodes) not in own]))

    def serving(self, kind: str, crosses_nodes: bool) -> str | None:
        """The collective whose measurements say how long one of `kind` takes: itself, or another; None where none does."""
        there = {one.kind for one in self.curves if one.crosses_nodes == crosses_nodes}
        return next((one for one in (kind, *SERVED_BY.get(kind, ())) if one in there), None)

    def factor(self, kind: str, n_bytes: Any, crosses_nodes: bool, n_members: int) -> Any:
        """Measured over predicted seconds, of the shape of `n_bytes`; 1 where nothing was measured.

        Notes: of a collective that was not measured, the ratio of the one that serves it (`SERVED_BY`) at the same bytes.
        """
        found_kind = self.serving(kind, crosses_nodes)
        curves = [one for one in self.curves if (one.kind, one.crosses_nodes) == (found_kind, crosses_nodes)]
        if not curves:
            return 1.0
        below, above, share = _neighbours(sorted(curves, key=lambda one: one.n_members), n_members)
        size = np.log(np.maximum(np.asarray(n_bytes, dtype=np.float64), 1.0))
        low, high = (np.interp(size, one.log_bytes, one.log_ratio) for one in (below, above))
        found = np.exp((1.0 - share) * low + share * high)
        return float(found) if np.ndim(found) == 0 else found


def _neighbours(curves: Sequence[MeasuredCurve], n_members: int) -> tuple[MeasuredCurve, MeasuredCurve, float]:
    """The measured groups on either side of one of `n_members`, and how far it is from the smaller to the larger."""
    for below, above in pairwise(curves):
        if below.n_members <= n_members < above.n_members:
            return below, above, log(n_members / below.n_members) / log(above.n_members / below.n_members)
    end = curves[0] if n_members < curves[0].n_members else curves[-1]
    return end, end, 0.0


@dataclass(frozen=True)
class MeasuredNetwork:
    """A network whose collectives were measured. Implements `Network`.

    Attributes:
        base: the network by its figures.
        measured: over what it predicts.
    """

    base: Network
    measured: MeasuredCollectives

    @property
    def n_devices(self) -> int:
        """Number of devices of the base network."""
        return self.base.n_devices

    @property
    def n_distance(self) -> int:
        """Number of distances of the base network."""
        return self.base.n_distance

    def of_size(self, n_devices: int) -> MeasuredNetwork:
        """Returns the same measurements on the network of that size."""
        return replace(self, base=self.base.of_size(n_devices))

    def collective(self, kind: str, n_bytes: float, stride: int, size: int) -> CollectiveTime:
        """Seconds as measured, of the algorithm that the network by its figures would take."""
        by_figures = self.base.collective(kind, n_bytes, stride, size)
        factor = self.measured.factor(kind, n_bytes, self.n_node(stride, size) > 1, size)
        return CollectiveTime(by_figures.seconds * factor, by_figures.algorithm)

    def n_node(self, stride: int, size: int) -> int:
        """Returns the number of nodes of a group, as the base network does."""
        return self.base.n_node(stride, size)

    def distances(self, first: Positions, second: Positions) -> Positions:
        """Returns the distances of pairs of devices, as the base network does."""
        return self.base.distances(first, second)

    def leaves_node(self, distance: int) -> bool:
        """Whether a distance leaves a node in the base network."""
        return self.base.leaves_node(distance)

    def send_s(self, n_bytes: Values, distance: int, stride: int) -> Values:
        """Seconds as measured of sends and receives."""
        factor = self.measured.factor("p2p", n_bytes, self.leaves_node(distance), 2)
        return self.base.send_s(n_bytes, distance, stride) * factor


# What a network may have as a field and a job file does not say again: it is the cluster's.
FROM_CLUSTER = ("tiers", "generation", "node_size", "n_devices")


@dataclass(frozen=True)
class NetworkKind:
    """One kind of network.

    Attributes:
        name: as in `network: {kind: name}` of a job file.
        spec: frozen dataclass that is a `Network`; the fields of the section are its fields, without those in `FROM_CLUSTER`.
        about: description in one line.
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

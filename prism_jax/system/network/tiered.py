"""TieredNetwork: nested domains (node, rail, pod, spine) under a library of collectives; what clusters have by default."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

from ..._core.arrays import Values, is_numpy, namespace
from ..._core.lazy_numpy import np
from ..._typing import Positions
from .algorithms import Group, candidates
from .base import CollectiveTime
from .library import CollectiveLibrary
from .nccl import NCCL
from .tier import Tier

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

    def group(self, stride: int, size: int) -> Group:
        """The group of `size` devices that are `stride` apart."""
        return Group.of(self.tiers, stride, size, self.library, self.generation)

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
        """[edge] index of the innermost tier that joins two devices."""
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

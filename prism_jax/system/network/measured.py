"""Measured collectives on top of a network: seconds of the network's own law times measured over predicted seconds.

The ratio is known at the message sizes and group sizes that were measured, in a node and between nodes apart. Between two sizes
and between two groups it is interpolated (in logarithms), beyond them it stays what it is at the last one: there the algorithms'
own law says how latency grows with the hops and the wire with the bytes. A collective that was not measured keeps the network's
seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log
from typing import Any

from ..._core.arrays import Values
from ..._core.lazy_numpy import np
from ..._typing import Positions
from .base import CollectiveTime, Network


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


@dataclass(frozen=True)
class MeasuredCollectives:
    """What was measured of the collectives of a cluster."""

    curves: tuple[MeasuredCurve, ...]

    def over(self, under: MeasuredCollectives | None) -> MeasuredCollectives:
        """Both; of a collective that both measured on the same side of a node's border, these."""
        own = {(curve.kind, curve.crosses_nodes) for curve in self.curves}
        kept = () if under is None else under.curves
        return MeasuredCollectives((*self.curves, *[one for one in kept if (one.kind, one.crosses_nodes) not in own]))

    def factor(self, kind: str, n_bytes: Any, crosses_nodes: bool, n_members: int) -> Any:
        """Measured over predicted seconds, of the shape of `n_bytes`; 1 where nothing was measured."""
        curves = [one for one in self.curves if (one.kind, one.crosses_nodes) == (kind, crosses_nodes)]
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
        """As the network by its figures."""
        return self.base.n_devices

    @property
    def n_distance(self) -> int:
        """As the network by its figures."""
        return self.base.n_distance

    def of_size(self, n_devices: int) -> MeasuredNetwork:
        """The same measurements on the network of that size."""
        return replace(self, base=self.base.of_size(n_devices))

    def collective(self, kind: str, n_bytes: float, stride: int, size: int) -> CollectiveTime:
        """Seconds as measured, of the algorithm that the network by its figures would take."""
        by_figures = self.base.collective(kind, n_bytes, stride, size)
        factor = self.measured.factor(kind, n_bytes, self.n_node(stride, size) > 1, size)
        return CollectiveTime(by_figures.seconds * factor, by_figures.algorithm)

    def n_node(self, stride: int, size: int) -> int:
        """As the network by its figures."""
        return self.base.n_node(stride, size)

    def distances(self, first: Positions, second: Positions) -> Positions:
        """As the network by its figures."""
        return self.base.distances(first, second)

    def leaves_node(self, distance: int) -> bool:
        """As the network by its figures."""
        return self.base.leaves_node(distance)

    def send_s(self, n_bytes: Values, distance: int, stride: int) -> Values:
        """Seconds as measured of sends and receives."""
        factor = self.measured.factor("p2p", n_bytes, self.leaves_node(distance), 2)
        return self.base.send_s(n_bytes, distance, stride) * factor

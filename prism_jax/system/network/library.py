"""CollectiveLibrary: what a library of collectives makes of the links of nested tiers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ..._core.arrays import is_numpy
from ..._core.lazy_numpy import np
from ..._typing import Floats


class WireProtocol(NamedTuple):
    """One way of moving bytes.

    Attributes:
        bandwidth: share of the bandwidth of the fastest protocol.
        base_ring_s, base_tree_s: start of a collective.
        scale_up_hop, network_hop: hop latency over the one that tiers state.
        tree_network_hop: the same of a hop between nodes in a tree.
        network_step_s: what a hop of a collective between nodes takes on top: a chunk has to be there, and reduced, before it is
            sent on.
        fill_bytes: what must be under way inside the node before links run at full rate (chunks in all channels).
    """

    name: str
    bandwidth: float
    base_ring_s: float
    base_tree_s: float
    scale_up_hop: float
    network_hop: float
    tree_network_hop: float
    network_step_s: float
    fill_bytes: float


class ProtocolArrays(NamedTuple):
    """The numbers of `WireProtocol`, each [protocol]."""

    bandwidth: Floats
    base_ring_s: Floats
    base_tree_s: Floats
    scale_up_hop: Floats
    network_hop: Floats
    tree_network_hop: Floats
    network_step_s: Floats
    fill_bytes: Floats


@dataclass(frozen=True)
class Shares:
    """Share of a link's rate that each collective reaches with large messages."""

    all_reduce: float
    all_gather: float
    reduce_scatter: float
    all_to_all: float
    broadcast: float
    p2p: float

    def of(self, kind: str) -> float:
        """The share of collective `kind`."""
        return getattr(self, kind)


@dataclass(frozen=True)
class CollectiveLibrary:
    """What a library of collectives makes of links.

    Attributes:
        name: key in job files.
        protocols: the fastest for large messages last.
        scale_up: shares of the link rate inside the innermost tier.
        network: shares of the port rate between nodes.
        in_switch_share, in_switch_base_s: share of the link rate, and start, of a reduction in the switch.
        tree_step_share: of the seconds on the wire that every hop in a tree across nodes adds: rates that fall with its depth.
        pat_bytes: the most that a step of the log-depth all-gather and reduce-scatter moves, the buffers of all channels; 0: the
            library has none.
        peers_in_flight: point-to-point transfers that an all-to-all keeps going at a time.
        network_of_generation: (device generation, what its clusters reach of `network`) where that is not all of it.
        source: where the numbers come from.
    """

    name: str
    protocols: tuple[WireProtocol, ...]
    scale_up: Shares
    network: Shares
    in_switch_share: float
    in_switch_base_s: float
    tree_step_share: float
    pat_bytes: float
    peers_in_flight: int
    network_of_generation: tuple[tuple[str, float], ...] = ()
    source: str = ""

    def by_protocol(self, xp: Any = np) -> ProtocolArrays:
        """Numbers of all protocols, in arrays of the library `xp`."""
        own = self._columns
        return own if is_numpy(xp) else ProtocolArrays(*(xp.asarray(column, dtype=float) for column in own))

    @cached_property
    def _columns(self) -> ProtocolArrays:
        columns = list(zip(*self.protocols, strict=True))[1:]  # without the names
        return ProtocolArrays(*(np.array(column) for column in columns))

"""Seconds of collectives over devices in nested tiers, by the constants of a library such as NCCL, in its best protocol.

A group is `size` devices, `stride` apart. On every tier it has some members per domain; the innermost tier (NVLink) and the
network work at the same time, network tiers share the network port of a device. With `n` members and `S` bytes per device,

    ring            latency of n - 1 hops (all-reduce: twice), the slowest link carries (n - 1)/n S (all-reduce: twice)
    rail_ring       the same hops, but as many rings as the node has k members: every port carries (n - 1)/n S/k
    tree            all-reduce in 2 log2(nodes) network hops, each of which costs a little of the rate
    pat             all-gather and reduce-scatter of groups with one member per node: ceil(log2 n) hops while buffers hold
                    what a step moves, one hop per buffer beyond
    hierarchical    all-reduce as reduce-scatter in the node, tree between nodes on 1/k of the bytes, all-gather in the node
    in_switch       the switch adds and multicasts: S (1 + 1/n) per link, no hops; in_switch_tree across nodes
    pairwise, chain, direct    all-to-all, broadcast, send and receive

`S` is the buffer of an all-reduce or broadcast, the gathered size of an all-gather, the unreduced size of a reduce-scatter,
what one device sends to everybody (itself included) in an all-to-all, the message of a send. Latencies are those of NCCL's
own tuner (`baseLat` and `hwLat`); a tier states the hop of the LL128 protocol (`system/presets/clusters.toml`), others scale
it by its ratios.

Source: NCCL `src/graph/tuning.cc` (form and latencies); Thakur et al. 2005 for the bandwidth terms; arXiv 2506.20252 (PAT).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, log2, prod
from typing import Any, NamedTuple

from ..core.arrays import ArrayLike, Floats, Values, is_numpy, namespace
from ..core.lazy import np
from .network import Tier


class WireProtocol(NamedTuple):
    """One way of moving bytes, or several: then all numbers are [protocol].

    Attributes:
        bandwidth: share of the bandwidth of the fastest protocol.
        base_ring_s, base_tree_s: start of a collective.
        scale_up_hop, network_hop: hop latency over the one that tiers state.
        tree_network_hop: latency of a hop between nodes in a tree, over the one that tiers state.
        network_step_s: extra time of a hop of a collective between nodes: a chunk has to be there, and reduced, before it is
            sent on.
        fill_bytes: bytes that must be under way inside the node before links run at full rate (chunks in all channels).
    """

    name: str
    bandwidth: Values
    base_ring_s: Values
    base_tree_s: Values
    scale_up_hop: Values
    network_hop: Values
    tree_network_hop: Values
    network_step_s: Values
    fill_bytes: Values


@dataclass(frozen=True)
class RateShares:
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
    """Rates that a library of collectives reaches on links.

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
    scale_up: RateShares
    network: RateShares
    in_switch_share: float
    in_switch_base_s: float
    tree_step_share: float
    pat_bytes: float
    peers_in_flight: int
    network_of_generation: tuple[tuple[str, float], ...] = ()
    source: str = ""

    def by_protocol(self, xp: Any = np) -> WireProtocol:
        """Numbers of all protocols, in arrays of the library `xp`."""
        own = self._columns
        return own if is_numpy(xp) else WireProtocol(own.name, *(xp.asarray(column, dtype=float) for column in own[1:]))

    @cached_property
    def _columns(self) -> WireProtocol:
        return WireProtocol("all", *(np.array(column) for column in [*zip(*self.protocols, strict=True)][1:]))


# baseLat ring 6.6 / 14 / 8.4, tree 6.8 / 14 / 8.4; hwLat NVLink ring 0.6 / 1.9 / 3.4, network ring 2.7 / 4.0 / 14.
# LL sends a flag with every 4 bytes (the tuner gives it 1/4 of the ring bandwidth); LL128 carries data in 120 of 128 bytes.
# The tree's own network hops are 5.0 / 8.5 / 14.
# network_step_s, tree_step_share: what the tuner's latencies lack of real networks; picked on coarse grids (10 to 30 us, LL 2 to
# 8 us, shares to 1%) by the squared logarithmic error of all-reduces across nodes from 1 MiB: H100, 4 to 512 nodes (64 MiB from
# 217 to 112 GB/s of bus bandwidth, 1 GiB from 337 to 286; arXiv 2411.13055) and 4 to 1,024 nodes (64 MiB from 230 to 107; NVIDIA,
# GTC), A100, 2 to 16 nodes (Echo, aisimu: nccl-tests). The 8 us are the end of their grid.
# fill_bytes: two A100 (H100) take 42 (29) us longer for 16 MiB than their rate at 512 MiB says (aiconfigurator tables).
PROTOCOLS = (
    WireProtocol("LL", 0.25, 6.6e-6, 6.8e-6, 0.6 / 1.9, 2.7 / 4.0, 5.0 / 4.0, 8e-6, 0.0),
    WireProtocol("LL128", 120 / 128, 14.0e-6, 14.0e-6, 1.0, 1.0, 8.5 / 4.0, 25e-6, 2e6),
    WireProtocol("Simple", 1.0, 8.4e-6, 8.4e-6, 3.4 / 1.9, 14.0 / 4.0, 14.0 / 4.0, 25e-6, 8e6),
)

NCCL = CollectiveLibrary(
    name="nccl",
    protocols=PROTOCOLS,
    # Large messages inside an NVLink domain. Source: our reading of nccl-tests on 8 x A100 and 8 x H100 (aiconfigurator tables,
    # NCCL 2.27, 512 MiB): bus bandwidth over 300 and 450 GB/s.
    scale_up=RateShares(
        all_reduce=0.77, all_gather=0.72, reduce_scatter=0.72, all_to_all=0.69, broadcast=0.77, p2p=0.72
    ),
    # Share of the port rate between nodes. Measured bus bandwidth per port: 48.6 of 50 GB/s on Vista GH200, 45.6 on p5en, 47.7
    # on p6-b200, 42-45 on H100 (METHODS section 4, 16 GiB); send and receive 36 of 50 GB/s (vidur, DGX H100, 64 MiB).
    network=RateShares(
        all_reduce=0.88, all_gather=0.88, reduce_scatter=0.88, all_to_all=0.72, broadcast=0.88, p2p=0.72
    ),
    # In-switch reduction: 445-460 GB/s bus bandwidth on 8 x H100 is 64-69% of the rate at S (1 + 1/n) bytes per link.
    in_switch_share=0.66,
    in_switch_base_s=25.0e-6,  # NCCL tuner, NVLS base latency
    tree_step_share=0.004,
    pat_bytes=8 * 512e3,  # assumed: 8 channels, of a 4 MiB buffer in 8 slots each (NCCL_BUFFSIZE, NCCL_STEPS)
    peers_in_flight=8,  # NCCL's default channels per peer set
    # A100 clusters reach less: 129 of 200 GB/s per node on Azure ND A100 v4, 16 to 64 GPUs (Echo, nccl-tests).
    network_of_generation=(("ampere", 0.73), ("volta", 0.73)),
    source="NCCL src/graph/tuning.cc; nccl-tests",
)


@dataclass(frozen=True)
class TierGroup:
    """Members of a group by tier.

    Attributes:
        tiers: of the cluster that the group uses, innermost first.
        members: per tier, how many branches of the tier below it joins (product = size).
        network_share: rate of this generation's clusters over the usual share of the port rate.
        library: constants of the library that runs the collectives.
    """

    tiers: tuple[Tier, ...]
    members: tuple[int, ...]
    network_share: float = 1.0
    library: CollectiveLibrary = NCCL

    @classmethod
    def of(
        cls, tiers: tuple[Tier, ...], stride: int, size: int, library: CollectiveLibrary = NCCL, generation: str = ""
    ) -> TierGroup:
        """The group of `size` devices that are `stride` apart, on devices of a generation."""
        members, inside = [], 1
        for i, tier in enumerate(tiers):
            last = i == len(tiers) - 1
            within = size if last else min(size, max(1, tier.n_devices // stride))
            within = max(inside, within)
            members.append(-(-within // inside))
            inside = within
        return cls(tiers, tuple(members), dict(library.network_of_generation).get(generation, 1.0), library)

    @cached_property
    def xp(self) -> Any:
        """Array library of the tiers' numbers."""
        return namespace(self.tiers)

    @property
    def size(self) -> int:
        """Members of all tiers together."""
        return prod(self.members)

    @property
    def in_node(self) -> int:
        """Members in one domain of the innermost tier."""
        return self.members[0]

    @property
    def n_node(self) -> int:
        """Nodes (domains of the innermost tier) that it spans."""
        return self.size // self.in_node

    @property
    def outermost(self) -> Tier:
        """The outermost tier that its members use."""
        used = [tier for tier, count in zip(self.tiers, self.members, strict=True) if count > 1]
        return used[-1] if used else self.tiers[0]


def candidates(kind: str, n_bytes: ArrayLike, group: TierGroup) -> dict[str, Floats]:
    """Seconds of every algorithm that `kind` has on this group, each with its best protocol; arrays over `n_bytes`."""
    size = namespace(n_bytes).asarray(n_bytes, dtype=float)
    if kind == "p2p":
        return {"direct": _best(kind, group, 1, 1, *_direct(size, group))}
    if kind == "all_to_all":
        return {"pairwise": _pairwise(size, group)}
    if kind == "broadcast":
        hops = group.size - 1
        return {"chain": _best(kind, group, hops, group.n_node - 1, *_chain(size, group))}
    rounds = 2 if kind == "all_reduce" else 1
    hops, net_hops = rounds * (group.size - 1), rounds * (group.n_node - 1)
    name = "rail_ring" if 1 < group.in_node < group.size else "ring"
    options = {name: _best(kind, group, hops, net_hops, *_rails(rounds * size, group))}
    if name == "rail_ring":
        options["ring"] = _best(kind, group, hops, net_hops, *_flat(rounds * size, group))
    if kind != "all_reduce":
        options |= _pat_options(kind, size, group)
    else:
        options |= _tree_options(size, group)
        if group.in_node > 1 and group.tiers[0].in_switch:
            options |= _in_switch_options(size, group)
    return options


def _best(
    kind: str, group: TierGroup, hops: int, net_hops: int, scale_up: Floats, network: Floats, tree: bool = False
) -> Floats:
    """Latency plus the longer of the two concurrent wires, for the fastest protocol; wires are bytes over link rate."""
    inner, outer, library = group.tiers[0], group.outermost, group.library
    protocols = library.by_protocol(group.xp)
    network = network / (library.network.of(kind) * group.network_share)
    scale_up = scale_up / library.scale_up.of(kind)
    fill_s = 1.0 / (inner.effective_bytes_per_s * library.scale_up.of(kind)) if group.in_node > 1 else 0.0
    base = protocols.base_tree_s if tree else protocols.base_ring_s
    latency = base + (hops - net_hops) * inner.latency_s * protocols.scale_up_hop
    if group.n_node > 1:
        hop = protocols.tree_network_hop if tree else protocols.network_hop
        step_s = 0.0 if kind == "p2p" else protocols.network_step_s
        latency = latency + net_hops * (outer.latency_s * hop + step_s)
    if tree:
        latency = latency + net_hops * library.tree_step_share * network[..., None] / protocols.bandwidth
    wire = (
        group.xp.maximum(scale_up[..., None] + protocols.fill_bytes * fill_s, network[..., None]) / protocols.bandwidth
    )
    return (latency + wire).min(axis=-1)


def _rails(size: Floats, group: TierGroup) -> tuple[Floats, Floats]:
    """Wire seconds of one ring per member of the node, each with its own port; domains further out share their uplinks."""
    n, k = group.size, group.in_node
    scale_up = size * (k - 1) / k / group.tiers[0].effective_bytes_per_s
    network, inside = 0.0 * size, k
    for tier, count in zip(group.tiers[1:], group.members[1:], strict=True):
        if count > 1:  # a ring leaves a domain of `inside` members once
            network = network + size * (n - 1) / n / inside / tier.effective_bytes_per_s
        inside *= count
    return scale_up, network


def _flat(size: Floats, group: TierGroup) -> tuple[Floats, Floats]:
    """Wire seconds of one ring through all members: every link carries (n - 1)/n S."""
    carried = size * (group.size - 1) / group.size
    return carried / group.tiers[0].effective_bytes_per_s, carried / group.outermost.effective_bytes_per_s


def _direct(size: Floats, group: TierGroup) -> tuple[Floats, Floats]:
    seconds = size / group.outermost.effective_bytes_per_s
    return (seconds, 0.0 * size) if group.n_node == 1 else (0.0 * size, seconds)


def _chain(size: Floats, group: TierGroup) -> tuple[Floats, Floats]:
    scale_up = size / group.tiers[0].effective_bytes_per_s if group.in_node > 1 else 0.0 * size
    network = size / group.outermost.effective_bytes_per_s if group.n_node > 1 else 0.0 * size
    return scale_up, network


def _pairwise(size: Floats, group: TierGroup) -> Floats:
    """All-to-all: to each tier goes the share of peers that are first met there; peers are served a few at a time."""
    scale_up, network, inside = 0.0 * size, 0.0 * size, 1
    for i, (tier, count) in enumerate(zip(group.tiers, group.members, strict=True)):
        seconds = size * (inside * count - inside) / group.size / tier.effective_bytes_per_s
        if i == 0:
            scale_up = seconds
        else:
            network = network + seconds
        inside *= count
    hops = -(-(group.size - 1) // group.library.peers_in_flight)
    net_hops = -(-(group.size - group.in_node) // group.library.peers_in_flight)
    return _best("all_to_all", group, hops, min(hops, net_hops), scale_up, network)


def _tree_options(size: Floats, group: TierGroup) -> dict[str, Floats]:
    if group.n_node == 1:
        return {}
    net_hops = 2 * ceil(log2(group.n_node))
    hops = 2 * (group.in_node - 1) + net_hops
    scale_up, network = _rails(2.0 * size, group)
    options = {"tree": _best("all_reduce", group, hops, net_hops, scale_up, network, tree=True)}
    if group.in_node > 1:
        inside = TierGroup(group.tiers[:1], group.members[:1], library=group.library)
        between = replace(group, members=(1, *group.members[1:]))
        share = size / group.in_node
        outside = _tree_options(share, between)["tree"]
        options["hierarchical"] = outside + sum(
            _best(kind, inside, group.in_node - 1, 0, *_rails(size, inside))
            for kind in ("reduce_scatter", "all_gather")
        )
    return options


def _pat_options(kind: str, size: Floats, group: TierGroup) -> dict[str, Floats]:
    """Parallel aggregated trees, where every member has a node of its own: NCCL runs them on no other group."""
    n = group.size
    if group.in_node > 1 or n == 1 or not group.library.pat_bytes:
        return {}
    slowest = group.library.protocols[-1]  # the only one that it runs under
    xp, carried = group.xp, size * (n - 1) / n
    hops = xp.maximum(ceil(log2(n)), xp.minimum(n - 1.0, carried / group.library.pat_bytes))
    rate = group.outermost.effective_bytes_per_s * group.library.network.of(kind) * group.network_share
    return {
        "pat": slowest.base_tree_s
        + hops * (group.outermost.latency_s * slowest.tree_network_hop + slowest.network_step_s)
        + carried / rate
    }


def _in_switch_options(size: Floats, group: TierGroup) -> dict[str, Floats]:
    inner, library = group.tiers[0], group.library
    link = (size * (1.0 + 1.0 / group.in_node) + library.protocols[-1].fill_bytes) / (
        inner.effective_bytes_per_s * library.in_switch_share
    )
    if group.n_node == 1:
        return {"in_switch": library.in_switch_base_s + link}
    _, network = _rails(2.0 * size, group)
    network = network / (library.network.of("all_reduce") * group.network_share)
    slowest = library.protocols[-1]
    hop_s = (
        group.outermost.latency_s * slowest.tree_network_hop
        + slowest.network_step_s
        + library.tree_step_share * network
    )
    net_hops = 2 * ceil(log2(group.n_node))
    return {"in_switch_tree": library.in_switch_base_s + net_hops * hop_s + group.xp.maximum(link, network)}

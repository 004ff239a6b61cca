"""Seconds of a collective by message size and scale: laws whose few parameters describe one fabric, and where cells stand.

Scale enters every law in the same way (`Places`): the latency grows with the ring hops inside a node and with the network hops
between nodes, the wire carries `bus` bytes per byte of message. What differs is the dependence on size `S`:

    alpha_beta     latency + wire(S)
    sigmoid        latency + wire(S) 10^(depth / (1 + (S / knee)^k)): bus bandwidth is a sigmoid of log S, as in three regions
    power          (latency^p + (wire(S) (knee / S)^g)^p)^(1/p) + wire(S): flat, a power of S, linear
    tuner          the fastest of three protocols, each latency + fill + wire(S) / share, as NCCL's tuner has it

All increase with S, and run in NumPy or, on traced parameters, in JAX. Source: Universal performance model (arXiv 2404.12674) for
three regions; NCCL `src/graph/tuning.cc` for protocols. Curves are held at knots along

    x = log2(bytes) - SLOPE log2(n_gpus),

since what changes with size (protocols, ring against tree) moves partly with the message and partly with its share per GPU.

Cells far off what their neighbours in size say count little. An outlier of a log is one size, such as 64 kB among 30, that lies
far from the line through its two neighbours and also from the lines that go on from the sizes below and above it. A knee or a
jump is none: there one side still agrees. With the smallest of the three distances,

    weight = (df + 1) / (df + (distance / scale)^2),

the weight that a Student-t law gives (Lange et al., Robust statistical modeling using the t distribution, JASA 84, 1989); `scale`
is the spread of cells, from the median distance of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prism_jax.core.arrays import Floats, namespace
from prism_jax.system.collectives import NCCL

Parameters = Mapping[str, Any]

REFERENCE_GPUS = 8  # scale trends are counted in doublings from here, the size of most nodes
SHARPNESS = 3  # p: how sharply the power law replaces the latency; neighbouring regions overlap over one octave
SOFT_MIN = 8.0  # exponent of the soft minimum over protocols; within 10% of the hard one where two protocols tie


class Prior(NamedTuple):
    """Normal prior of one unconstrained parameter: its population's median, how unsure that is, how fabrics differ."""

    median: float
    sd: float
    between: float


# Medians are NCCL's tuner constants and link rates of current GPUs; sd 0.7 is a factor of two, 1 a factor of three.
PRIORS = {
    "log_base_s": Prior(np.log(6.6e-6), 0.7, 0.5),  # start of a collective: 6.6 to 14 us in the tuner
    "log_hop_s": Prior(np.log(1.0e-6), 1.0, 0.7),  # in-node hop: 0.6 (LL) to 3.4 us (Simple)
    "log_net_hop_s": Prior(np.log(5.0e-6), 0.7, 0.5),  # network hop: 2.7 (LL) to 14 us (Simple)
    "logit_hop_share": Prior(-0.4, 1.0, 0.7),  # how much of the in-node hops remains across nodes: 0.4, hardly known
    "log_copy": Prior(-2.0, 1.0, 0.7),  # bytes moved whatever the group's size, over message: 0.14, from 0.02 to 1
    "log_bytes_per_s": Prior(np.log(200e9), 1.0, 0.7),  # in-node bus bandwidth: PCIe 20 GB/s to NVLink 5 700 GB/s
    "log_net_bytes_per_s": Prior(np.log(60e9), 1.0, 0.7),  # across nodes: 10 to 400 GB/s
}
KNEE = {
    "log_knee_bytes": Prior(np.log(2e6), 1.5, 0.7),  # where bandwidth begins to suffer: 0.1 to 40 MB
    "knee_per_doubling": Prior(0.3, 0.4, 0.2),  # the knee moves out with scale, at most in proportion (0.69)
    "knee_network": Prior(0.0, 1.0, 0.5),  # and by an unknown factor on the network
}
SHAPES: dict[str, dict[str, Prior]] = {
    "alpha_beta": {},
    "sigmoid": KNEE
    | {
        "log_depth": Prior(0.0, 0.7, 0.3),  # decades between bandwidth at the knee's foot and the peak: one
        "logit_steepness": Prior(0.5, 1.0, 0.5),  # share of the steepest monotone sigmoid
    },
    "power": KNEE | {"logit_power": Prior(0.3, 0.8, 0.5)},  # time grows like S^(1 - g): g near a half
    "tuner": KNEE | {"logit_ll_share": Prior(-1.1, 0.7, 0.3)},  # LL protocol: a quarter of the bandwidth
}
LAWS = tuple(SHAPES)
# Two nodes may be faster than a ring's bytes say (each link is used once): none on some fabrics, nearly double on others.
TWO_NODE_SCALE = 0.05


class Places(NamedTuple):
    """Groups and networks on which collectives run; arrays of one shape.

    Attributes:
        n_gpus, n_nodes: members, and nodes that they are spread over.
        hops, net_hops: sequential hops inside a node and between nodes.
        bus: bytes over a link per byte of message.
    """

    n_gpus: Any
    n_nodes: Any
    hops: Any
    net_hops: Any
    bus: Any


def place(op: ArrayLike, n_gpus: ArrayLike, n_nodes: ArrayLike) -> Places:
    """Hops and bus factor of `op` over `n_gpus` in `n_nodes`; all arrays of one shape."""
    n, nodes = np.asarray(n_gpus, dtype=np.float64), np.asarray(n_nodes, dtype=np.float64)
    op = np.asarray(op)
    per_node = np.maximum(n / nodes, 1.0)
    rounds = np.where(op == "all_reduce", 2.0, 1.0)
    tree = np.log2(np.maximum(nodes, 1.0))
    net_hops = np.where(op == "all_reduce", 2.0 * tree, np.where(op == "p2p", (nodes > 1) * 1.0, nodes - 1.0))
    whole = (op == "broadcast") | (op == "p2p")
    return Places(n, nodes, rounds * (per_node - 1.0), net_hops, np.where(whole, 1.0, rounds * (n - 1.0) / n))


class Reference(NamedTuple):
    """Place at which the law of each fabric is held, arrays [fabric].

    Attributes:
        hops, net_hops: of its smallest measured group, where the latency is held.
        bus, net_bus: of its largest measured groups in a node and across nodes, where the bandwidths are held.
    """

    hops: Any
    net_hops: Any
    bus: Any
    net_bus: Any


def from_reference(held: Parameters, at: Reference) -> dict[str, Any]:
    """The law's parameters, of values that measurements fix one by one.

    What is held under the names of the parameters: for `log_base_s` the log latency at the reference; for the hops their log
    ratio to the base; for the bandwidths the log bytes of message per second there. Latency and bandwidth are what a log says;
    how they divide into base and hops, bus and copy, groups of one size do not tell. Each step adds to one value a function of
    the others, so that volumes, and with them densities, stay the same.
    """
    xp = namespace(held, at)
    kept = xp.where(at.net_hops > 0, _sigmoid(held["logit_hop_share"]), 1.0)
    parts = xp.exp(held["log_hop_s"]) * at.hops * kept + xp.exp(held["log_net_hop_s"]) * at.net_hops
    base, copy = held["log_base_s"] - xp.log1p(parts), xp.exp(held["log_copy"])
    return {
        **held,
        "log_base_s": base,
        "log_hop_s": base + held["log_hop_s"],
        "log_net_hop_s": base + held["log_net_hop_s"],
        "log_bytes_per_s": held["log_bytes_per_s"] + xp.log(at.bus + copy),
        "log_net_bytes_per_s": held["log_net_bytes_per_s"] + xp.log(at.net_bus + copy),
    }


def to_reference(p: Parameters, at: Reference) -> dict[str, Any]:
    """The inverse of `from_reference`."""
    xp = namespace(p, at)
    kept = xp.where(at.net_hops > 0, _sigmoid(p["logit_hop_share"]), 1.0)
    hop, net_hop = p["log_hop_s"] - p["log_base_s"], p["log_net_hop_s"] - p["log_base_s"]
    parts, copy = xp.exp(hop) * at.hops * kept + xp.exp(net_hop) * at.net_hops, xp.exp(p["log_copy"])
    return {
        **p,
        "log_base_s": p["log_base_s"] + xp.log1p(parts),
        "log_hop_s": hop,
        "log_net_hop_s": net_hop,
        "log_bytes_per_s": p["log_bytes_per_s"] - xp.log(at.bus + copy),
        "log_net_bytes_per_s": p["log_net_bytes_per_s"] - xp.log(at.net_bus + copy),
    }


def priors(law: str) -> dict[str, Prior]:
    """Priors of all parameters of `law`, by site name."""
    return PRIORS | SHAPES[law]


def log_seconds(law: str, p: Parameters, where: Places, n_bytes: Any) -> Any:
    """Log seconds of `law`; parameters, place and bytes broadcast against each other."""
    return namespace(p, where).log(_LAWS[law](p, where, n_bytes))


def latency_s(p: Parameters, where: Places) -> Any:
    """Seconds of an empty message."""
    xp = namespace(p, where)
    network = where.n_nodes > 1
    share = xp.where(network, _sigmoid(p["logit_hop_share"]), 1.0)
    inside = xp.exp(p["log_hop_s"]) * where.hops * share
    return xp.exp(p["log_base_s"]) + inside + xp.exp(p["log_net_hop_s"]) * where.net_hops


def wire_s_per_byte(p: Parameters, where: Places) -> Any:
    """Seconds per byte of a very long message."""
    xp = namespace(p, where)
    faster = xp.where(where.n_nodes == 2, p["two_node"], 0.0)
    rate = xp.where(where.n_nodes > 1, p["log_net_bytes_per_s"] + faster, p["log_bytes_per_s"])
    return (where.bus + xp.exp(p["log_copy"])) * xp.exp(-rate)


def _alpha_beta(p: Parameters, where: Places, n_bytes: Any) -> Any:
    return latency_s(p, where) + wire_s_per_byte(p, where) * n_bytes


def _sigmoid_law(p: Parameters, where: Places, n_bytes: Any) -> Any:
    xp = namespace(p, where)
    depth = xp.exp(p["log_depth"]) * xp.log(10.0)
    steepness = 4.0 / depth * _sigmoid(p["logit_steepness"])  # 4/depth: there the wire's time stops growing with S
    octaves = xp.log(n_bytes) - _log_knee(p, where)
    return latency_s(p, where) + wire_s_per_byte(p, where) * n_bytes * xp.exp(depth * _sigmoid(-steepness * octaves))


def _power(p: Parameters, where: Places, n_bytes: Any) -> Any:
    xp = namespace(p, where)
    wire = wire_s_per_byte(p, where) * n_bytes
    middle = wire * xp.exp(_sigmoid(p["logit_power"]) * (_log_knee(p, where) - xp.log(n_bytes)))
    head = xp.exp(xp.log(latency_s(p, where) ** SHARPNESS + middle**SHARPNESS) / SHARPNESS)
    return head + wire


def _tuner(p: Parameters, where: Places, n_bytes: Any) -> Any:
    """Soft minimum over protocols; hop and base of each keep NCCL's ratios, `log_base_s` and hops are those of LL."""
    xp = namespace(p, where)
    first = NCCL.protocols[0]
    wire_per_byte = wire_s_per_byte(p, where)
    fill_s = wire_per_byte * xp.exp(_log_knee(p, where))
    total = 0.0
    for protocol in NCCL.protocols:
        base = xp.exp(p["log_base_s"]) * (protocol.base_ring_s / first.base_ring_s)
        hops = latency_s(p, where) - xp.exp(p["log_base_s"])
        ratio = xp.where(
            where.n_nodes > 1, protocol.network_hop / first.network_hop, protocol.scale_up_hop / first.scale_up_hop
        )
        share = _sigmoid(p["logit_ll_share"]) if protocol is first else protocol.bandwidth
        fill = protocol.fill_bytes / NCCL.protocols[-1].fill_bytes * fill_s
        total += (base + hops * ratio + fill + wire_per_byte * n_bytes / share) ** -SOFT_MIN
    return total ** (-1.0 / SOFT_MIN)


def _log_knee(p: Parameters, where: Places) -> Any:
    xp = namespace(p, where)
    doublings = xp.log2(where.n_gpus / REFERENCE_GPUS)
    return (
        p["log_knee_bytes"] + p["knee_per_doubling"] * doublings + xp.where(where.n_nodes > 1, p["knee_network"], 0.0)
    )


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + namespace(x).exp(-x))


_LAWS = {"alpha_beta": _alpha_beta, "sigmoid": _sigmoid_law, "power": _power, "tuner": _tuner}


Ints = NDArray[np.int64]

SLOPE = 0.5  # between features at fixed bytes (0) and at fixed bytes per GPU (1); A100 and GH200 tables do not tell them apart
SPACING = 1.0  # octaves between knots: nccl-tests doubles sizes
BEYOND = 2.0  # octaves of knots beyond the measured sizes, where curves go back to their law
# Octaves over which residuals are alike. Fixed: of reach and size of a residual, curves tell little but their ratio, and a long
# reach makes intervals far too wide. Protocols and algorithms change within an octave or two.
REACH = 2.0
COARSE = 4.0  # octaves between the nodes of what a log tells little of: deviations of settings, restlessness by size
NUGGET = 1e-6  # keeps the factorisation of the knots' correlation stable
ALIKE = 0.1  # doublings between two places with as many GPUs, which still differ


def axis(n_bytes: ArrayLike, n_gpus: ArrayLike) -> Floats:
    """Returns the positions of messages along the knots."""
    return np.log2(np.asarray(n_bytes, float)) - SLOPE * np.log2(np.asarray(n_gpus, float))


def steps(
    from_gpus: ArrayLike, from_nodes: ArrayLike, to_gpus: ArrayLike, to_nodes: ArrayLike
) -> tuple[Floats, Floats]:
    """Doublings from one place to another, and whether (0 or 1) one is in a node and the other across nodes."""
    doubled = np.abs(np.log2(np.asarray(to_gpus, np.float64)) - np.log2(np.asarray(from_gpus, np.float64)))
    across = (np.asarray(from_nodes) > 1) != (np.asarray(to_nodes) > 1)
    return np.maximum(doubled, ALIKE), across.astype(np.float64)


def correlate(knots: Floats) -> Floats:
    """Cholesky factor of the knots' correlation (Matern 3/2)."""
    apart = np.sqrt(3.0) * np.abs(knots[:, None] - knots[None]) / REACH
    correlation = (1.0 + apart) * np.exp(-apart) + NUGGET * np.eye(len(knots))
    return np.asarray(np.linalg.cholesky(correlation), np.float64)


def coarse(knots: Floats) -> Floats:
    """Values at the knots of lines between nodes `COARSE` octaves apart, [knot, node]."""
    node = np.linspace(knots[0], knots[-1], max(2, round((knots[-1] - knots[0]) / COARSE) + 1))
    return np.stack([np.interp(knots, node, one) for one in np.eye(len(node))], axis=1)


def between_knots(knots: Floats, x: Floats) -> tuple[Ints, Floats]:
    """The knot below each of `x`, and the share of the next one; positions outside are moved to the ends."""
    inside = np.clip(x, knots[0], knots[-1])
    below = np.clip(np.floor((inside - knots[0]) / SPACING).astype(np.int64), 0, len(knots) - 2)
    return below, (inside - knots[below]) / SPACING


def doublings(n_gpus: ArrayLike) -> Floats:
    """Doublings of scale above the reference, the measure in which noise grows."""
    return np.log2(np.asarray(n_gpus, float) / REFERENCE_GPUS)


DF = 4.0
FEWEST = 4  # sizes, for a cell to have neighbours on either side
SPREAD_OF_MEDIAN = 1.75  # spread of normal cells on a line over the median of their distances
SMALLEST_SPREAD = 1e-3  # of log seconds: nccl-tests prints two to four digits


def trusts(curve: Ints, config: Ints, n_bytes: Floats, log_s: Floats) -> Floats:
    """Weight of every cell [cell], from its neighbours on its curve in its configuration."""
    apart = np.zeros(len(log_s))
    for one in np.unique(np.stack([curve, config], axis=1), axis=0):
        here = np.flatnonzero((curve == one[0]) & (config == one[1]))
        here = here[np.argsort(n_bytes[here])]
        apart[here] = _apart(np.log(n_bytes[here]), log_s[here])
    spread = max(SPREAD_OF_MEDIAN * float(np.median(apart)), SMALLEST_SPREAD)
    return (DF + 1.0) / (DF + (apart / spread) ** 2)


def _apart(x: Floats, y: Floats) -> Floats:
    """Distance of each value from the nearest of three lines through two neighbours; zero where there are too few."""
    if len(x) < FEWEST:
        return np.zeros(len(x))
    number = np.arange(len(x))
    found = np.full(len(x), np.inf)
    for one, other in ((-1, 1), (-2, -1), (1, 2)):
        a, b = number + one, number + other
        known = (a >= 0) & (b < len(x))
        a, b, at = a[known], b[known], number[known]
        line = y[a] + (y[b] - y[a]) * (x[at] - x[a]) / (x[b] - x[a])
        found[known] = np.minimum(found[known], np.abs(y[at] - line))
    return found

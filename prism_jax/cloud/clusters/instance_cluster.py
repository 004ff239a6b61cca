"""A number of equal instances as a cluster: the fabric inside an instance, and the network between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ...errors import SpecError
from ...system import catalog
from ...system.hardware import Cluster, Tier
from ..offers import Offer

FAST_BYTES_PER_S = 100e9 / 8.0  # from here on networks of vendors bypass the kernel: EFA, GPUDirect-TCPX, InfiniBand
FAST_LATENCY_S = 20e-6  # EFA: aws-ofi-nccl tuner, NET_LATENCY
SLOW_LATENCY_S = 50e-6  # TCP between machines of a zone: half of a round trip of about 100 us
UNKNOWN_DEVICE = "no preset device has its GPU"
UNKNOWN_DESIGN = "no design of a machine with its GPU is known"
UNKNOWN_NETWORK = "its network is not stated, so that no two of them can be joined"


class Shape(NamedTuple):
    """What the time of a step depends on: offers of one shape differ in place and price alone."""

    device: str
    gpus: int
    network_bytes_per_s: float | None


@dataclass(frozen=True)
class UnusableError(Exception):
    """Why offers of a shape cannot run a job; a reason to be counted, not an error."""

    reason: str


def shape_of(offer: Offer) -> Shape:
    """The shape of an offer."""
    return Shape(offer.device, offer.gpus, offer.network_bytes_per_s)


def cluster_of(shape: Shape, n_instances: int) -> Cluster:
    """`n_instances` of a shape.

    Notes: the fabric inside is that of the device's reference design, cut to the GPUs of the instance.

    Raises:
        UnusableError: the device, its machine or its network is not known.
    """
    if not shape.device:
        raise UnusableError(UNKNOWN_DEVICE)
    n_devices = n_instances * shape.gpus
    try:
        design = catalog.default_cluster(shape.device, n_devices)
    except SpecError:
        raise UnusableError(UNKNOWN_DESIGN) from None
    if design.network is not None:
        raise UnusableError(UNKNOWN_DESIGN)
    if n_instances > 1 and shape.network_bytes_per_s is None:
        raise UnusableError(UNKNOWN_NETWORK)
    tiers = (*_inside(design, shape.gpus), *_between(shape, n_devices if n_instances > 1 else 0))
    tiers = tiers or (replace(design.tiers[0], n_devices=1),)
    name = f"{n_instances} x {shape.gpus} x {shape.device}"
    return Cluster(
        name, design.device, tiers, n_devices, shape.gpus, "catalogue of instances; fabric: " + design.source
    )


def joins_stages(shape: Shape) -> bool:
    """Whether pipeline stages may lie on different instances: the network bypasses the kernel."""
    return (shape.network_bytes_per_s or 0.0) >= FAST_BYTES_PER_S


def _inside(design: Cluster, gpus: int) -> tuple[Tier, ...]:
    """GPUs of one instance; a machine larger than the design has its innermost tier all the same."""
    return (replace(design.tiers[0], n_devices=gpus),) if gpus > 1 else ()


def _between(shape: Shape, n_devices: int) -> tuple[Tier, ...]:
    if not n_devices or shape.network_bytes_per_s is None:
        return ()
    latency_s = FAST_LATENCY_S if joins_stages(shape) else SLOW_LATENCY_S
    each = shape.network_bytes_per_s / shape.gpus
    return (Tier("network", n_devices, each, latency_s, source="catalogue: nominal rate of an instance"),)

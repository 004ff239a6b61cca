"""Devices, link tiers and clusters, as plain numbers in SI units.

A cluster is a homogeneous set of devices under a stack of tiers, innermost first. A tier is described by how many
devices one of its domains spans and by what one device can send into it.

Rates, sizes in bytes, latencies and powers may be JAX arrays or tracers: costs can then be differentiated in them (`_arrays`).
Checks of values leave those out. Counts and names are always plain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .._arrays import is_traced
from .._content import ByContent
from ..errors import Problem, SpecError


def _positive(owner: str, **values: float) -> None:
    for name, value in values.items():
        if not is_traced(value) and not 0 < value < float("inf"):
            raise SpecError.of(Problem(name, f"{value}, but it must be finite and greater than 0"), owner)


@dataclass(frozen=True, eq=False)
class Device(ByContent):
    """One accelerator: dense peak rates per dtype, memory, power."""

    name: str
    peak_flops_per_s: Mapping[str, float]  # dtype -> dense peak, keys among fp32 tf32 fp16 bf16 fp8 fp4
    hbm_bytes: float
    hbm_bytes_per_s: float
    power_watts: float
    n_sm: int  # streaming multiprocessors or compute units; sets the wave size of a GEMM
    source: str
    generation: str = ""  # key of the efficiency table in cost/presets: volta, ampere, hopper, blackwell, cdna3

    def __post_init__(self) -> None:
        owner = f"device {self.name}"
        if not self.peak_flops_per_s:
            text = "is empty. Give the dense peak of at least one dtype, such as bf16."
            raise SpecError(f"{owner}: peak_flops_per_s {text}", ("peak_flops_per_s",), text)
        for dtype, peak in self.peak_flops_per_s.items():
            if not is_traced(peak) and not 0 < peak < float("inf"):
                text = f"{peak}, but it must be finite and greater than 0"
                raise SpecError(f"{owner}: peak of {dtype} = {text}", ("peak_flops_per_s", dtype), text)
        _positive(owner, hbm_bytes=self.hbm_bytes, hbm_bytes_per_s=self.hbm_bytes_per_s)
        _positive(owner, power_watts=self.power_watts, n_sm=self.n_sm)

    def peak(self, dtype: str) -> float:
        """Dense peak FLOP/s for `dtype`.

        Raises:
            SpecError: the device has no such dtype.
        """
        if dtype not in self.peak_flops_per_s:
            known = ", ".join(sorted(self.peak_flops_per_s))
            raise SpecError(f"device {self.name} has no {dtype} peak; it has {known}")
        return self.peak_flops_per_s[dtype]

    def product_dtype(self, dtype: str) -> str:
        """What matrix products of a plan in `dtype` run in: fp32 as TF32 where there is one, everything else as it says."""
        return "tf32" if dtype == "fp32" and "tf32" in self.peak_flops_per_s else dtype


@dataclass(frozen=True)
class Tier:
    """One level of the network: what a device sees when it talks to a peer inside the same domain of this tier."""

    name: str  # nvlink, node, rail, leaf, spine, ...
    n_devices: int  # devices in one domain of this tier
    bytes_per_s: float  # per device and direction, after encoding, before protocol efficiency
    latency_s: float  # one hop
    oversubscription: float = 1.0  # >= 1; divides the bandwidth when all devices use the tier at once
    in_switch: bool = False  # reductions in the switch (NVLS, SHARP)
    source: str = ""

    def __post_init__(self) -> None:
        owner = f"tier {self.name}"
        _positive(owner, n_devices=self.n_devices, bytes_per_s=self.bytes_per_s)
        if not is_traced(self.latency_s) and not 0 <= self.latency_s < float("inf"):
            text = f"{self.latency_s}, but it must be finite and not negative"
            raise SpecError.of(Problem("latency_s", text), owner)
        if not is_traced(self.oversubscription) and self.oversubscription < 1:
            text = f"{self.oversubscription}, but it divides the bandwidth. Use 1.0 (none) or more."
            raise SpecError.of(Problem("oversubscription", text), owner)

    @property
    def effective_bytes_per_s(self) -> float:
        """Bandwidth per device and direction when all devices send through an oversubscribed tier, bytes/s."""
        return self.bytes_per_s / self.oversubscription


@dataclass(frozen=True, eq=False)
class Cluster(ByContent):
    """`n_devices` equal devices under `tiers`, innermost first; the last tier spans them all."""

    name: str
    device: Device
    tiers: tuple[Tier, ...]
    n_devices: int
    node_size: int = 8  # devices that share a host: the unit of the persistent node effect
    source: str = ""
    notes: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        _positive(f"cluster {self.name}", n_devices=self.n_devices, node_size=self.node_size)
        if not self.tiers:
            raise SpecError(f"cluster {self.name}: at least one tier is needed")
        sizes = [tier.n_devices for tier in self.tiers]
        if sizes != sorted(sizes):
            raise SpecError(f"cluster {self.name}: tiers must grow from the inside out, got spans {sizes}")
        if sizes[-1] < self.n_devices:
            raise SpecError(
                f"cluster {self.name}: the outermost tier spans {sizes[-1]} devices, fewer than n_devices {self.n_devices}"
            )

    def of_size(self, n_devices: int) -> Cluster:
        """The same cluster with another number of devices; its outermost tier spans them, if need be by growing."""
        *inner, outer = self.tiers
        outer = replace(outer, n_devices=max(outer.n_devices, n_devices))
        return replace(self, n_devices=n_devices, tiers=(*inner, outer))

"""Tier: one level of a network of nested domains."""

from __future__ import annotations

from dataclasses import dataclass

from ..._core.arrays import is_traced
from ...bounds import MOST_DEVICES, check_bounds
from ...errors import Problem, SpecError
from ..positive import check_positive


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
        check_positive(owner, n_devices=self.n_devices, bytes_per_s=self.bytes_per_s)
        check_bounds(SpecError, owner, MOST_DEVICES, n_devices=self.n_devices)
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

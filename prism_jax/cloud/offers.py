"""Offer: one kind of instance in one zone, and what an hour of it cost on a date."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import NamedTuple


class Identity(NamedTuple):
    """What tells offers apart: rows that agree in it are about the same thing.

    Attributes:
        unnamed_usd_per_h: the on-demand price where the instance has no name: vendors list such machines by price alone.
    """

    cloud: str
    instance: str
    gpu: str
    gpus: int
    vcpus: int | None
    ram_bytes: float | None
    region: str
    zone: str
    unnamed_usd_per_h: float | None


@dataclass(frozen=True)
class Offer:
    """One row of a catalogue.

    Attributes:
        cloud, instance: of the vendor, and its name for the machine; the name may be empty.
        gpu, gpus: as the row names the GPU, and how many an instance has.
        region, zone: empty where the price is that of all regions or zones.
        on_demand_usd_per_h, spot_usd_per_h: of one instance; None: not offered.
        network_bytes_per_s: of one instance to others, nominal; None: not stated.
        vcpus, ram_bytes: of one instance; None: not stated.
        day: on which the prices were those, the earliest that the row leaves open; None: not stated.
        source: of the prices.
        device: name of the preset device that `gpu` means; empty: none does.
        place: file and line, for messages.
    """

    cloud: str
    instance: str
    gpu: str
    gpus: int
    region: str = ""
    zone: str = ""
    on_demand_usd_per_h: float | None = None
    spot_usd_per_h: float | None = None
    network_bytes_per_s: float | None = None
    vcpus: int | None = None
    ram_bytes: float | None = None
    day: date | None = None
    source: str = ""
    device: str = ""
    place: str = ""

    @property
    def identity(self) -> Identity:
        """What a row of the user's own replaces."""
        price = None if self.instance else self.on_demand_usd_per_h
        size = (self.gpus, self.vcpus, self.ram_bytes)
        return Identity(self.cloud, self.instance, self.gpu, *size, self.region, self.zone, price)

    @property
    def title(self) -> str:
        """The machine in a report: "p5.48xlarge", or "8 x A100 (cudo compute)"."""
        return self.instance or f"{self.gpus} x {self.gpu} ({self.cloud})"

    @property
    def where(self) -> str:
        """Zone, or region, or cloud: the narrowest that is stated."""
        return self.zone or self.region or self.cloud

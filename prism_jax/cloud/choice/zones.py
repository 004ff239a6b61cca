"""Jobs that run in any of several zones of a region: the two, three and four cheapest that offer the same machine on spot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..availability.base import Availability
from ..availability.several_zones import SeveralZones
from ..offers import Identity, Offer
from ..policies.base import Policy

MOST_ZONES = (
    4  # by the law that ships nodes are there .68 of the time in one zone, .81 in two, .85 in three, .87 in six
)


@dataclass(frozen=True)
class Zones:
    """Several zones as one offer and one law.

    Attributes:
        offers: one per zone, the cheapest on spot first: where the job goes if it has to move.
        laws: of spot capacity, one per zone.
    """

    offers: tuple[Offer, ...]
    laws: tuple[Availability, ...]

    @property
    def spot_usd_per_h(self) -> tuple[float, ...]:
        """Of an instance in every zone."""
        return tuple(offer.spot_usd_per_h or 0.0 for offer in self.offers)

    @property
    def on_demand_usd_per_h(self) -> float | None:
        """Of an instance in the dearest zone; None: one has none."""
        prices = [offer.on_demand_usd_per_h for offer in self.offers]
        return None if None in prices else max(price for price in prices if price is not None)

    @property
    def offer(self) -> Offer:
        """At the spot price of the cheapest zone, over which `law` has those of the others."""
        days = [offer.day for offer in self.offers if offer.day is not None]
        where = f"{len(self.offers)} zones of {self.offers[0].region}"
        price = self.on_demand_usd_per_h
        return replace(self.offers[0], zone=where, on_demand_usd_per_h=price, day=min(days, default=None))

    @property
    def law(self) -> SeveralZones:
        """Of the zones together, with their spot prices over that of the first."""
        first, *_ = prices = self.spot_usd_per_h
        return SeveralZones(self.laws, factors=tuple(price / first for price in prices))


def several_zones(laws: Mapping[Offer, Availability], policy: Policy) -> list[Zones]:
    """All that can be the cheapest of those with the same laws; from the laws of offers that have the prices of a policy.

    Notes: the offers are of one shape, so that of two with the same laws the one whose prices are all higher costs more in every
        world.
    """
    by_law: dict[tuple[Availability, ...], list[Zones]] = defaultdict(list)
    for zones in _cheapest_together(laws):
        by_law[zones.laws].append(zones)
    return [zones for own in by_law.values() for zones in _undominated(own, policy.needs_on_demand)]


def _cheapest_together(laws: Mapping[Offer, Availability]) -> Iterator[Zones]:
    by_region: dict[Identity, list[Offer]] = defaultdict(list)
    for offer in laws:
        if offer.region and offer.zone:
            by_region[offer.identity._replace(zone="")].append(offer)
    for offers in by_region.values():
        ordered = sorted(offers, key=lambda offer: (offer.spot_usd_per_h or 0.0, offer.zone))
        for n in range(2, min(len(ordered), MOST_ZONES) + 1):
            yield Zones(tuple(ordered[:n]), tuple(laws[offer] for offer in ordered[:n]))


def _undominated(zones: Sequence[Zones], with_on_demand: bool) -> list[Zones]:
    """Of those with equal prices the first."""
    kept: dict[tuple[float, ...], Zones] = {}
    for one in sorted(zones, key=lambda own: (own.spot_usd_per_h, own.on_demand_usd_per_h or 0.0)):
        prices = one.spot_usd_per_h + ((one.on_demand_usd_per_h or 0.0,) if with_on_demand else ())
        if not any(all(a <= b for a, b in zip(other, prices, strict=True)) for other in kept):
            kept[prices] = one
    return list(kept.values())

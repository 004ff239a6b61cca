"""Spot capacity of offers: a law by name, or what a fit of revocations says of their zones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ..._core.archive import kind_of
from ..._inference_loader import inference
from ...cloud.availability import AVAILABILITY, Availability
from ...cloud.offers import Offer
from ...errors import FitError
from ..horizon.run import FIT


def law_of_offers(
    availability: str | Availability, offers: Sequence[Offer]
) -> tuple[Callable[[Offer], Availability], str]:
    """The law of every offer, and a line that says where it comes from.

    Args:
        availability: a law, a name of `AVAILABILITY`, or a fit of revocations: zones that it has seen have their own law, the
            others that of a zone that nobody has seen.

    Raises:
        FailedFitError, FitError, SpecError: no such law, or a fit that failed or is of something else.
    """
    if not isinstance(availability, str):
        return (lambda _: availability), f"{availability.name}, {availability.source}"
    if kind_of(availability) != FIT:
        law = AVAILABILITY.named(availability)
        return (lambda _: law), f"{law.name}, {law.source}"
    fit = inference().Fit.load(availability)
    unseen: Availability = fit.spot_market()
    zones = sorted({offer.zone for offer in offers if offer.zone})
    seen = _markets(fit, zones)
    return (lambda offer: seen.get(offer.zone, unseen)), f"{unseen.source}; {_told(zones, list(seen))}"


def _markets(fit: Any, zones: Sequence[str]) -> dict[str, Availability]:
    """The laws of those zones of which a fit has one."""
    found: dict[str, Availability] = {}
    for zone in zones:
        with suppress(FitError):
            found[zone] = fit.spot_market(zone)
    return found


def _told(zones: Sequence[str], seen: Sequence[str]) -> str:
    """Which zones of a catalogue have a law of their own.

    Notes: AWS has ids of zones ("use1-az1") that are the same for all, and names ("us-east-1a") that stand for another zone in
        every account: nobody but the account can tell one from the other.
    """
    if seen:
        return f"{len(seen)} of {len(zones)} zones of the catalogue are among them: {', '.join(seen)}"
    return (
        "none of them is a zone of the catalogue, so that all are like one that was not seen: name the zones of traces as the "
        "catalogue does (AWS: by ids such as use1-az1, since names such as us-east-1a are each account's own)"
    )

"""Spot capacity of offers: a law by name, or what a fit of revocations says of their zones."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from ..._core.archive import kind_of
from ..._inference_loader import inference
from ...cloud.availability import AVAILABILITY, Availability
from ...cloud.offers import Offer
from ...errors import FitError
from ..horizon.run import FIT


def law_of_offers(availability: str | Availability) -> tuple[Callable[[Offer], Availability], str]:
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
    unseen = fit.spot_market()

    @cache
    def of_zone(zone: str) -> Availability:
        try:
            return fit.spot_market(zone)
        except FitError:
            return unseen

    return (lambda offer: of_zone(offer.zone) if offer.zone else unseen), f"{unseen.name}, {unseen.source}"

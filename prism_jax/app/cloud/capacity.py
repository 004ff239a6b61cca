"""Spot capacity of an offer: a law by name, an object, or a fit of `prism-jax fit revocation`, which knows zones by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ..._inference_loader import inference
from ...cloud.availability import AVAILABILITY, Availability
from ...cloud.offers import Offer

ENDING = ".npz"
LawOf = Callable[[Offer], Availability]


def capacity(source: str | Path | Availability, *, force: bool = False) -> tuple[Availability, LawOf]:
    """What is said of any zone, and of the zone of an offer.

    Args:
        source: a law, its name, or the file of a fit: offers in a zone of the fit have its capacity, others that of a zone
            that was not seen.
        force: use a fit even where its verdict is failed.

    Raises:
        SpecError: no law has that name.
        DataError, FitError: the file holds no fit of revocations, or one whose verdict is failed.
    """
    if not isinstance(source, str | Path):
        return source, lambda _: source
    if not str(source).endswith(ENDING):
        law = AVAILABILITY.named(str(source))
        return law, lambda _: law
    fit: Any = inference().Fit.load(str(source))
    unseen = fit.spot_market(force=force)
    known = set(getattr(fit.data, "zones", ()))

    @cache
    def of_zone(zone: str) -> Availability:
        return fit.spot_market(zone, force=force)

    return unseen, lambda offer: of_zone(offer.zone) if offer.zone in known else unseen

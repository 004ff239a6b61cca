"""Names and shapes of the draws: of one population, and of all of them side by side."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .laws import FAMILIES, SHAPES_OF

QUANTITIES = ("up", "down")
LOSSES = "losses"
OF_EXPONENTIAL = {
    "location": "exponential_location", "slope": "exponential_slope", "between_sd": "exponential_sd"
}  # fmt: skip
OF_FAMILY = ("location", "slope", "between_sd", "log_spread", "spread_sd")


def name_of(family: str, quantity: str) -> str:
    """Name of a population: "weibull up"."""
    return f"{family} {quantity}"


def joined(found: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Sites [chain, draw, (family,) quantity, ...] of draws [chain, draw, ...] by population; the exponential family apart."""

    def of(family: str, site: str) -> np.ndarray:
        return np.stack([found[name_of(family, quantity)][site] for quantity in QUANTITIES], axis=2)

    out = {site: np.stack([of(family, site) for family in SHAPES_OF], axis=2) for site in OF_FAMILY}
    out |= {name: of(FAMILIES[0], site) for site, name in OF_EXPONENTIAL.items()}
    return out | {"shape_share": of("mixture", "shape_share")} | dict(found[LOSSES])


def of_population(draws: Mapping[str, np.ndarray], family: str, quantity: int) -> dict[str, np.ndarray]:
    """The sites [draw, ...] of one population, of draws [draw, (family,) quantity, ...] of all."""
    if family not in SHAPES_OF:
        return {site: np.asarray(draws[name])[:, quantity] for site, name in OF_EXPONENTIAL.items()}
    number = tuple(SHAPES_OF).index(family)
    found = {name: np.asarray(draws[name])[:, number, quantity] for name in OF_FAMILY}
    if len(SHAPES_OF[family]) > 1:
        found["shape_share"] = np.asarray(draws["shape_share"])[:, quantity]
    return found

"""Model of how long spot nodes stay and are gone, by group with a hierarchy over zones, so that an unseen zone is predicted.

Four families of spells are fitted side by side, each with a population of its own: exponential, Weibull, log-normal and a
mixture of two log-normals. No population has a parameter of another, so that each is fitted by itself, in three to eight
dimensions. Weighted draws around the mode take a third of the time of chains and are as good for many zones (Pareto shape below
.7); for three they are refused. Parameters of a group are summed out over grids of its likelihood; means move with the number
of nodes and with whether nodes were kept or only probed for, as the two are not the same thing.

Which family predicts best is chosen from the draws, for spells of availability and for the gaps between them, by zones that were
left out, by importance sampling from draws that saw them,

    p(zone | others) = 1 / E[1 / p(zone | population)] over draws of the posterior (Gelfand, Dey, Chang 1992);

the groups of one zone are left out together. The density of a zone is that of its whole record, its own parameters unknown: by
the chain rule, of every spell given those before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from jax import Array
from numpyro.handlers import scope

from prism_jax.cloud.availability import FittedSpells
from prism_jax.cloud.spot import EULER
from prism_jax.core.errors import DataError, FitError
from prism_jax.core.registry import did_you_mean

from ..data.checks import groups_of
from ..engine.model import Draws, GroupScore, Model, interval
from ..engine.program import ModelPart
from .durations import DrawnLaws, chosen, drawn, some_of
from .revocation_data import CLASSES, COLUMNS, FAMILIES, QUANTITIES, SHAPES_OF, TRAITS, RevocationData, from_frame
from .revocation_populations import (
    LOSSES,
    OF_EXPONENTIAL,
    OF_FAMILY,
    name_of,
    of_population,
    of_spells,
    populations,
    seen,
)


class FamilyChoice(NamedTuple):
    """Families by quantity, and what they were chosen by.

    Attributes:
        family: numbers in `FAMILIES`, [quantity].
        log_density: sum over zones left out one by one, nats, [family, quantity].
        best_in: in how many zones each is the best, [family, quantity].
    """

    family: np.ndarray
    log_density: np.ndarray
    best_in: np.ndarray


def by_draw(data: RevocationData, draws: Draws) -> np.ndarray:
    """Log probabilities of the spells at some of the draws, [draw, family, quantity, group]."""
    some = some_of(draws, len(draws["concentration"]))
    parts = [
        [_log_prob(data, some, family, quantity) for quantity in range(len(QUANTITIES))] for family in FAMILIES
    ]  # [family][quantity] of [draw, group]
    return np.moveaxis(np.array(parts), 2, 0)


def _log_prob(data: RevocationData, draws: Draws, family: str, quantity: int) -> np.ndarray:
    """Log probabilities of the spells under one population, [draw, group]."""
    there = seen(data, family, quantity)
    arrays = there.trait, there.theta, there.log_weight
    with jax.enable_x64(True):
        return np.asarray(_by_draw(arrays, of_population(draws, family, quantity)))


@jax.jit
def _by_draw(arrays: Any, draws: Any) -> Any:
    trait, theta, log_weight = arrays
    return jax.lax.map(lambda site: of_spells(trait, theta, log_weight, site), draws)


def chosen_families(data: RevocationData, draws: Draws) -> FamilyChoice:
    """The family of each quantity with the highest log density of zones that were left out."""
    spells = by_draw(data, draws)
    names = np.array(data.zones)
    zones = np.unique(names)
    by_zone = np.stack([spells[..., names == zone].sum(axis=-1) for zone in zones], axis=-1)
    left_out = np.log(len(by_zone)) - np.logaddexp.reduce(-by_zone, axis=0)  # [family, quantity, zone]
    best = left_out.argmax(axis=0)
    counted = np.stack([(best == number).sum(axis=-1) for number in range(len(FAMILIES))])
    total = left_out.sum(axis=-1)
    return FamilyChoice(total.argmax(axis=0).reshape(len(QUANTITIES)), total, counted)


NODES, KEPT = TRAITS.index("log_nodes"), TRAITS.index("kept")
FEWEST_SPELLS = 20  # and gaps of a group that an unseen one may be like
FEWEST_ZONES = 4  # of such groups


def title(data: RevocationData, at: int) -> str:
    """A group by name: "us-east-1a V100 x16 preemption"."""
    parts = [data.zones[at], data.gpus[at], f"x{data.n_node[at]:g}" if data.n_node[at] > 1 else "", data.kinds[at]]
    return " ".join(part for part in parts if part)


def trait_of(data: RevocationData, at: int | None) -> np.ndarray:
    """Traits of a group [trait]; of an unseen one those of the group in the middle."""
    return np.median(data.trait, axis=0) if at is None else data.trait[at]


def of_group(
    data: RevocationData, draws: Draws, record: RevocationData, at: int | None, found: FamilyChoice
) -> FittedSpells:
    """Capacity of group `at` of `record`, of which nothing need have been fitted; None: of a group that was not seen.

    Notes:
        What was not seen is like one of the zones that were, each as likely: of few zones that differ tenfold, a normal
        population would let nodes stay far longer than they do anywhere. With fewer than `FEWEST_ZONES` it is drawn from the
        population.
    """
    rng = np.random.default_rng(0)
    trait = trait_of(record, at)
    alike = _alike(data, trait) if at is None else []
    if alike:
        both, slope, n_fitted = (
            _like_one(data, draws, found, alike, rng),
            np.zeros((2, len(draws["concentration"]))),
            1.0,
        )
    else:
        families = [int(family) for family in found.family]
        both = [spells(record, draws, q, family, at, trait, rng) for q, family in enumerate(families)]
        slopes = np.stack([_slope(draws, q, family) for q, family in enumerate(families)])
        slope, n_fitted = slopes[..., NODES], float(np.exp(trait[NODES]))
    where = "a zone that was not seen" if at is None else title(record, at)
    return FittedSpells(
        name=where,
        source=f"fit of revocations in {len(set(data.zones))} zones",
        law=np.stack([one.law for one in both]),
        theta=np.stack([one.theta for one in both]),
        node_slope=slope,
        losses=_losses(data, draws, trait, None if at is None else record.losses[at], rng),
        n_fitted=n_fitted,
    )


def _losses(
    data: RevocationData, draws: Draws, trait: np.ndarray, seen: np.ndarray | None, rng: np.random.Generator
) -> np.ndarray:
    """Shares of losses that take one, some or all nodes, [draw, class].

    Notes:
        A probe says whether there is capacity, which is there for all nodes of a job or for none, unless a group that was probed
        says otherwise; nodes that are kept are taken as the groups of several that were kept show.
    """
    a = np.asarray(draws["class"]) * np.asarray(draws["concentration"])[:, None]
    counts = np.zeros(a.shape[1]) if seen is None else seen
    is_probed = trait[KEPT] < 0.5
    if is_probed and not counts.any() and not data.losses[data.trait[:, KEPT] < 0.5].any():
        return np.tile([0.0, 0.0, 1.0], (len(a), 1))
    shares = rng.standard_gamma(a + counts) + 1e-12
    return shares / shares.sum(axis=-1, keepdims=True)


def _alike(data: RevocationData, trait: np.ndarray) -> list[list[int]]:
    """Groups of every zone that one of those traits may be like, by zone: watched in the same way; none where zones are few."""
    enough = data.n_spell.min(axis=0) >= FEWEST_SPELLS
    same = (data.trait[:, KEPT] < 0.5) == (trait[KEPT] < 0.5)
    for usable in (enough & same, enough):
        zones = [
            [at for at in np.flatnonzero(usable).tolist() if data.zones[at] == zone] for zone in sorted(set(data.zones))
        ]
        if len(found := [groups for groups in zones if groups]) >= FEWEST_ZONES:
            return found
    return []


def _like_one(
    data: RevocationData, draws: Draws, found: FamilyChoice, alike: list[list[int]], rng: np.random.Generator
) -> list[DrawnLaws]:
    """Spells and gaps of a group of a zone, another one by draw."""
    n_draw = len(draws["concentration"])
    zones = rng.integers(len(alike), size=n_draw)
    chosen = np.array([groups[rng.integers(len(groups))] for groups in (alike[zone] for zone in zones)])
    both = [DrawnLaws(np.zeros(n_draw, dtype=int), np.zeros((n_draw, 2))) for _ in found.family]
    for at in np.unique(chosen).tolist():
        own = chosen == at
        drawn = {name: np.asarray(value)[own] for name, value in draws.items()}
        for quantity, family in enumerate(found.family):
            one = spells(data, drawn, quantity, int(family), at, data.trait[at], rng)
            both[quantity].law[own], both[quantity].theta[own] = one.law, one.theta
    return both


def spells(
    data: RevocationData, draws: Draws, quantity: int, family: int, at: int | None, trait: np.ndarray,
    rng: np.random.Generator,
) -> DrawnLaws:  # fmt: skip
    """Parameters of the spells of a group under one family."""
    site = of_population(draws, FAMILIES[family], quantity)
    location, n_draw = site["location"] + site["slope"] @ trait, len(site["location"])
    if FAMILIES[family] == "exponential":
        if at is None:
            log_s = location + site["between_sd"] * rng.standard_normal(n_draw)
        else:
            line = data.median[quantity, at]
            prior = 0.5 * ((line - location[:, None]) / site["between_sd"][:, None]) ** 2
            log_s = line[chosen(data.median_log_weight[quantity, at] - prior, rng)]
        return DrawnLaws(np.zeros(n_draw, dtype=int), np.stack([log_s, np.full(n_draw, np.log(EULER))], axis=-1))
    shapes = np.array(SHAPES_OF[FAMILIES[family]])
    mean, sd = (
        np.stack([location, site["log_spread"]], axis=-1),
        np.stack([site["between_sd"], site["spread_sd"]], axis=-1),
    )
    grid = None if at is None else (data.theta[shapes, quantity, at], data.log_weight[shapes, quantity, at])
    law, theta = drawn(mean, sd, site.get("shape_share", np.ones((n_draw, 1))), grid, rng)
    return DrawnLaws(shapes[law], theta)


def _slope(draws: Draws, quantity: int, family: int) -> np.ndarray:
    """Slopes of log medians with traits, [draw, trait]."""
    if FAMILIES[family] == "exponential":
        return np.asarray(draws["exponential_slope"])[:, quantity]
    return np.asarray(draws["slope"])[:, family - 1, quantity]


MOST_NAMED = 50  # groups in a report


def _figures(data: RevocationData, draws: Draws, at: int | None, found: FamilyChoice) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    out: dict[str, Any] = {}
    for index, name in enumerate(QUANTITIES):
        spell = spells(data, draws, index, int(found.family[index]), at, trait_of(data, at), rng)
        out[f"{name}_median_h"] = interval(np.exp(spell.theta[:, 0]) / 3600.0)
        out[f"{name}_log_sd"] = interval(spell.spread)
    return out


def figures(left_out: RevocationData, draws: Draws, family: np.ndarray) -> dict[str, float]:
    """Figures of groups that were not fitted, added up over them."""
    logs = by_draw(left_out, draws)
    total = np.logaddexp.reduce(logs.sum(axis=-1), axis=0) - np.log(len(logs))  # [family, quantity]
    out = {}
    for index, quantity in enumerate(QUANTITIES):
        n = max(float(left_out.n_spell[index].sum()), 1.0)
        own = float(total[family[index], index])
        out[f"{quantity}_log_density"] = (own - float(left_out.log_width[index].sum())) / n
        for number, name in enumerate(FAMILIES):
            gain = own - float(total[number, index])
            out[f"{quantity}_gain_over_{name}"] = gain / n
            out[f"{quantity}_better_than_{name}"] = float(gain > 0.0)
    return out


class Revocation(Model[RevocationData]):
    """The model by the name "revocation"."""

    name = "revocation"
    columns = COLUMNS
    reported = ("location", "between_sd", "log_spread", "exponential_location", "class")
    no_variability = (
        "a fit of revocations describes when spot nodes are there, not how steps vary. Use it with "
        "`prism-jax cloud --availability FIT.npz`."
    )

    def prepare(self, frame: pd.DataFrame) -> RevocationData:
        """Likelihoods of the groups on grids."""
        return from_frame(frame)

    def parts(self, data: RevocationData) -> Mapping[str, tuple[ModelPart[Any], Any]]:
        """One population per family and quantity, and that of what losses take."""
        return populations(data)

    def joined(self, found: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Sites [chain, draw, (family,) quantity, ...] of the draws of all populations; the exponential family apart."""

        def of(family: str, site: str) -> np.ndarray:
            return np.stack([found[name_of(family, quantity)][site] for quantity in QUANTITIES], axis=2)

        out = {site: np.stack([of(family, site) for family in SHAPES_OF], axis=2) for site in OF_FAMILY}
        out |= {name: of(FAMILIES[0], site) for site, name in OF_EXPONENTIAL.items()}
        return out | {"shape_share": of("mixture", "shape_share")} | dict(found[LOSSES])

    def program(self, data: RevocationData) -> None:
        """All populations at once, each under its own name."""
        for name, (population, observed) in populations(data).items():
            with scope(prefix=name):
                population.program(observed)

    def start(self, data: RevocationData) -> dict[str, Any]:
        """The starts of all populations."""
        return {
            f"{name}/{site}": value
            for name, (population, seen) in populations(data).items()
            for site, value in population.start(seen).items()
        }

    def describe(self, data: RevocationData, draws: Draws) -> dict[str, Any]:
        """Families, an unseen zone, and every group."""
        found = chosen_families(data, draws)
        return {
            "n_groups": len(data.zones),
            "n_zones": len(set(data.zones)),
            "n_spells": {name: int(n) for name, n in zip(QUANTITIES, data.n_spell.sum(axis=1), strict=True)},
            "family": {name: FAMILIES[n] for name, n in zip(QUANTITIES, found.family, strict=True)},
            "left_out_log_density": {
                name: {family: float(found.log_density[n, index]) for n, family in enumerate(FAMILIES)}
                for index, name in enumerate(QUANTITIES)
            },
            "best_in_zones": {
                name: {family: int(found.best_in[n, index]) for n, family in enumerate(FAMILIES)}
                for index, name in enumerate(QUANTITIES)
            },
            "losses_take": {name: interval(np.asarray(draws["class"])[:, n]) for n, name in enumerate(CLASSES)},
            "new_zone": _figures(data, draws, None, found),
            "groups": {
                title(data, at): _figures(data, draws, at, found) for at in range(min(len(data.zones), MOST_NAMED))
            },
            "notes": list(data.notes),
        }

    def market(self, data: RevocationData, draws: Draws, zone: str | None) -> FittedSpells:
        """Capacity of a zone of the fit, pooled over its groups' first one, or of a zone that was not seen.

        Raises:
            FitError: no such zone.
        """
        at = None
        if zone is not None:
            of_zone = [at for at, name in enumerate(data.zones) if name == zone]
            if not of_zone:
                raise FitError(f"zone {zone!r} is not in the fit{did_you_mean(zone, sorted(set(data.zones)))}")
            at = max(of_zone, key=lambda at: data.n_spell[:, at].sum())
        return of_group(data, draws, data, at, chosen_families(data, draws))

    def score(
        self, data: RevocationData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array
    ) -> list[GroupScore]:
        """One score per group of rows; figures are nats per spell, except those that say which is better (1 or 0)."""
        family, found = chosen_families(data, draws).family, []
        for name, rows in groups_of(left_out, column):
            try:
                there = from_frame(rows)
            except DataError:  # nothing ended in it
                continue
            found.append(GroupScore(group=name, extra=figures(there, draws, family)))
        return found

"""The capacity that a fit predicts: of a zone that was fitted, of one that was not, or of one whose record begins now."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prism_jax.cloud.availability.fitted import FittedSpells
from prism_jax.cloud.spot.spell_law import EULER
from prism_jax.errors import FitError
from prism_jax.hints import did_you_mean

from ...model import Draws
from . import choice as choice
from .data import TRAITS, RevocationData
from .laws import FAMILIES, SHAPES_OF

NODES, KEPT = TRAITS.index("log_nodes"), TRAITS.index("kept")
FEWEST_SPELLS = 20  # and gaps of a group that an unseen one may be like
FEWEST_ZONES = 4  # of such groups


@dataclass(frozen=True)
class Spells:
    """Parameters of the spells (or gaps) of one group: numbers of laws [draw], log medians and log spreads [draw, 2]."""

    law: np.ndarray
    theta: np.ndarray


def title(data: RevocationData, at: int) -> str:
    """A group by name: "us-east-1a V100 x16 preemption"."""
    parts = [data.zones[at], data.gpus[at], f"x{data.n_node[at]:g}" if data.n_node[at] > 1 else "", data.kinds[at]]
    return " ".join(part for part in parts if part)


def trait_of(data: RevocationData, at: int | None) -> np.ndarray:
    """Traits of a group [trait]; of an unseen one those of the group in the middle."""
    return np.median(data.trait, axis=0) if at is None else data.trait[at]


def market(data: RevocationData, draws: Draws, zone: str | None) -> FittedSpells:
    """Capacity of a zone of the fit, pooled over its groups' first one, or of a zone that was not seen.

    Raises:
        FitError: no such zone.
    """
    if zone is None:
        return unseen(data, draws)
    if zone not in data.zones:
        raise FitError(f"zone {zone!r} is not in the fit{did_you_mean(zone, sorted(set(data.zones)))}")
    of_zone = [at for at, name in enumerate(data.zones) if name == zone]
    return of_group(
        data, draws, data, max(of_zone, key=lambda at: data.n_spell[:, at].sum()), choice.chosen(data, draws)
    )


def unseen(data: RevocationData, draws: Draws) -> FittedSpells:
    """Capacity of a zone that was not seen."""
    return of_group(data, draws, data, None, choice.chosen(data, draws))


def of_group(
    data: RevocationData, draws: Draws, record: RevocationData, at: int | None, found: choice.Choice
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
    data: RevocationData, draws: Draws, found: choice.Choice, alike: list[list[int]], rng: np.random.Generator
) -> list[Spells]:
    """Spells and gaps of a group of a zone, another one by draw."""
    n_draw = len(draws["concentration"])
    zones = rng.integers(len(alike), size=n_draw)
    chosen = np.array([groups[rng.integers(len(groups))] for groups in (alike[zone] for zone in zones)])
    both = [Spells(np.zeros(n_draw, dtype=int), np.zeros((n_draw, 2))) for _ in found.family]
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
) -> Spells:  # fmt: skip
    """Parameters of the spells of a group under one family."""
    n_draw = len(draws["concentration"])
    if FAMILIES[family] == "exponential":
        mean = np.asarray(draws["exponential_location"])[:, quantity] + _slope(draws, quantity, family) @ trait
        sd = np.asarray(draws["exponential_sd"])[:, quantity]
        line = mean + sd * rng.standard_normal(n_draw) if at is None else _of_line(data, quantity, at, mean, sd, rng)
        return Spells(np.zeros(n_draw, dtype=int), np.stack([line, np.full(n_draw, np.log(EULER))], axis=-1))
    number = family - 1
    shapes = np.array(tuple(SHAPES_OF.values())[number])
    one = {
        name: np.asarray(draws[name])[:, number, quantity]
        for name in ("location", "between_sd", "log_spread", "spread_sd")
    }
    mean = np.stack([one["location"] + _slope(draws, quantity, family) @ trait, one["log_spread"]], axis=-1)
    sd = np.stack([one["between_sd"], one["spread_sd"]], axis=-1)
    share = np.asarray(draws["shape_share"])[:, quantity] if len(shapes) > 1 else np.ones((n_draw, 1))
    if at is None:
        of = (np.cumsum(share, axis=1) < rng.random((n_draw, 1))).sum(axis=1).clip(max=len(shapes) - 1)
        return Spells(shapes[of], mean + sd * rng.standard_normal(mean.shape))
    grid = data.theta[shapes, quantity, at].reshape(-1, 2)
    n = data.theta.shape[3]
    prior = -0.5 * (((grid - mean[:, None]) / sd[:, None]) ** 2).sum(axis=-1)
    weight = data.log_weight[shapes, quantity, at].ravel() + np.repeat(np.log(share + 1e-300), n, axis=1)
    place = _chosen(weight + prior, rng)
    return Spells(shapes[place // n], grid[place])


def _of_line(
    data: RevocationData, quantity: int, at: int, mean: np.ndarray, sd: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    line = data.median[quantity, at]
    weight = data.median_log_weight[quantity, at] - 0.5 * ((line - mean[:, None]) / sd[:, None]) ** 2
    return line[_chosen(weight, rng)]


def _slope(draws: Draws, quantity: int, family: int) -> np.ndarray:
    """Slopes of log medians with traits, [draw, trait]."""
    if FAMILIES[family] == "exponential":
        return np.asarray(draws["exponential_slope"])[:, quantity]
    return np.asarray(draws["slope"])[:, family - 1, quantity]


def _chosen(log_weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One place per draw of log weights [draw, place]."""
    cumulated = np.cumsum(np.exp(log_weight - log_weight.max(axis=1, keepdims=True)), axis=1)
    return (cumulated < rng.random((len(cumulated), 1)) * cumulated[:, -1:]).sum(axis=1)

"""Pairs of kinds of instances on demand, in one region, that can still beat what was found on one kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from ...errors import PrismError
from ...job import Job
from ..clusters.instance_cluster import UnusableError
from ..clusters.mixed import Mix, mix
from ..offers import Offer
from .candidate import Candidate
from .wish import Wish

MOST_PAIRS = 24  # that are planned; those of the least bound
Rented = tuple[Offer, int, Candidate]


def mixed_candidates(
    candidates: Sequence[Candidate], job: Job, wish: Wish, best_usd: float, most_gpus: int
) -> list[Candidate]:
    """Mixes whose bounds keep the deadline and beat `best_usd` (infinite: nothing was found), least bound first."""
    pairs = sorted(_pairs(candidates, wish, best_usd, most_gpus), key=lambda pair: pair[0])
    found = []
    for _, one, other in pairs[:MOST_PAIRS]:
        rented = [(offer, count, own.best) for offer, count, own in (one, other)]
        try:
            made = mix(job, rented)
        except (UnusableError, PrismError):  # a part of the batch that no plan can take
            made = None
        if made is not None:
            found.append(_candidate(made, one[2], wish))
    return found


def _pairs(
    candidates: Sequence[Candidate], wish: Wish, best_usd: float, most_gpus: int
) -> Iterator[tuple[float, Rented, Rented]]:
    """Bound of the cost, and both parts.

    Notes: a part of the batch takes at least its share of the time of the whole, so that rates add up at best.
    """
    for rented in _by_region(candidates).values():
        for one, other in combinations(rented, 2):
            if (
                one[0].device == other[0].device
                or one[2].best.plan.n_devices + other[2].best.plan.n_devices > most_gpus
            ):
                continue
            work_s = wish.n_steps / sum(1.0 / part[2].best.step_s for part in (one, other))
            usd_per_h = sum(part[1] * (part[0].on_demand_usd_per_h or 0.0) for part in (one, other))
            cost_usd = work_s * usd_per_h / 3600.0
            if work_s < wish.deadline_s and cost_usd < min(best_usd, wish.budget_usd):
                yield cost_usd, one, other


def _by_region(candidates: Sequence[Candidate]) -> dict[tuple[str, str], list[Rented]]:
    """(cloud, region) -> the cheapest offer there of every candidate on demand."""
    found: dict[tuple[str, str], list[Rented]] = defaultdict(list)
    for one in candidates:
        if one.policy.needs_spot:
            continue
        cheapest: dict[tuple[str, str], Offer] = {}
        for offer in one.offers:
            key = (offer.cloud, offer.region)
            before = cheapest.get(key)
            if before is None or (offer.on_demand_usd_per_h or 0.0) < (before.on_demand_usd_per_h or 0.0):
                cheapest[key] = offer
        for key, offer in cheapest.items():
            found[key].append((offer, one.count, one))
    return found


def _candidate(made: Mix, like: Candidate, wish: Wish) -> Candidate:
    """A mix as one offer whose price is that of all its instances."""
    usd_per_h = sum(part.count * (part.offer.on_demand_usd_per_h or 0.0) for part in made.parts)
    first = made.parts[0].offer
    days = [part.offer.day for part in made.parts if part.offer.day is not None]
    offer = replace(
        first, instance="mix", zone="", on_demand_usd_per_h=usd_per_h, spot_usd_per_h=None, day=min(days, default=None)
    )
    best = replace(made.best, step_s=made.step_s)
    task = replace(like.task, work_s=wish.n_steps * made.step_s)
    return Candidate((offer,), 1, best, task, like.policy, None, made.parts)

"""Lists the candidates of a catalogue: so many instances of a shape under a policy, with the prices of an hour in every place.

Offers that cannot be used are counted, with the reason. Jobs may run in any of the two, three and four cheapest zones of a
region that offer the same machine on spot; pairs of kinds on demand in one region count where they can still beat what was
found on one kind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf, isfinite, nan

import numpy as np

from ..core.arrays import Floats
from ..core.errors import PrismError
from ..core.processes import Progress, silent
from ..horizon.checkpoint import Checkpoint, CheckpointTier, checkpoint_bytes
from ..horizon.reliability import HOUR_S, Reliability
from ..job.job import Job
from .availability import Availability, SeveralZones, loss_rate_s
from .clusters import (
    UNKNOWN_DEVICE,
    BestPlan,
    InstancePart,
    InstanceShape,
    Mix,
    PlanTimes,
    UnusableError,
    mix,
    shape_of,
)
from .completion import Ran, SpotTask
from .offers import Identity, Offer
from .policies import SpotPolicy
from .requirements import CloudRequirements


@dataclass(frozen=True)
class CloudCandidate:
    """One thing that may be rented, before it is simulated.

    Attributes:
        offers: of one shape and law of availability, that have what the policy needs.
        count: instances.
        best: parallel plan and step time there.
        task: in intervals.
        law: of spot capacity; None where the policy needs none.
        parts: of a mix of kinds, whose one offer has the price of all; empty for one kind.
        zones: that the job moves between, the first that has all nodes; its one offer has the spot price of the first, and `law`
            the others' over it. Empty: it stays in one.
    """

    offers: tuple[Offer, ...]
    count: int
    best: BestPlan
    task: SpotTask
    policy: SpotPolicy
    law: Availability | None
    parts: tuple[InstancePart, ...] = ()
    zones: tuple[Offer, ...] = ()

    @property
    def least_usd_per_s(self) -> float:
        """Lower bound of the cost of a second of work on all nodes, in any place."""
        on_demand, spot = self.prices()
        found = inf
        for use in self.policy.uses:
            if use.pace > 0.0:
                paid = sum(
                    (part * price for part, price in ((use.on_demand, on_demand), (use.spot, spot)) if part > 0.0)
                )
                found = min(found, float(np.min(paid / use.pace)))
        return found / 3600.0

    def prices(self) -> tuple[Floats, Floats]:
        """USD per hour of all instances [offer], on demand and on spot; NaN where not offered."""
        return tuple(  # type: ignore[return-value]
            self.count * np.array([nan if price is None else price for price in column])
            for column in zip(*((o.on_demand_usd_per_h, o.spot_usd_per_h) for o in self.offers), strict=True)
        )

    def cheapest(self, ran: Ran) -> tuple[Offer, float]:
        """The offer at which these worlds cost least on average, and its expected cost, USD."""
        on_demand, spot = self.prices()
        hours = np.array([ran.on_demand_s.mean(), ran.spot_s.mean()]) / 3600.0
        cost = sum(h * price for h, price in zip(hours, (on_demand, spot), strict=True) if h > 0.0)
        row = int(np.argmin(np.broadcast_to(cost, len(self.offers))))
        return self.offers[row], float(np.broadcast_to(cost, len(self.offers))[row])


def pays_for(policy: SpotPolicy, offer: Offer) -> bool:
    """Whether an offer has the prices that a policy needs."""
    needed = ((policy.needs_on_demand, offer.on_demand_usd_per_h), (policy.needs_spot, offer.spot_usd_per_h))
    return all(price is not None and isfinite(price) for wanted, price in needed if wanted)


# by the law that ships nodes are there .68 of the time in one zone, .81 in two, .85 in three, .87 in six
MOST_ZONES = 4


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
        """Spot price of an instance in every zone."""
        return tuple(offer.spot_usd_per_h or 0.0 for offer in self.offers)

    @property
    def on_demand_usd_per_h(self) -> float | None:
        """On-demand price of an instance in the most expensive zone; None: one has none."""
        prices = [offer.on_demand_usd_per_h for offer in self.offers]
        return None if None in prices else max(price for price in prices if price is not None)

    @property
    def offer(self) -> Offer:
        """Offer at the spot price of the cheapest zone, over which `law` has those of the others."""
        days = [offer.day for offer in self.offers if offer.day is not None]
        where = f"{len(self.offers)} zones of {self.offers[0].region}"
        price = self.on_demand_usd_per_h
        return replace(self.offers[0], zone=where, on_demand_usd_per_h=price, day=min(days, default=None))

    @property
    def law(self) -> SeveralZones:
        """Law of the zones together, with their spot prices over that of the first."""
        first, *_ = prices = self.spot_usd_per_h
        return SeveralZones(self.laws, factors=tuple(price / first for price in prices))


def several_zones(laws: Mapping[Offer, Availability], policy: SpotPolicy) -> list[Zones]:
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
    """Returns the zones that no others undercut in every price; of those with equal prices the first."""
    kept: dict[tuple[float, ...], Zones] = {}
    for one in sorted(zones, key=lambda own: (own.spot_usd_per_h, own.on_demand_usd_per_h or 0.0)):
        prices = one.spot_usd_per_h + ((one.on_demand_usd_per_h or 0.0,) if with_on_demand else ())
        if not any(all(a <= b for a, b in zip(other, prices, strict=True)) for other in kept):
            kept[prices] = one
    return list(kept.values())


NOT_OFFERED = "no price of the kinds that are allowed"
MOST_SIZES = 8  # powers of two
STORE_GB_PER_S = 1.2  # that an instance writes to storage: BLOOM, 2.3 TB in 40 s from 48 nodes
LawOf = Callable[[Offer], Availability]


@dataclass(frozen=True)
class CloudConstants:
    """Constants that all candidates share.

    Attributes:
        policies: to choose from.
        law_of: spot capacity of an offer.
        reliability: of hardware and software; None: not stated.
        most_gpus: largest number of GPUs.
        checkpoint: None: from the size of the states, written by every instance at its network's rate, at most 1.2 GB/s.
    """

    policies: tuple[SpotPolicy, ...]
    law_of: LawOf
    most_gpus: int
    reliability: Reliability | None = None
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True)
class CandidateSet:
    """Candidates, and reasons of offers that make none, with their number."""

    candidates: tuple[CloudCandidate, ...]
    unusable: Mapping[str, int]
    n_offers: int
    n_shapes: int


def field_of(
    offers: Sequence[Offer],
    times: PlanTimes,
    setting: CloudConstants,
    wish: CloudRequirements,
    progress: Progress = silent,
) -> CandidateSet:
    """Every shape on every number of instances under every policy."""
    by_shape: dict[InstanceShape, list[Offer]] = defaultdict(list)
    for offer in offers:
        by_shape[shape_of(offer)].append(offer)
    unusable: Counter[str] = Counter()
    found: list[CloudCandidate] = []
    for number, (shape, own) in enumerate(by_shape.items()):
        progress(number / len(by_shape), f"plans on {shape.gpus} x {shape.device or own[0].gpu}")
        paid = [offer for offer in own if any(pays_for(policy, offer) for policy in setting.policies)]
        unusable[NOT_OFFERED] += len(own) - len(paid)
        try:
            plans = _plans(times, shape, setting.most_gpus) if paid else {}
        except UnusableError as error:
            unusable[error.reason] += len(paid)
            continue
        for count, best in plans.items():
            found += _of_plan(paid, count, best, setting, wish)
    return CandidateSet(tuple(found), dict(+unusable), len(offers), len(by_shape))


def counts_of(gpus: int, most_gpus: int) -> tuple[int, ...]:
    """Numbers of instances that are looked at: the largest powers of two."""
    powers = [1 << k for k in range(most_gpus.bit_length()) if (gpus << k) <= most_gpus]
    return tuple(powers[-MOST_SIZES:])


def _plans(times: PlanTimes, shape: InstanceShape, most_gpus: int) -> dict[int, BestPlan]:
    if not shape.device:
        raise UnusableError(UNKNOWN_DEVICE)
    counts = counts_of(shape.gpus, most_gpus)
    if not counts:
        raise UnusableError("one instance has more GPUs than are allowed")
    return times.of(shape, counts)


def _of_plan(
    offers: list[Offer], count: int, best: BestPlan, setting: CloudConstants, wish: CloudRequirements
) -> Iterator[CloudCandidate]:
    """One candidate for every policy and law, and for every choice of zones that a job may move between."""
    written = setting.checkpoint or _checkpoint(best, offers[0], count)
    for policy in setting.policies:
        able = [offer for offer in offers if pays_for(policy, offer)]
        laws = {offer: setting.law_of(offer) for offer in able} if policy.needs_spot else {}
        for law in dict.fromkeys(laws.get(offer) for offer in able):
            own = tuple(offer for offer in able if laws.get(offer) == law)
            yield CloudCandidate(own, count, best, task_of(best, count, written, law, setting, wish), policy, law)
        for zones in several_zones(laws, policy):
            task = task_of(best, count, written, zones.laws[0], setting, wish)  # intervals for losses in the first zone
            yield CloudCandidate((zones.offer,), count, best, task, policy, zones.law, zones=zones.offers)


def task_of(
    best: BestPlan,
    count: int,
    written: Checkpoint,
    law: Availability | None,
    setting: CloudConstants,
    wish: CloudRequirements,
) -> SpotTask:
    """The work of a plan, cut into intervals that suit its interruptions."""
    cluster = best.job.cluster
    threats = setting.reliability
    failures_s = threats.rate_h(cluster.n_devices, cluster.node_size) / HOUR_S if threats else 0.0
    losses_s = 0.0 if law is None else loss_rate_s(law, count)
    work_s, restart_s = wish.n_steps * best.step_s, wish.restart_s + written.load_s
    return SpotTask.cut(work_s, wish.interval_s, written.blocking_s, restart_s, failures_s, losses_s)


def _checkpoint(best: BestPlan, offer: Offer, count: int) -> Checkpoint:
    rate = min(STORE_GB_PER_S, (offer.network_bytes_per_s or STORE_GB_PER_S * 1e9) / 1e9)
    return Checkpoint.of_bytes(checkpoint_bytes(best.job), count, (CheckpointTier("store", rate),))


MOST_PAIRS = 24  # that are planned; those of the least bound
Rented = tuple[Offer, int, CloudCandidate]


def mixed_candidates(
    candidates: Sequence[CloudCandidate], job: Job, wish: CloudRequirements, best_usd: float, most_gpus: int
) -> list[CloudCandidate]:
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
    candidates: Sequence[CloudCandidate], wish: CloudRequirements, best_usd: float, most_gpus: int
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


def _by_region(candidates: Sequence[CloudCandidate]) -> dict[tuple[str, str], list[Rented]]:
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


def _candidate(made: Mix, like: CloudCandidate, wish: CloudRequirements) -> CloudCandidate:
    """A mix as one offer whose price is that of all its instances."""
    usd_per_h = sum(part.count * (part.offer.on_demand_usd_per_h or 0.0) for part in made.parts)
    first = made.parts[0].offer
    days = [part.offer.day for part in made.parts if part.offer.day is not None]
    offer = replace(
        first, instance="mix", zone="", on_demand_usd_per_h=usd_per_h, spot_usd_per_h=None, day=min(days, default=None)
    )
    best = replace(made.best, step_s=made.step_s)
    task = replace(like.task, work_s=wish.n_steps * made.step_s)
    return CloudCandidate((offer,), 1, best, task, like.policy, None, made.parts)

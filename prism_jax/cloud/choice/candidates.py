"""All candidates of a catalogue, and how many offers cannot be used and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...horizon.checkpoint import Checkpoint, Tier, checkpoint_bytes
from ...horizon.reliability import HOUR_S, Reliability
from ...progress import Progress, silent
from ..availability.base import Availability
from ..availability.loss_rate import loss_rate_s
from ..clusters.instance_cluster import UNKNOWN_DEVICE, Shape, UnusableError, shape_of
from ..clusters.step_times import BestPlan, PlanTimes
from ..completion.task import Task
from ..offers import Offer
from ..policies.base import Policy
from .candidate import Candidate, pays_for
from .wish import Wish
from .zones import several_zones

NOT_OFFERED = "no price of the kinds that are allowed"
MOST_SIZES = 8  # powers of two
STORE_GB_PER_S = 1.2  # that an instance writes to storage: BLOOM, 2.3 TB in 40 s from 48 nodes
LawOf = Callable[[Offer], Availability]


@dataclass(frozen=True)
class Setting:
    """What all candidates share.

    Attributes:
        policies: that may be chosen.
        law_of: spot capacity of an offer.
        reliability: of hardware and software; None: nothing is said of it.
        most_gpus: that are looked at.
        checkpoint: None: from the size of the states, written by every instance at its network's rate, at most 1.2 GB/s.
    """

    policies: tuple[Policy, ...]
    law_of: LawOf
    most_gpus: int
    reliability: Reliability | None = None
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True)
class Field:
    """Candidates, and reasons of offers that make none, with their number."""

    candidates: tuple[Candidate, ...]
    unusable: Mapping[str, int]
    n_offers: int
    n_shapes: int


def field_of(
    offers: Sequence[Offer], times: PlanTimes, setting: Setting, wish: Wish, progress: Progress = silent
) -> Field:
    """Every shape on every number of instances under every policy."""
    by_shape: dict[Shape, list[Offer]] = defaultdict(list)
    for offer in offers:
        by_shape[shape_of(offer)].append(offer)
    unusable: Counter[str] = Counter()
    found: list[Candidate] = []
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
    return Field(tuple(found), dict(+unusable), len(offers), len(by_shape))


def counts_of(gpus: int, most_gpus: int) -> tuple[int, ...]:
    """Numbers of instances that are looked at: the largest powers of two."""
    powers = [1 << k for k in range(most_gpus.bit_length()) if (gpus << k) <= most_gpus]
    return tuple(powers[-MOST_SIZES:])


def _plans(times: PlanTimes, shape: Shape, most_gpus: int) -> dict[int, BestPlan]:
    if not shape.device:
        raise UnusableError(UNKNOWN_DEVICE)
    counts = counts_of(shape.gpus, most_gpus)
    if not counts:
        raise UnusableError("one instance has more GPUs than are allowed")
    return times.of(shape, counts)


def _of_plan(offers: list[Offer], count: int, best: BestPlan, setting: Setting, wish: Wish) -> Iterator[Candidate]:
    """One candidate for every policy and law, and for every choice of zones that a job may move between."""
    written = setting.checkpoint or _checkpoint(best, offers[0], count)
    for policy in setting.policies:
        able = [offer for offer in offers if pays_for(policy, offer)]
        laws = {offer: setting.law_of(offer) for offer in able} if policy.needs_spot else {}
        for law in dict.fromkeys(laws.get(offer) for offer in able):
            own = tuple(offer for offer in able if laws.get(offer) == law)
            yield Candidate(own, count, best, task_of(best, count, written, law, setting, wish), policy, law)
        for zones in several_zones(laws, policy):
            task = task_of(best, count, written, zones.laws[0], setting, wish)  # intervals for losses in the first zone
            yield Candidate((zones.offer,), count, best, task, policy, zones.law, zones=zones.offers)


def task_of(
    best: BestPlan, count: int, written: Checkpoint, law: Availability | None, setting: Setting, wish: Wish
) -> Task:
    """The work of a plan, cut into intervals that suit what interrupts it."""
    cluster = best.job.cluster
    threats = setting.reliability
    failures_s = threats.rate_h(cluster.n_devices, cluster.node_size) / HOUR_S if threats else 0.0
    losses_s = 0.0 if law is None else loss_rate_s(law, count)
    work_s, restart_s = wish.n_steps * best.step_s, wish.restart_s + written.load_s
    return Task.cut(work_s, wish.interval_s, written.blocking_s, restart_s, failures_s, losses_s)


def _checkpoint(best: BestPlan, offer: Offer, count: int) -> Checkpoint:
    rate = min(STORE_GB_PER_S, (offer.network_bytes_per_s or STORE_GB_PER_S * 1e9) / 1e9)
    return Checkpoint.of_bytes(checkpoint_bytes(best.job), count, (Tier("store", rate),))

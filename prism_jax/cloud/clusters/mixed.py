"""Kinds of instances that meet in the gradient exchange alone: each runs replicas of its own, the batch is split by rate.

    b_i ~ rate_i, whole micro-batches on every replica;  T = max_i T_i(b_i) + 2 (k - 1)/k G / min_i (n_i B_i) + 2 (k - 1) l

T_i(b_i) is the best plan of kind i on its part of the batch, its own gradient exchange included. Then the G bytes of gradients go
around the k kinds, sharded over the instances of each. What a step costs lies between what it costs on the kinds alone,
(p1 + p2)/(r1 + r2) >= min(p1/r1, p2/r2): a mix is never the cheapest where the better kind is to be had in any number; it pays
where numbers are limited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...job import Job
from ..offers import Offer
from .instance_cluster import SLOW_LATENCY_S, shape_of
from .step_times import BestPlan, best_plans

GRADIENT_BYTES = 4.0  # fp32 between kinds: what all frameworks can do
MOST_TRIED = 64  # splits near the proportional one


@dataclass(frozen=True)
class Part:
    """Instances of one kind, and samples of the global batch that they take."""

    offer: Offer
    count: int
    samples: int


@dataclass(frozen=True)
class Mix:
    """Parts with the seconds of a step of all, noise-free; `best` is that of the slowest part."""

    parts: tuple[Part, ...]
    best: BestPlan
    step_s: float
    exchange_s: float


def mix(job: Job, rented: Sequence[tuple[Offer, int, BestPlan]]) -> Mix | None:
    """Several kinds together; None where the batch cannot be split among them, or a network is not stated.

    Args:
        rented: offer, number of instances, and the best plan of the whole batch there.
    """
    if any(offer.network_bytes_per_s is None for offer, _, _ in rented):
        return None
    samples = split(
        job.plan.global_batch,
        [job.plan.global_batch / best.step_s for _, _, best in rented],
        [best.plan.dp * best.plan.micro_batch for _, _, best in rented],
    )
    if samples is None:
        return None
    found = []
    for (offer, count, _), own in zip(rented, samples, strict=True):
        part = replace(job, plan=replace(job.plan, global_batch=own))
        plan = best_plans(part, shape_of(offer), (count,)).get(count)
        if plan is None:
            return None
        found.append(plan)
    exchange = exchange_s(
        job.model.n_params() * GRADIENT_BYTES, [(o.network_bytes_per_s or 0.0) * n for o, n, _ in rented]
    )
    slowest = max(found, key=lambda plan: plan.step_s)
    parts = tuple(Part(o, n, own) for (o, n, _), own in zip(rented, samples, strict=True))
    return Mix(parts, slowest, slowest.step_s + exchange, exchange)


def exchange_s(n_bytes: float, links_bytes_per_s: Sequence[float]) -> float:
    """Seconds of a ring all-reduce of `n_bytes` between kinds, each with that much bandwidth in all."""
    k = len(links_bytes_per_s)
    return 2.0 * (k - 1) * (n_bytes / k / min(links_bytes_per_s) + SLOW_LATENCY_S) if k > 1 else 0.0


def split(batch: int, rates: Sequence[float], units: Sequence[int]) -> tuple[int, ...] | None:
    """Whole units that add up to the batch and finish together as nearly as can be; None if there is no such split.

    Args:
        rates: samples per second of every kind.
        units: samples of a micro-batch on every replica of a kind.

    Example:
        >>> split(128, (3.0, 1.0), (8, 4))
        (96, 32)
    """
    if len(rates) == 1:
        return (batch,) if batch % units[0] == 0 else None
    ideal = batch * rates[0] / sum(rates) / units[0]
    found: tuple[float, tuple[int, ...]] | None = None
    for k in sorted(range(1, batch // units[0] + 1), key=lambda k: abs(k - ideal))[:MOST_TRIED]:
        rest = split(batch - k * units[0], rates[1:], units[1:]) if k * units[0] < batch else None
        if rest is None:
            continue
        parts = (k * units[0], *rest)
        slowest_s = max(own / rate for own, rate in zip(parts, rates, strict=True))
        if found is None or slowest_s < found[0]:
            found = (slowest_s, parts)
    return None if found is None else found[1]

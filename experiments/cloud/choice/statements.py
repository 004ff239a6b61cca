"""What Srift and CM-DARE say of choosing machines, on a catalogue: 2 x throughput, 1.6 x cost; cheap GPUs or more of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prism_jax import load_job
from prism_jax.cloud.candidates import counts_of
from prism_jax.cloud.clusters import PlanTimes, UnusableError, shape_of
from prism_jax.cloud.offers import Offer

JOBS = ("resnet50_64", "bert_large_1024", "llama2_7b_fsdp_64")
MOST_GPUS = 64
CHEAP = ("k80", "p100-pcie", "t4", "v100-16gb", "v100-32gb", "l4", "a10")
CLOUDS = ("aws", "gcp", "azure")


@dataclass(frozen=True)
class Point:
    """So many instances of an offer: steps per second and USD per hour."""

    offer: Offer
    count: int
    steps_per_s: float
    usd_per_h: float

    @property
    def usd_per_kstep(self) -> float:
        """USD per thousand steps."""
        return self.usd_per_h / 3.6 / self.steps_per_s

    @property
    def name(self) -> str:
        """In a line."""
        return f"{self.count} x {self.offer.title} ({self.offer.device})"


def points_of(name: str, offers: Sequence[Offer]) -> list[Point]:
    """The cheapest on-demand offer of every machine of three clouds, on every number of instances."""
    cheapest: dict[tuple[str, str], Offer] = {}
    for offer in offers:
        usd = offer.on_demand_usd_per_h
        if offer.cloud in CLOUDS and offer.instance and usd:
            before = cheapest.get((offer.cloud, offer.instance))
            if before is None or usd < (before.on_demand_usd_per_h or 0.0):
                cheapest[offer.cloud, offer.instance] = offer
    times, found = PlanTimes(load_job(name)), []
    for offer in cheapest.values():
        try:
            plans = times.of(shape_of(offer), counts_of(offer.gpus, MOST_GPUS))
        except UnusableError:
            continue
        usd = offer.on_demand_usd_per_h or 0.0
        found += [Point(offer, n, 1.0 / best.step_s, n * usd) for n, best in plans.items()]
    return found


def print_statements(offers: Sequence[Offer]) -> None:
    """Both statements for three jobs."""
    for name in JOBS:
        points = points_of(name, offers)
        best = min(points, key=lambda p: p.usd_per_kstep)
        print(f"{name}: {len(points)} choices; cheapest {best.name}, {best.usd_per_kstep:.3g} USD per 1,000 steps")
        for rule, chosen in rules(points).items():
            same_money = [p for p in points if p.usd_per_h <= chosen.usd_per_h]
            faster = max(same_money, key=lambda p: p.steps_per_s)
            as_fast = [p for p in points if p.steps_per_s >= chosen.steps_per_s]
            cheaper = min(as_fast, key=lambda p: p.usd_per_kstep)
            print(
                f"  {rule:<34} {chosen.name:<40} throughput x {faster.steps_per_s / chosen.steps_per_s:5.2f} for no more USD/h "
                f"({faster.name}); cost / {chosen.usd_per_kstep / cheaper.usd_per_kstep:5.2f} at no less speed ({cheaper.name})"
            )
        cheap_or_more(points)


def rules(points: Sequence[Point]) -> dict[str, Point]:
    """Rules of thumb, and what they choose."""
    eight = [p for p in points if p.offer.gpus * p.count == 8]
    single = [p for p in points if p.offer.gpus == 1 and p.count > 1]
    found = {"cheapest USD/h that runs it": min(points, key=lambda p: p.usd_per_h)}
    if eight:
        found["8 GPUs, cheapest per GPU-hour"] = min(eight, key=lambda p: p.usd_per_h)
        found["8 GPUs, dearest"] = max(eight, key=lambda p: p.usd_per_h)
    if single:
        found["many machines of one GPU, fastest"] = max(single, key=lambda p: p.steps_per_s)
    found["fastest of all"] = max(points, key=lambda p: p.steps_per_s)
    return found


def cheap_or_more(points: Sequence[Point]) -> None:
    """Old, cheap GPUs against new ones: cost of a step, and speed for the same money per hour."""
    cheap = [p for p in points if p.offer.device in CHEAP]
    dear = [p for p in points if p.offer.device not in CHEAP]
    if not cheap or not dear:
        print("  cheap GPUs or more of them: nothing to compare")
        return
    old, new = (min(part, key=lambda p: p.usd_per_kstep) for part in (cheap, dear))
    for budget in (5.0, 15.0, 50.0, 150.0):
        told = [_fastest_for(part, budget) for part in (cheap, dear)]
        print(f"  up to {budget:5.0f} USD/h: old {told[0]}; new {told[1]}")
    print(f"  USD per 1,000 steps: old {old.usd_per_kstep:.3g} ({old.name}), new {new.usd_per_kstep:.3g} ({new.name})")


def _fastest_for(points: Sequence[Point], usd_per_h: float) -> str:
    paid = [p for p in points if p.usd_per_h <= usd_per_h]
    best = max(paid, key=lambda p: p.steps_per_s, default=None)
    return f"{best.name} {best.steps_per_s:.3g} steps/s" if best else "none"

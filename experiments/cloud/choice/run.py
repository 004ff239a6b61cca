"""Bars of the cloud choice: renewal form, search against exhaustive, whole catalogue; python -m experiments.cloud.choice.run."""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from prism_jax import load_job
from prism_jax.cloud.availability import AVAILABILITY, WeibullSpells
from prism_jax.cloud.candidates import CloudCandidate, CloudConstants, field_of
from prism_jax.cloud.choice import SpotDraws, search
from prism_jax.cloud.choose_cloud import choose_cloud
from prism_jax.cloud.clusters import PlanTimes
from prism_jax.cloud.completion import SpotTask, simulate
from prism_jax.cloud.offers import Offer, read_catalogue
from prism_jax.cloud.policies import POLICIES
from prism_jax.cloud.requirements import CloudRequirements
from prism_jax.cloud.spot import Paths
from prism_jax.horizon.simulated_job import level_draws

from .statements import print_statements

JOBS = ("llama2_7b_fsdp_64", "resnet50_64", "bert_large_1024")
N_CATALOGUES, N_OFFERS, N_WORLDS = 20, 8, 10_000
SMALL = ("resnet50_64", "bert_large_1024")


def main() -> None:
    """Prints every bar with its figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", choices=("renewal", "search", "whole", "statements"))
    args = parser.parse_args()
    catalogue = args.data / "cloud" / "instance_catalogue.csv.gz"
    parts = {
        "renewal": renewal,
        "search": lambda: small_catalogues(read_catalogue([catalogue])),
        "whole": lambda: whole_catalogue(catalogue),
        "statements": lambda: print_statements(read_catalogue([catalogue])),
    }
    for name, part in parts.items():
        if args.only in (None, name):
            print(f"== {name}", flush=True)
            part()


def renewal() -> None:
    """Closed form against simulated worlds over rates, outages and gaps."""
    rng, worst = np.random.default_rng(0), 0.0
    ones = np.ones(N_WORLDS)
    for number in range(40):
        work_s, blocking_s, restart_s = 86_400.0 * rng.uniform(1, 10), rng.uniform(5, 120), rng.uniform(60, 900)
        rate_s, down_s = 10.0 ** rng.uniform(-6, -4), rng.uniform(0, 7200)
        if number % 2:
            task, policy, paths = (
                SpotTask.cut(work_s, None, blocking_s, restart_s, rate_s),
                "on_demand",
                Paths.always(1, N_WORLDS),
            )
            expected_s = task.expected_s()
        else:
            task, policy = SpotTask.cut(work_s, None, blocking_s, restart_s, 0.0, rate_s), "spot"
            drawn = WeibullSpells(1.0 / rate_s, 1.0, down_s).draw(1, N_WORLDS, 6.0 * work_s, rng)
            gap_s = np.where(drawn.until_s[0] == 0.0, drawn.until_s[1], 0.0)  # the form begins with nodes at hand
            paths = Paths(np.maximum(drawn.until_s - gap_s, 0.0), drawn.n_up, drawn.price, 1)
            expected_s = task.expected_s(rate_s, down_s)
        found = simulate(task, paths, POLICIES.named(policy), ones, key=jax.random.key(number)).time_s
        away, error = abs(found.mean() / expected_s - 1.0), found.std() / N_WORLDS**0.5 / expected_s
        worst = max(worst, away)
        if number < 6:
            print(f"{policy:<10} rate {rate_s:.2e}/s, gap {down_s:5.0f} s: away {away:.3%} (Monte Carlo {error:.3%})")
    print(f"40 settings, largest distance {worst:.3%} (bar: .5%)")


def small_catalogues(offers: tuple[Offer, ...]) -> None:
    """Search against simulating everything, with real plans and prices."""
    usable = [offer for offer in offers if offer.device and offer.network_bytes_per_s and offer.gpus >= 4]
    law, same, simulated, all_of_them = AVAILABILITY.named("weibull"), 0, 0, 0
    times = {name: PlanTimes(load_job(name)) for name in SMALL}
    for number in range(N_CATALOGUES):
        name = SMALL[number % 2]
        job = load_job(name)
        own = _with_zones(random.Random(number).sample(usable, N_OFFERS), usable, random.Random(number))
        rng = np.random.default_rng(number)
        days, usd = 10.0 ** rng.uniform(-1.5, 1.0), 10.0 ** rng.uniform(1, 4)
        wish = CloudRequirements(
            int(rng.integers(10_000, 60_000)),
            deadline_s=days * 86_400.0 if number // 2 % 4 in (0, 2) else np.inf,
            budget_usd=usd if number // 2 % 4 in (1, 2) else np.inf,
            prob=0.9,
            n_worlds=500,
            seed=number,
        )
        field = field_of(own, times[name], CloudConstants(tuple(POLICIES), lambda _: law, 32), wish)
        if not field.candidates:
            same += 1
            print(f"{number:2d} {name}: nothing fits")
            continue
        level = level_draws(job, 0)
        quick = search(field.candidates, SpotDraws(wish, level), wish)
        slow = search(field.candidates, SpotDraws(wish, level), wish, everything=True)
        equal = _answer(quick) == _answer(slow)
        same += equal
        simulated, all_of_them = simulated + len(quick.simulated), all_of_them + len(slow.simulated)
        print(
            f"{number:2d} {name:<18} {len(field.candidates):3d} candidates ({_in_zones(field.candidates)} in several zones, "
            f"{_in_zones([one.candidate for one in slow.front])} on the front), {len(quick.simulated):3d} simulated "
            f"of {len(slow.simulated):3d}, best {_told(quick)}: {'same' if equal else 'DIFFERENT'}",
            flush=True,
        )
    print(f"{same} of {N_CATALOGUES} (bar: 20 of 20); {simulated} of {all_of_them} simulated")


def _in_zones(candidates: Sequence[CloudCandidate]) -> int:
    return sum(1 for one in candidates if one.zones)


def _with_zones(own: list[Offer], usable: list[Offer], rng: random.Random) -> list[Offer]:
    """Offers, and those of one machine in all zones of a region."""
    by_region = defaultdict(list)
    for offer in usable:
        if offer.zone and offer.spot_usd_per_h:
            by_region[offer.identity._replace(zone="")].append(offer)
    joined = rng.choice([zones for zones in by_region.values() if len(zones) > 1])
    return list(dict.fromkeys([*own, *joined]))


def _answer(choice) -> tuple:
    best = (
        None
        if choice.best is None
        else (choice.best.offer, choice.best.candidate.count, choice.best.candidate.policy.name)
    )
    return best, tuple(
        (one.offer, one.candidate.count, one.candidate.policy.name, one.mean_usd) for one in choice.front
    )


def _told(choice) -> str:
    if choice.best is None:
        return "none"
    best = choice.best
    return f"{best.candidate.count} x {best.offer.title} {best.candidate.policy.name} {best.mean_usd:,.0f} USD"


def whole_catalogue(catalogue: Path) -> None:
    """All rows, 10^4 worlds; run it by itself, on two cores, twice (the second time with compiled programs kept)."""
    started, cpu = time.perf_counter(), time.process_time()
    report = choose_cloud(
        JOBS[0],
        n_steps=50_000,
        deadline_s=10 * 86_400.0,
        catalogues=[catalogue],
        n_worlds=N_WORLDS,
        reliability="llama3-2024",
    )
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    print("\n".join(report.lines()))
    print(f"{report.n_offers} rows, {report.n_worlds:,} worlds: {wall:.1f} s, {cpu:.1f} s of CPU (bar: 60 s)")


if __name__ == "__main__":
    main()

# pyright: reportArgumentType=false
# (of pandas without stubs, every expression may be of any type)
"""Spot availability of zones that were left out: spells, groups, promises, cost of the chosen policy, a calm fleet, prices.

    python experiments/cloud/spot/run.py --data FOLDER [--only spells|groups|promises|calm|prices] [--starts 20]

FOLDER holds the tables of the traces (`spot_runs.csv.gz`, `spot_traces_meta.csv`, `gcp_preemptible_lifetimes.csv`,
`gcp_gpu_price_history.csv.gz`). Whole zones are left out: nothing of a zone is in the population that predicts it. Takes about
twenty minutes on two cores.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import pandas as pd

import inference
from experiments.cloud.spot import calm as calm_fleet, groups as group_losses, prices as price_series, promise, tables
from experiments.common import start

BEST_KS, BEST_GAP, BEST_RATIO, BEST_KEPT = 0.15, 0.05, 1.10, 0.95  # bars


def main() -> None:
    """Prints the figures of the parts that were asked for."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--only", choices=tuple(PARTS))
    options.add_argument("--starts", type=int, default=20, help="moments of each trace at which a job begins")
    chosen = options.parse_args()
    start()
    for name, part in PARTS.items():
        if chosen.only in (None, name):
            part(chosen.data, chosen.starts)


def spells(folder: Path, _: int) -> None:
    """Log density of the spells of zones left out, nats per spell over each family."""
    measured = inference.measured(tables.long_traces(folder), "revocation")
    found = inference.holdout(measured, model="revocation", column="zone", key=jax.random.key(0))
    print("spells of zones left out, nats per spell over exponential, Weibull, log-normal: up; gaps")
    better = dict.fromkeys(("exponential", "weibull"), 0)
    for score in sorted(found.scores, key=lambda score: score.group):
        figures = score.extra
        text = [
            " ".join(f"{figures[f'{q}_gain_over_{name}']:7.3f}" for name in ("exponential", "weibull", "log-normal"))
            for q in ("up", "down")
        ]
        print(f"  {score.group:<12} {text[0]} ; {text[1]}")
        for name in better:
            better[name] += int(figures[f"up_better_than_{name}"])
    for name, n in better.items():
        print(f"  better than {name}: {n} of {len(found.scores)}")


def groups(folder: Path, _: int) -> None:
    """Nodes alive six hours after a launch, zones left out."""
    table = tables.traces(folder)
    print("nodes alive six hours after all came up: launches, none, predicted, KS, independent, past known")
    for name, rows in table[table["requested_nodes"] > 1].groupby("trace_id"):
        found = group_losses.of_group(table, rows, 0)
        print(
            f"  {name:<55} {found['launches']:4.0f} {found['none_alive']:.3f} {found['none_alive_predicted']:.3f}"
            f" {found['ks']:.3f} {found['ks_independent']:.3f} {found['ks_known_past']:.3f}",
            flush=True,
        )
    print(f"  bar: {BEST_KS}")


def promises(folder: Path, n_start: int) -> None:
    """Promised deadlines and what came of them; cost of the chosen policy."""
    table = tables.long_traces(folder)
    parts = []
    for zone in sorted(table["zone"].unique()):
        parts.append(promise.of_zone(table, zone, n_start, 0))
        spot = parts[-1][parts[-1]["policy"] == "spot"]
        print(f"  {zone}: promised {spot['promised'].mean():.3f}, kept {spot['kept'].mean():.3f}", flush=True)
    found = pd.concat(parts, ignore_index=True)
    for name in promise.MENU[1:]:
        gap, by = promise.reliability_gap(found[found["policy"] == name])
        print(
            f"reliability curve, {name}: mean absolute gap {gap:.3f}" + (f" (bar {BEST_GAP})" if name == "spot" else "")
        )
        print(by.round(3).to_string())
    chosen, best = promise.chosen_rows(found), promise.best_fixed(found)
    rule = found[found["policy"] == "spot_with_fallback"]
    for name, rows in (
        ("chosen", chosen),
        ("Can't Be Late", rule),
        ("on demand", found[found["policy"] == "on_demand"]),
    ):
        ratio = rows["paid_usd"].sum() / best["paid_usd"].sum()
        print(
            f"cost over the best fixed policy in hindsight, {name}: {ratio:.3f}, deadlines kept {rows['kept'].mean():.3f}"
        )
    print(f"  bars: {BEST_RATIO}, {BEST_KEPT}; the best fixed policies keep {best['kept'].mean():.3f}")
    print("  chosen: " + ", ".join(f"{name} {n}" for name, n in chosen["policy"].value_counts().items()))


def calm(folder: Path, _: int) -> None:
    """Instances that reach the limit of 24 hours, zones left out."""
    lives = tables.lifetimes(folder)
    print("instances that reach 24 hours: instances, share, predicted, 90% interval")
    for zone in sorted(lives["zone"].unique()):
        found = calm_fleet.of_zone(lives, zone, 0)
        print(
            f"  {zone:<16} {found['instances']:3.0f} {found['reached']:.3f} {found['predicted']:.3f}"
            f" {found['p5']:.3f} to {found['p95']:.3f}",
            flush=True,
        )


def prices(folder: Path, _: int) -> None:
    """Spot prices three months on."""
    n, inside, same = price_series.coverage(folder)
    print(f"spot prices three months on, {n} forecasts: inside the 90% interval {inside:.3f}; unchanged {same:.3f}")


PARTS = {"spells": spells, "groups": groups, "promises": promises, "calm": calm, "prices": prices}

if __name__ == "__main__":
    main()

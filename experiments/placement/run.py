"""Where a slow node hurts: p95 by the pipeline stage it sits in, the cost of one hot node, and both at 65,536 GPUs.

    python experiments/placement/run.py [--only JOB ...] [--check] [--plot placement.png]

Prints each figure beside the published one and writes `expected.json`; `--check` compares instead and exits with 1 where a figure
has moved by more than its tolerance.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from experiments.common import check, known, start
from experiments.placement.plot import draw
from experiments.placement.stages import Stages, by_stage
from prism_jax import Job, load_job

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected.json"
PUBLISHED_RANGE, PUBLISHED_MOST, PUBLISHED_HOT = (0.080, 0.156), 1.26, (0.09, 0.35)


def study(config: Mapping[str, Any], only: list[str]) -> dict[str, list[Stages]]:
    """Job -> one entry per slowdown."""
    found = {}
    for name in only:
        own = config["jobs"][name]
        job = load_job(own["job"], own["set"])
        started = time.perf_counter()
        slowdowns: list[float] = sorted(
            {*config["slowdowns"], *(config["hot_slowdowns"] if name in config["hot"] else [])}
        )
        n_sample = own.get("n_sample", config["n_sample"])
        found[name] = [by_stage(job, slowdown, n_sample, config["seed"]) for slowdown in slowdowns]
        report(name, job, found[name], time.perf_counter() - started)
    return found


def report(name: str, job: Job, found: list[Stages], elapsed_s: float) -> None:
    """A table of one job."""
    plan = job.plan
    print(
        f"\n{name}: {plan.n_devices:,} GPUs, pp {plan.pp} x {plan.virtual_stages} chunks, {plan.schedule}, "
        f"{plan.n_micro_batch} micro-batches, {plan.n_replica} replicas ({elapsed_s:.0f} s)"
    )
    print("  slow node   p95 over none: best stage   worst stage   worst over best   inner stages")
    for one in found:
        best, worst = int(one.over.argmin()), int(one.over.argmax())
        print(
            f"  {one.slowdown - 1:>+8.0%}   {one.over[best] - 1:>+16.1%} ({best:>2}) {one.over[worst] - 1:>+12.1%} ({worst:>2}) "
            f"{one.spread:>12.1%} {one.inner_spread:>15.1%}"
        )


def headline(found: Mapping[str, list[Stages]]) -> None:
    """The figures beside the published ones."""
    low, high = PUBLISHED_RANGE
    spreads = {(name, one.slowdown): one.spread for name, all_of in found.items() for one in all_of}
    inside = [
        f"{name} at {slow - 1:+.0%} ({spread:.1%})" for (name, slow), spread in spreads.items() if low <= spread <= high
    ]
    outside = [spread for spread in spreads.values() if not low <= spread <= high]
    (name, slow), most = max(spreads.items(), key=lambda item: item[1])
    print(f"\n1. p95 by the stage of one slow rank: published {low:.1%} to {high:.1%}")
    print(f"   inside: {'; '.join(inside) or 'none'}")
    if outside:
        print(f"   outside: {len(outside)} settings, {min(outside):.1%} to {max(outside):.1%}")
    inner = [one.inner_spread for all_of in found.values() for one in all_of]
    print(f"   inner stages alone, which do the same work: {min(inner):.1%} to {max(inner):.1%}")
    print(f"   most: {1 + most:.2f}x ({name} at {slow - 1:+.0%}); published up to {PUBLISHED_MOST:.2f}x")
    costs = [(name, one.slowdown, float(np.median(one.over)) - 1.0) for name, all_of in found.items() for one in all_of]
    low, high = PUBLISHED_HOT
    print(f"2. one hot node, median over stages: published {low:.0%} to {high:.0%}")
    for name in found:
        own = [(slow, cost) for n, slow, cost in costs if n == name and low <= cost <= high]
        slows = (
            f"{own[0][0] - 1:.0%} to {own[-1][0] - 1:.0%} slower: {own[0][1]:.0%} to {own[-1][1]:.0%}"
            if own
            else "never"
        )
        print(f"   {name:<30} {slows}")


def as_expected(found: Mapping[str, list[Stages]]) -> dict[str, dict[str, float]]:
    """As `expected.json` has it."""
    return {
        f"{name} {one.slowdown:g}": {
            "spread": round(one.spread, 4),
            "best": round(float(one.over.min() - 1.0), 4),
            "worst": round(float(one.over.max() - 1.0), 4),
        }
        for name, all_of in found.items()
        for one in all_of
    }


def main() -> int:
    start()
    config = yaml.safe_load((HERE / "config.yaml").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(config["jobs"]), default=list(config["jobs"]))
    parser.add_argument("--check", action="store_true", help="compare with expected.json instead of writing it")
    parser.add_argument("--plot", metavar="FILE", help="write a picture")
    asked = parser.parse_args()
    found = study(config, asked.only)
    headline(found)
    if asked.plot:
        Path(asked.plot).write_bytes(draw(found, config))
    figures = as_expected(found)
    if asked.check:
        return check(figures, EXPECTED)
    kept = {name: own for name, own in known(EXPECTED).items() if name.split()[0] in config["jobs"]} | figures
    EXPECTED.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

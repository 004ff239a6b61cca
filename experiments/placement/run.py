"""Where a slow node hurts: p95 by the pipeline stage it sits in, the cost of one hot node, and both at 65,536 GPUs.

    python experiments/placement/run.py [--only JOB ...] [--check] [--plot placement.png]

Prints each figure beside the published one and writes `expected.json`; `--check` compares instead and exits with 1 where a figure
has moved by more than its tolerance.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from prism_jax.start_jax import start_jax  # noqa: E402

start_jax()

import jax  # noqa: E402
import numpy as np  # noqa: E402
import yaml  # noqa: E402

from prism_jax import Job, load_job  # noqa: E402
from prism_jax.placement.draws import Draws  # noqa: E402
from prism_jax.placement.evaluator import problem_of, score  # noqa: E402
from prism_jax.placement.fleet import fleet_of  # noqa: E402
from prism_jax.placement.objective import values  # noqa: E402

EXPECTED = HERE / "expected.json"
TOLERANCE = 0.004  # of a share: other draws, other libraries
PUBLISHED_RANGE, PUBLISHED_MOST, PUBLISHED_HOT = (0.080, 0.156), 1.26, (0.09, 0.35)
N_BATCH = 8


@dataclass(frozen=True)
class Stages:
    """p95 with one slow node, by the stage it sits in.

    Attributes:
        slowdown: of the node.
        over: [stage] p95 over the p95 without a slow node.
    """

    slowdown: float
    over: np.ndarray

    @property
    def spread(self) -> float:
        """p95 of the worst stage over that of the best, less one."""
        return float(self.over.max() / self.over.min() - 1.0)

    @property
    def inner_spread(self) -> float:
        """The same without the first and the last stage, which hold the embedding, the head, or a layer less."""
        return float(self.over[1:-1].max() / self.over[1:-1].min() - 1.0)


def by_stage(job: Job, slowdown: float, n_sample: int, seed: int) -> Stages:
    """One slow node in every stage in turn, in the first replica; all other nodes are nominal."""
    n_node = job.plan.n_devices // job.cluster.node_size
    slow = np.ones(n_node)
    slow[0] = slowdown
    problem = problem_of(job, fleet_of(slow, job.cluster.node_size))
    seats = []
    for lane in range(problem.slots.n_lane):
        seat, slot = np.arange(n_node, dtype=np.int32), int(problem.slots.slot[lane, 0, 0])
        seat[[0, slot]] = seat[[slot, 0]]
        seats.append(seat)
    draws = Draws(jax.random.key(seed), n_sample)
    alike = problem_of(job, fleet_of(np.ones(n_node), job.cluster.node_size))
    size = max(8, n_sample // N_BATCH)
    base = values(score(alike, np.arange(n_node, dtype=np.int32)[None], draws, chunk=size), "p95")[0]
    return Stages(slowdown, values(score(problem, np.stack(seats), draws, chunk=size), "p95") / base)


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


def moved(found: dict[str, dict[str, float]]) -> list[str]:
    """What is not as expected, in words."""
    expected = json.loads(EXPECTED.read_text())
    return [
        f"{name} {key}: {value:.4f}, expected {expected[name][key]:.4f}"
        for name, own in found.items()
        for key, value in own.items()
        if abs(value - expected[name][key]) > TOLERANCE
    ]


def main() -> int:
    config = yaml.safe_load((HERE / "config.yaml").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(config["jobs"]), default=list(config["jobs"]))
    parser.add_argument("--check", action="store_true", help="compare with expected.json instead of writing it")
    parser.add_argument("--plot", metavar="FILE", help="write a picture")
    asked = parser.parse_args()
    found = study(config, asked.only)
    headline(found)
    if asked.plot:
        from plot import draw

        Path(asked.plot).write_bytes(draw(found, config))
    figures = as_expected(found)
    if asked.check:
        lines = moved(figures)
        print("\n".join(lines) or "as expected")
        return 1 if lines else 0
    known = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    kept = {name: own for name, own in known.items() if name.split()[0] in config["jobs"]} | figures
    EXPECTED.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

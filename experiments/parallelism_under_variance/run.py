"""How the best plan changes when GPUs and networks vary more, what ignoring that costs, and which kernels to stabilise first.

    python experiments/parallelism_under_variance/run.py [--only JOB ...] [--check] [--plot parallelism.png]

Prints each figure beside the published one and writes `expected.json`; `--check` compares instead and exits with 1 where a figure
has moved by more than its tolerance.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import yaml

from experiments.common import check_or_keep, start
from experiments.parallelism_under_variance.plot import draw
from prism_jax import Job, load_job, predict
from prism_jax.core.kernels import COLLECTIVES, COMPUTE_CLASSES
from prism_jax.result.objective import OBJECTIVES, PlanObjective
from prism_jax.search.evaluate import Evaluator, TailScorer
from prism_jax.search.exhaustive import search
from prism_jax.search.figures import plan_facts
from prism_jax.search.plan_table import PlanTable
from prism_jax.search.space import default_space
from prism_jax.variability.tree import Variability

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected.json"
TOLERANCES = {"tp": 0.5, "pp": 0.5}  # counts
N_SEEDS, N_COLUMN = 8, 512
Figures = dict[str, dict[str, float]]


def best_plans(name: str, values: dict[str, list[Any]], config: dict[str, Any]) -> Figures:
    """Per scale of the variability: the best plan, its p95, and what the plan that ignores variability costs more."""
    job, found = load_job(name), {}
    space = replace(
        default_space(job, any_framework=True), **{knob: tuple(allowed) for knob, allowed in values.items()}
    )
    print(f"-- {name}: best plan by p95")
    calm = None
    for scale in config["scales"]:
        varied = replace(job, variability=job.variability.scaled(scale))
        study = search(varied, space, seed=config["seed"], top=3)
        plan = study.best.plan
        calm = calm or plan
        best_s, ignored_s = (_p95(varied, one, config["seed"]) for one in (plan, calm))
        tail = best_s / study.best.step_s
        found[f"{name} x{scale:g}"] = {"tail": tail, "ignoring": ignored_s / best_s - 1.0, "pp": plan.pp, "tp": plan.tp}
        print(
            f"  x{scale:<3g} p95 {best_s:7.3f} s ({tail - 1.0:6.2%} over noise-free), ignoring variability costs "
            f"{ignored_s / best_s - 1.0:6.2%}: {plan_facts(plan).words}"
        )
    return found


def _p95(job: Job, plan: Any, seed: int) -> float:
    """p95 on draws that the search has not seen."""
    evaluator, p95 = Evaluator(job, default_space(job, any_framework=True)), PlanObjective(OBJECTIVES.named("p95"))
    scorers = [TailScorer(evaluator, 70_000 + seed + k) for k in range(N_SEEDS)]
    return float(np.mean([p95.of(scorer.samples_of(PlanTable.of(plan), N_COLUMN))[0] for scorer in scorers]))


def stabilised(name: str, setting: dict[str, Any], config: dict[str, Any]) -> Figures:
    """Per kernel class: the share of p95 over p50 and of p95 over noise-free that disappears with its variability."""
    job = load_job(setting.get("job", name), setting.get("set", []))
    job = replace(job, variability=_network(job.variability, setting.get("network", 1.0)))
    key = jax.random.key(config["seed"])
    whole = predict(job, key=key, n_samples=config["n_samples"])
    excess = whole.quantile(0.95) - whole.deterministic_s
    spread = whole.quantile(0.95) - whole.quantile(0.5)
    found = {}
    for kernel in (*COMPUTE_CLASSES, *COLLECTIVES):
        if kernel in job.variability.classes and not job.variability.of(kernel).is_zero:
            calm = predict(
                replace(job, variability=job.variability.without(kernel)), key=key, n_samples=config["n_samples"]
            )
            found[kernel] = {
                "excess": (whole.quantile(0.95) - calm.quantile(0.95)) / excess,
                "spread": 1.0 - (calm.quantile(0.95) - calm.quantile(0.5)) / spread,
            }
    print(
        f"-- {name}: what goes when one kernel no longer varies (p95 - noise-free {excess:.3f} s, p95 - p50 {spread:.3f} s)"
    )
    for kernel, own in sorted(found.items(), key=lambda item: -item[1]["spread"]):
        print(f"  {kernel:<15} {own['spread']:7.1%} of p95 - p50, {own['excess']:7.1%} of p95 - noise-free")
    return {f"{name} {kernel}": own for kernel, own in found.items()}


def _network(tree: Variability, scale: float) -> Variability:
    """The tree with every communication class varying `scale` times as much."""
    classes = {name: own.scaled(scale) if name in COLLECTIVES else own for name, own in tree.classes.items()}
    return replace(tree, classes=classes)


def main() -> int:
    start()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=None, help="jobs")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--plot", metavar="FILE")
    arguments = parser.parse_args()
    config = yaml.safe_load((HERE / "config.yaml").read_text())
    started, plans, kernels = time.perf_counter(), {}, {}
    for name, values in config["jobs"].items():
        if arguments.only is None or name in arguments.only:
            plans |= best_plans(name, values or {}, config)
    for name, setting in config["stabilise"].items():
        if arguments.only is None or name in arguments.only:
            kernels |= stabilised(name, setting, config)
    print("published (PRISM, arXiv 2510.15596 v1): stabilise all-gather and reduce-scatter first")
    print(f"{time.perf_counter() - started:.0f} s")
    if arguments.plot:
        Path(arguments.plot).write_bytes(draw(plans, kernels))
    return check_or_keep(plans | kernels, EXPECTED, arguments.check, TOLERANCES)


if __name__ == "__main__":
    sys.exit(main())

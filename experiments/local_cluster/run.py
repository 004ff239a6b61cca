"""Predict runs that were not used for fitting, and compare with what they measured.

python experiments/local_cluster/run.py out/local_cluster [--json]

Reads what `record.py` wrote: <folder>/<scenario>/<run>/rank<r>.json.gz. Without PyTorch. Where it was recorded with `--kernels`,
one more way draws the kernels anew.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from job import Job
from kernels import joined_kernels
from record import SCENARIOS

from prism_jax.recorded.cross_validation import fit_and_predict, independent_pools
from prism_jax.recorded.edits import with_slower_worker
from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.recorded.prediction import TracePrediction, ks_distance
from prism_jax.recorded.recorded_job import fit_job
from prism_jax.recorded.replay import replay, replay_program
from prism_jax.recorded.unseen_steps import N_REFIT, predict_job
from prism_jax.trace.dependencies import durations
from prism_jax.trace.pipeline import dependencies
from prism_jax.trace.step_log import StepLog
from prism_jax.trace.trace import Trace

SEED, N_DRAW = 0, 40_000
P95_BAR, KS_BAR = 0.05, 1.3  # relative error; times the distance between runs


class Predicted(NamedTuple):
    """What one way of predicting says.

    Attributes:
        p95_s: number of steps -> mean p95 of as many steps.
        draws_s: step times.
    """

    p95_s: Callable[[int], float]
    draws_s: np.ndarray


Predict = Callable[[Trace], Predicted]


def fitted(trace: Trace) -> Predicted:
    """The product: fit the job, draw new steps."""
    return kernels_drawn(replace(trace, kernels=None))


def kernels_drawn(trace: Trace) -> Predicted:
    """The product with `--kernels`: kernels inside every operation are drawn anew, too."""
    n_test = len(trace.steps)
    found, _ = fit_and_predict(trace, seed=SEED, n_draw=N_DRAW, n_test=n_test)
    return Predicted(lambda n: found.expected(0.95, n), found.step_s)


def recorded_steps(trace: Trace) -> Predicted:
    """The step times of the runs that are fitted on, as they are."""
    return Predicted(lambda _: float(np.quantile(trace.step_s, 0.95)), trace.step_s)


def pooled_ops(trace: Trace) -> Predicted:
    """Every op drawn by itself from the pool of its kind (the published way)."""
    drawn = independent_pools(trace, seed=SEED, n_draw=N_DRAW)
    found = TracePrediction(drawn[None])
    return Predicted(lambda n: found.expected(0.95, n), drawn)


WAYS: dict[str, Predict] = {"predicted": fitted, "recorded steps": recorded_steps, "independent pools": pooled_ops}
KERNELS = "kernels drawn anew"


def runs_of(folder: Path) -> list[Trace]:
    """Traces of all runs of a scenario, by name of the run."""
    found = [open_trace(run, kernels=True) for run in sorted(folder.iterdir()) if run.is_dir()]
    if any(isinstance(run, StepLog) for run in found) or len(found) < 2:
        raise SystemExit(f"{folder}: needs at least two runs with rank<r>.json.gz each, as record.py writes them")
    return [run for run in found if isinstance(run, Trace)]


def joined(runs: list[Trace]) -> Trace:
    """One trace with the steps of all `runs`, which do the same ops."""
    first = runs[0]
    rows = [[run.ops.index(op) for op in first.ops] for run in runs]
    return replace(
        first,
        steps=np.arange(sum(len(run.steps) for run in runs)),
        start_s=np.concatenate([run.start_s[row] for run, row in zip(runs, rows, strict=True)], axis=-1),
        end_s=np.concatenate([run.end_s[row] for run, row in zip(runs, rows, strict=True)], axis=-1),
        kernels=joined_kernels(runs),
    )


def scores(runs: list[Trace], predict: Predict) -> dict[str, dict[str, float]]:
    """Scores of `predict` when it sees all runs but the one it is scored on, and when it sees a single other one."""
    n = len(runs)
    others = [([r for r in range(n) if r != held], held) for held in range(n)]
    single = [([fit], held) for fit, held in permutations(range(n), 2)]
    seen: dict[tuple[int, ...], Predicted] = {}
    found = {}
    for name, splits in (("all other runs", others), ("one other run", single)):
        rows = []
        for fit, held in splits:
            key = tuple(fit)
            if key not in seen:
                seen[key] = predict(joined([runs[r] for r in fit]))
            rows.append(_score(seen[key], runs[held].step_s))
        found[name] = _mean(rows)
    return found


def _score(predicted: Predicted, measured_s: np.ndarray) -> dict[str, float]:
    error = predicted.p95_s(len(measured_s)) / float(np.quantile(measured_s, 0.95)) - 1.0
    return {"p95_error": error, "p95_abs_error": abs(error), "ks": ks_distance(predicted.draws_s, measured_s)}


def _mean(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def between_runs(runs: list[Trace]) -> dict[str, float]:
    """How much runs differ from each other: KS distance and p95, means over pairs."""
    pairs = list(permutations(range(len(runs)), 2))
    rows = [_score(recorded_steps(runs[a]), runs[b].step_s) for a, b in pairs]
    return {name: value for name, value in _mean(rows).items() if name != "p95_error"}


def replayed(run: Trace) -> dict[str, float]:
    """Step times recomputed from the durations of the ops over those recorded, minus one."""
    needs = dependencies(run)
    program, (run_s, gap_s) = replay_program(run, needs), durations(run, needs)
    exact, free = replay(program, run_s, gap_s) / run.step_s - 1.0, replay(program, run_s) / run.step_s - 1.0
    return {"with_gaps_max_abs": float(np.abs(exact).max()), "without_gaps_mean": float(free.mean())}


def what_if(runs: list[Trace], slow_runs: list[Trace], slow: dict[str, int]) -> dict[str, float]:
    """The slow process predicted from runs without it, against the runs with it; all steps of either side together."""
    job = fit_job(replace(joined(runs), kernels=None))
    measured_s = np.concatenate([run.step_s for run in slow_runs])
    key, n_draw = jax.random.key(SEED), N_REFIT * len(measured_s)
    before = predict_job(job, key=key, n_draw=n_draw)
    after = predict_job(with_slower_worker(job, slow["slow_rank"], Job.slow_factor), key=key, n_draw=n_draw)
    found = {"ks": ks_distance(after.step_s, measured_s)}
    for name, p in (("p50", 0.5), ("p95", 0.95)):
        measured = float(np.quantile(measured_s, p))
        found |= {
            f"{name}_error": after.quantile(p) / measured - 1.0,
            f"{name}_unchanged": before.quantile(p) / measured - 1.0,
        }
    return found


def scenario(runs: list[Trace]) -> dict:
    """Everything about one scenario."""
    step_s = np.concatenate([run.step_s for run in runs])
    quantiles = {name: float(np.quantile(step_s, p)) for name, p in (("p5", 0.05), ("p50", 0.5), ("p95", 0.95))}
    ways = WAYS if joined_kernels(runs) is None else {**WAYS, KERNELS: kernels_drawn}
    return {
        "runs": len(runs),
        "steps": len(step_s),
        "step_s": quantiles,
        "replay": _mean([replayed(run) for run in runs]),
        "between_runs": between_runs(runs),
        "ways": {name: scores(runs, way) for name, way in ways.items()},
    }


def verdict(found: dict) -> str:
    """Whether the prediction from all other runs is as good as asked."""
    score, between = found["ways"]["predicted"]["all other runs"], found["between_runs"]
    p95 = "yes" if score["p95_abs_error"] <= P95_BAR else "NO"
    ks = "yes" if score["ks"] <= KS_BAR * between["ks"] else "NO"
    return f"p95 within {P95_BAR:.0%} (mean abs): {p95}; KS within {KS_BAR:g} x that between runs: {ks}"


def lines(name: str, found: dict) -> list[str]:
    """Text of one scenario."""
    step, back, between = found["step_s"], found["replay"], found["between_runs"]
    text = [
        f"{name}: {found['runs']} runs, {found['steps']} steps, p5 {step['p5'] * 1e3:.0f}, p50 {step['p50'] * 1e3:.0f}, "
        f"p95 {step['p95'] * 1e3:.0f} ms",
        f"  replay: at most {back['with_gaps_max_abs']:.1e} off with host gaps, {back['without_gaps_mean']:+.1%} without",
        f"  between runs: KS {between['ks']:.3f}, p95 {between['p95_abs_error']:.1%}",
    ]
    for way, score in found["ways"].items():
        text += [
            f"  {way} from {fit}: p95 {s['p95_error']:+.1%} (mean abs {s['p95_abs_error']:.1%}), KS {s['ks']:.3f}"
            for fit, s in score.items()
        ]
    if changed := found.get("what_if"):
        text.append(
            f"  from runs without the slow process: p50 {changed['p50_error']:+.1%}, p95 {changed['p95_error']:+.1%}, "
            f"KS {changed['ks']:.3f} (unchanged: p50 {changed['p50_unchanged']:+.1%}, p95 {changed['p95_unchanged']:+.1%})"
        )
    return [*text, f"  {verdict(found)}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what record.py wrote")
    parser.add_argument("--json", action="store_true", help="one object instead of text")
    args = parser.parse_args()
    runs = {path.name: runs_of(path) for path in sorted(args.folder.glob("[!.]*")) if path.is_dir()}
    found: dict[str, dict] = {}
    for name, own in runs.items():
        found[name] = scenario(own)
        calm = name.removesuffix("-slow")
        if calm != name and calm in runs and name in SCENARIOS:
            found[name]["what_if"] = what_if(runs[calm], own, SCENARIOS[name])
        if not args.json:
            print("\n".join(lines(name, found[name])), flush=True)
    if args.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

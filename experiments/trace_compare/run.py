"""How often `trace compare` calls runs of one program different, and finds steps that are 2% longer.

    python -m experiments.trace_compare.run --data ../shared/data [--check]

Pairs of runs of one group (one program, same settings as far as is known) of modded-nanogpt. Half of the groups chose the usual
spread of runs; the other half scores it. Prints the shares and writes them into `expected.json`; with `--check` it compares with
that file instead, and exits with 1 where one has moved.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.common import check_or_keep, start
from prism_jax.recorded.compare_recordings import compare_recordings
from prism_jax.recorded.paired_runs import FEWEST_STEPS
from prism_jax.trace.step_log import StepLog

HERE = Path(__file__).parent
N_PAIR = 200
LONGER = 1.02
NEAR = 0.1  # of the run, within which a step counts as found
SOURCE = "KellerJordan/modded-nanogpt"


def read_runs(data: Path) -> dict[str, list[StepLog]]:
    """Group -> its runs, of groups with two runs or more."""
    runs = pd.read_csv(data / "variability" / "training_runs.csv.gz")
    steps = pd.read_csv(data / "variability" / "training_steps.csv.gz")
    named = zip(*(np.asarray(runs[name]) for name in ("run_id", "group", "source")), strict=True)
    group_of = {run_id: str(group) for run_id, group, source in named if source == SOURCE}
    found: dict[str, list[StepLog]] = {}
    for run_id, own in steps[steps["dt_ms"] > 0].groupby("run_id"):
        if run_id in group_of and len(own) >= FEWEST_STEPS:
            columns = {name: np.asarray(own[name]) for name in ("step", "dt_ms", "n_steps")}
            n_steps = columns["n_steps"]
            log = StepLog(
                f"run {run_id}",
                str(run_id),
                columns["step"].astype(np.int64),
                columns["dt_ms"] / 1e3 / n_steps,
                n_steps.astype(np.int32),
            )
            found.setdefault(group_of[run_id], []).append(log)
    return {name: logs for name, logs in sorted(found.items()) if len(logs) > 1}


def halves(groups: Mapping[str, object]) -> dict[str, list[str]]:
    """Groups that chose the spread, and those that score it."""
    order = np.random.default_rng(0).permutation(sorted(groups)).tolist()
    return {"chosen on": order[::2], "scored": order[1::2]}


def slower_from(log: StepLog, entry: int) -> StepLog:
    """The log with all steps from an entry on 2% longer."""
    step_s = log.step_s.copy()
    step_s[entry:] *= LONGER
    return replace(log, step_s=step_s)


def score(runs: Mapping[str, list[StepLog]], names: list[str], seed: int) -> dict[str, float]:
    """Shares of pairs that are called different as they are, slower where all steps of B are longer, and from its middle on."""
    rng = np.random.default_rng(seed)
    counts = dict.fromkeys(("called different", "2% longer", "2% longer from the middle", "with the step"), 0)
    for _ in range(N_PAIR):
        logs = runs[names[rng.integers(len(names))]]
        a, b = (logs[i] for i in rng.choice(len(logs), 2, replace=False))
        middle = len(b) // 2
        counts["called different"] += compare_recordings([a, b]).result != "same"
        counts["2% longer"] += compare_recordings([a, slower_from(b, 0)]).result == "slower"
        late = compare_recordings([a, slower_from(b, middle)])
        counts["2% longer from the middle"] += late.result == "slower"
        span = int(b.step[-1] - b.step[0])
        is_near = late.change is not None and abs(late.change.step - int(b.step[middle])) <= NEAR * span
        counts["with the step"] += late.result == "slower" and is_near
    return {name: n / N_PAIR for name, n in counts.items()}


def main() -> int:
    """Exit code."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--check", action="store_true", help="compare with expected.json instead of writing it")
    chosen = options.parse_args()
    start()
    runs = read_runs(chosen.data)
    parts = {**halves(runs), "all": sorted(runs)}
    found = {part: score(runs, names, seed) for seed, (part, names) in enumerate(parts.items())}
    for part, shares in found.items():
        print(f"{part:10s} {len(parts[part]):4d} groups  " + ", ".join(f"{name} {x:.1%}" for name, x in shares.items()))
    return check_or_keep(found, HERE / "expected.json", chosen.check, dict.fromkeys(found["all"], 0.011))


if __name__ == "__main__":
    sys.exit(main())

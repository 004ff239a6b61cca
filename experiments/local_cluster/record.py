"""Record the runs that `run.py` scores: every scenario several times, scenarios taking turns, so that a slow quarter of an hour
of the machine falls on all of them alike.

python experiments/local_cluster/record.py --out out/local_cluster [--runs 6] [--steps 80] [--scenarios 1x2 1x2-slow] [--kernels]

Needs PyTorch (2.13 was used) and a machine that does nothing else. Runs that are there already are kept.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from job import Job
from train import UNEVEN_SIGMA, train

SCENARIOS = {
    "2x2": {"dp": 2, "pp": 2},
    "2x2-slow": {"dp": 2, "pp": 2, "slow_rank": 3},
    "1x2": {"dp": 1, "pp": 2},
    "1x2-slow": {"dp": 1, "pp": 2, "slow_rank": 1},
}


def record(out: Path, names: list[str], n_run: int, n_step: int, kernels: bool = False) -> None:
    """Record `n_run` runs of `n_step` steps of every scenario into `out`/<scenario>/run<i>.

    `runs.json` says how busy the machine was before each.
    """
    log = out / "runs.json"
    rows = json.loads(log.read_text()) if log.exists() else []
    for run in range(n_run):
        for name in names:
            job = Job(seed=run, n_step=n_step, sigma=UNEVEN_SIGMA, **SCENARIOS[name])
            folder = out / name / f"run{run}"
            if all((folder / f"rank{rank}.json.gz").exists() for rank in range(job.n_rank)):
                continue
            load, cores = os.getloadavg()[0], own_cores(job.n_rank)
            seconds = train(job, folder, cores, kernels)
            rows.append(
                {"scenario": name, "run": run, "bound": bool(cores), "load_before": load, "seconds": round(seconds)}
            )
            log.write_text(json.dumps(rows, indent=1) + "\n")
            print(f"{folder}: {seconds:.0f} s, load before {load:.2f}", flush=True)


def own_cores(n_rank: int) -> list[int]:
    """A core for every process if there are enough, else none: the operating system shares them better than a fixed choice."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return cores[:n_rank] if len(cores) >= n_rank else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--kernels", action="store_true", help="keep single operators with their shapes")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    record(args.out, args.scenarios, args.runs, args.steps, args.kernels)


if __name__ == "__main__":
    main()

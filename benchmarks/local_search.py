"""Local search against exhaustive search: how far behind the optimum it ends, and in which share of the time.

    python benchmarks/local_search.py [--jobs gpt3_175b_1024 ...] [--seeds 0] [--warm]

Every search runs in a process of its own with an empty compilation cache; seconds are of the search (imports apart). With --warm
each process searches twice: the first time is cold, the second warm. The gap is that of the p95 of the two best plans on draws
that neither search has seen. Seconds are of this machine, beside whatever else it runs; ratios are of one run.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prism_jax.search.study import Study

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
JOBS = (
    "deepseek_v3_2048",  # experts; the largest space
    "gpt3_175b_1024",  # dense
    "llama2_7b_fsdp_64",  # small
    "llama3_405b_16384_131k",  # long context
    "llama3_405b_16384",  # many devices
)
Found = tuple["Study", int, list[float]]  # the last study without its screen, its plans, seconds of every search


def child(job: str, method: str, seed: int, times: int, into: str) -> None:
    """Searches in this process, one after the other."""
    import numpy as np

    from experiments.common import start
    from prism_jax import load_job
    from prism_jax.search.evaluate import ScreeningResult
    from prism_jax.search.exhaustive import search
    from prism_jax.search.local_search import local_search

    start()
    run = search if method == "exhaustive" else local_search
    seconds = []
    for _ in range(times):
        study = run(load_job(str(EXAMPLES / f"{job}.yaml")), seed=seed)
        seconds.append(study.elapsed_s)
    nothing = np.zeros(0)
    empty = ScreeningResult(nothing.astype(np.uint8), nothing, nothing, nothing, nothing.astype(np.intp))
    with open(into, "wb") as file:
        pickle.dump((replace(study, screen=empty), study.screen.n_plans, seconds), file)


def found(job: str, method: str, seed: int, times: int) -> Found:
    """One search in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        into = str(Path(folder) / "study.pkl")
        env = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(Path(folder) / "cache")}
        command = [sys.executable, __file__, "--child", job, method, str(seed), str(times), into]
        subprocess.run(command, env=env, check=True)
        with open(into, "rb") as file:
            return pickle.load(file)


def compare(job: str, seeds: list[int], times: int) -> None:
    """One exhaustive search, and a local search per seed."""
    from prism_jax.search.local_search import gap

    reference, n_plans, exhaustive_s = found(job, "exhaustive", 0, times)
    for seed in seeds:
        own, n_seen, local_s = found(job, "local", seed, times)
        behind, error = gap(own, reference)
        same = "same plan" if own.best.plan == reference.best.plan else "another plan"
        for state, slow, fast in zip(("cold", "warm"), exhaustive_s, local_s, strict=False):
            print(
                f"{job:<24} {state} {n_plans:>12,} {slow:>12.1f} {seed:>6} {n_seen:>8,} {fast:>10.1f} "
                f"{fast / slow:>7.1%} {behind:>+9.3%} +- {error:.3%}  {same}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="+", default=list(JOBS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        job, method, seed, times, into = asked.child
        child(job, method, int(seed), int(times), into)
        return
    print(f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(
        "job                                  plans   exhaustive   seed     seen      local   share       gap (bar: 0.5%)"
    )
    for job in asked.jobs:
        compare(job, asked.seeds, 2 if asked.warm else 1)


if __name__ == "__main__":
    main()

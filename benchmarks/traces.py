"""Recorded jobs: replay, straggler figures, predictions of held-out steps, extrapolation to more replicas, time and memory.

python benchmarks/traces.py [--data ../shared/data/traces] [--seeds 3]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from prism_jax.core.processes import start_jax
from prism_jax.recorded.cross_validation import score_split, splits
from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.recorded.prediction import mean_of_splits
from prism_jax.recorded.replay import replay_recorded, stragglers
from prism_jax.recorded.report import SplitScore
from prism_jax.trace.trace import Trace

ROOT = Path(__file__).resolve().parents[1]
N_SPLIT, N_DRAW = 20, 4000
PUBLISHED = {"SE": (1.53736, 0.02506, 0.6877), "ST": (1.17870, 0.0314, 1.2194)}


def main() -> None:
    start_jax()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "traces")
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    for name in PUBLISHED:
        trace = open_trace(chosen.data / f"trace-{name}.parquet")
        assert isinstance(trace, Trace)
        report_replay(name, trace)
        for seed in range(chosen.seeds):
            report(name, trace, seed=seed, fraction=0.5)
        report_oracle(name, trace)
    trace = open_trace(chosen.data / "trace-SE.parquet")
    for fraction in (1.0, 0.5):
        for seed in range(chosen.seeds):
            report("SE from 8 of 32 replicas", trace, seed=seed, fraction=fraction, fit_replicas=8)
    report_command(chosen.data / "trace-SE.parquet")


def report_replay(name: str, trace: Trace) -> None:
    """Replay error and straggler figures."""
    found, replayed = stragglers(trace), replay_recorded(trace)
    waits, gaps = replayed.with_observed_waits.median_abs_error, replayed.with_host_gaps.median_abs_error
    print(
        f"{name}: replay by rule {replayed.median_abs_error:.3%}, with observed waits {waits:.3%}, "
        f"with host gaps {gaps:.1e}"
    )
    figures = (found.slowdown, found.m_w, found.m_s)
    print(f"  S, M_W, M_S = {figures[0]:.5f}, {figures[1]:.5f}, {figures[2]:.5f}; published {PUBLISHED[name]}")


def report(name: str, trace: object, *, seed: int, fraction: float, fit_replicas: int | None = None) -> None:
    """Predictions over random splits of one seed, and what simpler ways say."""
    assert isinstance(trace, Trace)
    chosen = splits(trace, n_split=N_SPLIT, train_fraction=fraction, fit_replicas=fit_replicas, seed=seed)
    scores = [score_split(trace, split, seed=seed + i, n_draw=N_DRAW)[0] for i, split in enumerate(chosen)]
    mean = mean_of_splits(scores)
    print(
        f"{name}, seed {seed}, {scores[0].n_train} steps fitted, {scores[0].n_test} scored, {N_SPLIT} splits: "
        f"p95 error median {_median(scores):+.2%}, median of absolute {_median(scores, absolute=True):.2%}; "
        f"KS mean {mean.ks_distance:.3f} median {np.median([s.score.ks_distance for s in scores]):.3f}, "
        f"of the fitted steps {mean.ks_floor:.3f}; "
        f"90% interval covers in {mean.p95_covered:.0%}"
    )
    for way in scores[0].score.naive:
        error = np.median([split.score.naive[way].p95_error for split in scores])
        print(f"  simpler: {way}: p95 error median {error:+.2%}, KS mean {mean.naive[way].ks_distance:.3f}")


def report_oracle(name: str, trace: Trace) -> None:
    """What the absolute p95 error of a half split would be for somebody who knows the p95 of all recorded steps."""
    known = float(np.quantile(trace.step_s, 0.95))
    found = []
    for seed in range(20):
        halves = splits(trace, n_split=N_SPLIT, train_fraction=0.5, fit_replicas=None, seed=seed)
        errors = [abs(known / float(np.quantile(trace.step_s[half.test], 0.95)) - 1.0) for half in halves]
        found.append(float(np.median(errors)))
    low, high = np.quantile(found, [0.05, 0.95])
    print(
        f"{name}: median absolute p95 error of knowing all steps: {np.mean(found):.2%} (over seeds {low:.2%} to {high:.2%})"
    )


def _median(scores: list[SplitScore], *, absolute: bool = False) -> float:
    errors = np.array([split.score.p95_error for split in scores])
    return float(np.median(np.abs(errors) if absolute else errors))


def report_command(path: Path) -> None:
    """Wall time and peak memory of the whole command, compiled programs cached."""
    command = [sys.executable, "-m", "prism_jax", "trace", "predict", str(path), "--draws", "1000", "--json"]
    walls = []
    for _ in range(4):
        started = time.perf_counter()
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=os.environ)
        walls.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    print(
        f"trace predict, SE, 1,000 draws, warm: best {min(walls[1:]):.2f} s of {len(walls) - 1}; peak memory {peak:.2f} GB"
    )


if __name__ == "__main__":
    main()

"""Which kernel of a recorded job to stabilise, and whether steps with kernels drawn anew predict as well as recorded runs do.

    python -m experiments.kernel_pools.run [--recording FOLDER] [--plot kernel_pools.png] [--check]

Prints the figures and writes them into `expected.json`; with `--check` it compares with that file instead, and exits with 1 where
one has moved by more than its tolerance. A recording is what `experiments/local_cluster/record.py --kernels` writes for one run.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml

from experiments.common import check_or_keep, start
from experiments.kernel_pools.made import MadeJob, write_made_job
from experiments.kernel_pools.plot import draw
from prism_jax.recorded.cross_validation import fit_and_predict
from prism_jax.recorded.describe_trace import kernels_of_trace
from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.recorded.prediction import ks_distance
from prism_jax.trace.trace import Trace

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected.json"
TOLERANCES = {"first": 0.0, "jobs": 0.0, "share_error": 1e-9, "p95_error": 0.01, "ks": 0.02, "steps": 0.0}
Figures = dict[str, dict[str, float]]


def ranked(config: dict[str, Any]) -> tuple[Figures, list[tuple[float, float]]]:
    """How often the noisy kernel of made-up jobs comes first, and how far shares are from the time of the run.

    Returns:
        The figures; of every job the share of the p95 that the first and the second kernel cost.
    """
    settings = dict(config)
    first, error, costs = 0, 0.0, []
    for seed in range(settings.pop("n_job")):
        with TemporaryDirectory() as folder:
            noisy = write_made_job(MadeJob(seed, **settings), Path(folder))
            table = kernels_of_trace(folder).table
            error = max(error, abs(sum(one.share for one in table.pools) + _rest(Path(folder)) - 1.0))
        first += table.pools[0].name == noisy
        costs.append(tuple((one.saved_p95_s or 0.0) / table.p95_s for one in table.pools[:2]))
    figures = {"jobs": float(len(costs)), "first": float(first), "share_error": error}
    print(
        f"made-up jobs: the noisy kernel is first in {first} of {len(costs)}; shares sum to the run within {error:.1e}"
    )
    return {"made": figures}, costs


def _rest(folder: Path) -> float:
    """Share of runs in which no kernel ran, from the events alone: a run lies between two kernels of NCCL."""
    between = whole = 0.0
    for path in sorted(folder.iterdir()):
        events = [one for one in json.loads(path.read_text())["traceEvents"] if one["cat"] == "kernel"]
        run: list[tuple[float, float]] = []
        for one in [*events, {"name": "nccl", "ts": 0.0, "dur": 0.0}]:
            if not one["name"].startswith("nccl"):
                run.append((one["ts"], one["ts"] + one["dur"]))
                continue
            if run:
                whole += run[-1][1] - run[0][0]
                between += run[-1][1] - run[0][0] - sum(end - begin for begin, end in run)
            run = []
    return between / whole


def few_steps(config: dict[str, Any]) -> Figures:
    """Errors of the p95 of many steps that a few of them predict: recorded steps redrawn, and kernels redrawn."""
    settings = dict(config)
    n_job, n_fit, n_draw = (settings.pop(name) for name in ("n_job", "n_fit", "n_draw"))
    rows = []
    for seed in range(n_job):
        with TemporaryDirectory() as folder:
            write_made_job(MadeJob(seed, **settings), Path(folder))
            trace = open_trace(folder, kernels=True)
        assert isinstance(trace, Trace)
        order = np.random.default_rng(seed).permutation(len(trace.steps))
        rows.append(_errors(trace, order[:n_fit], order[n_fit:], seed, n_draw))
    return _mean("few steps", rows)


def halves(folder: Path, config: dict[str, Any]) -> Figures:
    """Errors where halves of the steps of a recording predict the others."""
    trace = open_trace(folder, kernels=True)
    assert isinstance(trace, Trace)
    rows = []
    for seed in range(config["n_split"]):
        order = np.random.default_rng(seed).permutation(len(trace.steps))
        half = len(order) // 2
        rows.append(_errors(trace, np.sort(order[:half]), np.sort(order[half:]), seed, config["n_draw"]))
    return _mean("recording", rows)


def _errors(
    trace: Trace, fitted: np.ndarray, others: np.ndarray, seed: int, n_draw: int
) -> dict[str, tuple[float, float]]:
    """Absolute error of the p95, and the KS distance, without and with kernels."""
    measured_s, found = trace.step_s[others], {}
    for name, known in (("without", replace(trace, kernels=None)), ("with", trace)):
        drawn, _ = fit_and_predict(known.choose(steps=fitted), seed=seed, n_draw=n_draw, n_test=len(others))
        p95 = drawn.expected(0.95, len(others)) / float(np.quantile(measured_s, 0.95))
        found[name] = abs(p95 - 1.0), ks_distance(drawn.step_s, measured_s)
    return found


def _mean(title: str, rows: list[dict[str, tuple[float, float]]]) -> Figures:
    figures = {}
    for name in ("without", "with"):
        p95, ks = np.mean([row[name] for row in rows], axis=0).tolist()
        figures[f"{title}, {name} kernels"] = {"p95_error": p95, "ks": ks}
        print(f"{title}, {name} kernels: p95 {p95:.2%} off, KS {ks:.3f}")
    more = np.array([row["with"][0] - row["without"][0] for row in rows])
    error = float(more.std(ddof=1) / np.sqrt(len(more)))
    print(f"{title}: with kernels the error of the p95 differs by {100 * more.mean():+.2f} +- {100 * error:.2f} points")
    return figures


def main() -> int:
    start()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recording", type=Path)
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--check", action="store_true", help="compare with expected.json instead of writing it")
    options = parser.parse_args()
    config = yaml.safe_load((HERE / "config.yaml").read_text())
    recording = options.recording or HERE / config["recording"]["folder"]
    made, costs = ranked(config["made"])
    found = {**made, **few_steps(config["few"]), **halves(recording, config["recording"])}
    if options.plot:
        draw(costs, kernels_of_trace(str(recording)), options.plot)
    return check_or_keep(found, EXPECTED, options.check, TOLERANCES)


if __name__ == "__main__":
    sys.exit(main())

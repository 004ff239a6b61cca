"""Whether Otsu's threshold tells transfer from waiting better than the latest start among the peers does, on two recorded jobs.

    python -m experiments.otsu_split.run --data ../shared/data [--plot otsu_split.png] [--check]

Prints errors of replay and of prediction and writes them into `expected.json`; with `--check` it compares with that file instead,
and exits with 1 where one has moved by more than its tolerance.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from experiments.common import check_or_keep, start
from experiments.otsu_split.plot import draw
from experiments.otsu_split.split import long_share, with_otsu_split
from prism_jax.core.arrays import Floats
from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.recorded.prediction import TracePrediction, ks_distance
from prism_jax.recorded.recorded_job import RecordedJob, fit_job
from prism_jax.recorded.replay import replay, replay_program
from prism_jax.recorded.unseen_steps import agreement, predict_job
from prism_jax.trace.step_log import without_warm_up
from prism_jax.trace.trace import Trace

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected.json"
TOLERANCES = {"replay_error": 0.002, "p95_error": 0.006, "p95_uncorrected": 0.006, "ks": 0.015, "long_share": 0.001}
Way = Callable[[RecordedJob, int], RecordedJob]
WAYS: dict[str, Way] = {
    "latest start": lambda job, seed: job,
    "Otsu": lambda job, seed: with_otsu_split(job, seed, log=False),
    "Otsu, logarithm": lambda job, seed: with_otsu_split(job, seed, log=True),
}
Figures = dict[str, dict[str, float]]


def compared(trace: Trace, config: Mapping[str, Any]) -> tuple[Figures, dict[str, Floats]]:
    """Errors of every way: of replayed steps, and of steps predicted from a random half of the recorded ones.

    Returns:
        Way -> figures; way -> steps drawn from all recorded ones, seconds.
    """
    whole, found, drawn = fit_job(trace), {}, {}
    n_step, n_draw = len(trace.steps), config["n_draw"]
    for name, way in WAYS.items():
        job = way(whole, config["seed"])
        again = replay(replay_program(trace, job.waits.needs), job.run_s, job.gap_s)
        drawn[name] = predict_job(job, key=config["seed"], n_draw=n_draw).step_s.ravel()
        rows = []
        for seed in range(config["n_split"]):
            order = np.random.default_rng((config["seed"], seed)).permutation(n_step)
            train, test = np.sort(order[: n_step // 2]), np.sort(order[n_step // 2 :])
            fitted = way(fit_job(trace.choose(steps=train)), seed)
            rows.append(_scores(fitted, trace.step_s[test], seed, n_draw))
        p95, uncorrected, ks = np.mean(rows, axis=0).tolist()
        found[name] = {
            "replay_error": float(np.median(np.abs(again / trace.step_s - 1.0))),
            "p95_error": p95,
            "p95_uncorrected": uncorrected,
            "ks": ks,
            "long_share": 0.0 if name == "latest start" else long_share(whole, "logarithm" in name),
        }
    return found, drawn


def _scores(job: RecordedJob, measured_s: Floats, seed: int, n_draw: int) -> tuple[float, float, float]:
    """Absolute errors of the p95, held against the fitted steps (`unseen_steps.agreement`) and not, and the KS distance."""
    step_s = predict_job(job, key=seed, n_draw=n_draw).step_s
    corrected, n = TracePrediction(agreement(job, step_s).applied(step_s)), len(measured_s)
    measured = float(np.quantile(measured_s, 0.95))
    errors = [abs(one.expected(0.95, n) / measured - 1.0) for one in (corrected, TracePrediction(step_s))]
    return errors[0], errors[1], ks_distance(corrected.step_s, measured_s)


def main() -> int:
    start()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--check", action="store_true", help="compare with expected.json instead of writing it")
    options = parser.parse_args()
    config = yaml.safe_load((HERE / "config.yaml").read_text())
    found: Figures = {}
    curves: dict[str, tuple[Floats, dict[str, Floats]]] = {}
    for name, path in config["traces"].items():
        trace, _ = without_warm_up(open_trace(options.data / path))
        assert isinstance(trace, Trace)
        figures, drawn = compared(trace, config)
        curves[name] = trace.step_s, drawn
        for way, one in figures.items():
            found[f"{name}, {way}"] = one
            print(
                f"{name}, {way:<16} replay {one['replay_error']:6.2%} off; p95 {one['p95_error']:6.2%} off "
                f"(uncorrected {one['p95_uncorrected']:6.2%}), KS {one['ks']:.3f}; {one['long_share']:.1%} taken to wait"
            )
    if options.plot:
        draw(curves, options.plot)
    return check_or_keep(found, EXPECTED, options.check, TOLERANCES)


if __name__ == "__main__":
    sys.exit(main())

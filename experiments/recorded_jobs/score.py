"""Scores trace predictions on every recording in a folder: fit on half of the steps, predict the p50 and p95 of the other half.

    python experiments/recorded_jobs/score.py FOLDER [--splits 40] [--seed 0]

Every subfolder (or file) that `prism-jax trace predict` reads is one recording. Per recording, over random halves:

- error: median absolute error of the predicted quantile, relative to that of the held-out steps
- floor: what the scatter of so few held-out steps leaves to a prediction that knows the law of the steps: the median distance of
  the quantiles of both halves, over the root of 2. A prediction that knows the first half alone comes to 1.4 times that
- covered: share of halves in which the 90% interval contains the held-out quantile
- far: halves in which the prediction is more than 25% off; behind the stroke those of them outside the interval as well
- later: error for the second half in time from the first, one number: jobs and machines drift, which random halves do not show

It exits with 1 if a bar is missed: error at most 5% (p50) and 10% (p95) or at most 1.6 times the floor; coverage of each
quantile, averaged over recordings, 80 to 97%.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from prism_jax.core.arrays import Floats
from prism_jax.core.errors import DataError
from prism_jax.recorded.cross_validation import fit_and_predict, splits
from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.recorded.prediction import TracePrediction
from prism_jax.trace.step_log import StepLog
from prism_jax.trace.trace import Trace

Steps = NDArray[np.int64]  # indices of recorded steps
QUANTILES = {"p50": 0.5, "p95": 0.95}
BAR = {"p50": 0.05, "p95": 0.10}
OF_FLOOR, FAR, N_DRAW = 1.6, 0.25, 4000
COVERED = (0.80, 0.97)


class Outcome(NamedTuple):
    """One quantile in one split: relative errors of the prediction and of the fitted steps, and whether the interval held."""

    error: float
    naive: float
    covered: bool


def outcomes(recorded: Trace | StepLog, train: Steps, test: Steps, seed: int) -> dict[str, Outcome]:
    """Fit on `train`, predict `test`."""
    known = recorded.choose(steps=train) if isinstance(recorded, Trace) else recorded.choose(train)
    prediction, _ = fit_and_predict(known, seed=seed, n_draw=N_DRAW, n_test=len(test))
    fitted_s, test_s = recorded.step_s[train], recorded.step_s[test]
    return {name: _outcome(prediction, p, fitted_s, test_s) for name, p in QUANTILES.items()}


def _outcome(prediction: TracePrediction, p: float, fitted_s: Floats, test_s: Floats) -> Outcome:
    measured = np.quantile(test_s, p)
    low, high = prediction.expected_interval(p, len(test_s))
    error = prediction.expected(p, len(test_s)) / measured - 1.0
    return Outcome(float(error), float(np.quantile(fitted_s, p) / measured - 1.0), bool(low <= measured <= high))


class Score(NamedTuple):
    """One quantile of one recording, over all splits."""

    error: float
    floor: float
    covered: float
    far: int
    unannounced: int
    later: float


def score(recorded: Trace | StepLog, n_split: int, seed: int) -> dict[str, Score]:
    """Scores of both quantiles."""
    halves = list(splits(recorded, n_split=n_split, train_fraction=0.5, fit_replicas=None, seed=seed))
    found = [outcomes(recorded, half.train, half.test, seed + index) for index, half in enumerate(halves)]
    middle, n_step = len(recorded.step_s) // 2, len(recorded.step_s)
    later = outcomes(recorded, np.arange(middle), np.arange(middle, n_step), seed)
    return {name: _over_splits([one[name] for one in found], later[name].error) for name in QUANTILES}


def _over_splits(found: list[Outcome], later: float) -> Score:
    error, naive, covered = (np.array(column) for column in zip(*found, strict=True))
    far = np.abs(error) > FAR
    return Score(
        error=float(np.median(np.abs(error))),
        floor=float(np.median(np.abs(naive)) / np.sqrt(2.0)),
        covered=float(covered.mean()),
        far=int(far.sum()),
        unannounced=int((far & ~covered.astype(bool)).sum()),
        later=later,
    )


def line(name: str, found: dict[str, Score]) -> str:
    """A row of the table."""
    parts = [
        f"{s.error:6.1%} {s.floor:6.1%} {s.covered:6.0%}  {s.far:3d}/{s.unannounced:<3d} {s.later:+7.1%}"
        for s in found.values()
    ]
    return f"{name:<18}" + "  |".join(parts)


def missed(scores: dict[str, dict[str, Score]]) -> list[str]:
    """The bars that do not hold."""
    found = []
    for quantile, bar in BAR.items():
        for name, of in scores.items():
            if of[quantile].error > max(bar, OF_FLOOR * of[quantile].floor):
                found.append(f"{name}: {quantile} is {of[quantile].error:.1%} off")
        covered = float(np.mean([of[quantile].covered for of in scores.values()]))
        if not COVERED[0] <= covered <= COVERED[1]:
            found.append(f"intervals of the {quantile} cover {covered:.0%}")
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--splits", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    scores: dict[str, dict[str, Score]] = {}
    head = "error  floor covered far    later"
    print(f"{'':<18}{'p50: ' + head:<40}|  {'p95: ' + head}")
    for path in sorted(options.folder.iterdir()):
        try:
            scores[path.name] = score(open_trace(str(path)), options.splits, options.seed)
        except DataError as error:
            print(f"{path.name:<18}refused: {error}")
            continue
        print(line(path.name, scores[path.name]), flush=True)
    for quantile in QUANTILES if scores else ():
        rows = [of[quantile] for of in scores.values()]
        print(
            f"{quantile}: error {np.mean([s.error for s in rows]):.1%}, floor {np.mean([s.floor for s in rows]):.1%}, covered "
            f"{np.mean([s.covered for s in rows]):.0%}, later {np.median(np.abs([s.later for s in rows])):.1%} (median)"
        )
    problems = missed(scores)
    print("\n".join(f"missed: {problem}" for problem in problems) or "all bars hold")
    sys.exit(1 if problems or not scores else 0)


if __name__ == "__main__":
    main()

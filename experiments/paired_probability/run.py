"""Does one job beat another as often as the paired probability says? Pairs of measured rows, their source left out.

python experiments/paired_probability/run.py [--data FOLDER] [--pairs 300] [--check]

Fits one calibration per source to the rows of all other sources, picks pairs of rows of one source, and states the probability
that the first takes less GPU time per token than the second: with errors that the two share drawn once (`prism-jax compare`),
with a separate band for each, and with a coin. Prints how often the favourite was better, by stated probability.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np

from experiments.common import check, start
from experiments.paired_probability.pairs import BINS, Pair, Reliability, per_token, picked, reliability
from experiments.step_tables.table import read_step_rows
from inference.cost_model.calibrate import step_folds
from prism_jax.calibration.band import CalibrationCase, joint_factors
from prism_jax.calibration.calibration import Calibration
from prism_jax.core.arrays import Floats
from prism_jax.study.table import paired_values, prob_less
from prism_jax.validation.costed import CostedJob, costed, job_of_row, step_times
from prism_jax.validation.score import MeasuredRow

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / ".." / "shared" / "data"
TABLES = ("steps/steps.csv.gz", "steps2/rows.csv.gz", "steps2/new_sources.csv.gz")
SEED, N_PAIRS, N_REPEAT = 0, 300, 32
BAR = 0.05
TOLERANCES = {"reliability": 0.02, "brier": 0.01, "right": 0.02}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--pairs", type=int, default=N_PAIRS)
    parser.add_argument("--check", action="store_true", help="compare with expected.json")
    given = parser.parse_args()
    start()
    rows = [row for table in TABLES for row in read_step_rows(given.data / table)]
    folds = step_folds(rows, "source", key=jax.random.key(SEED))
    found = scores(picked(rows, given.pairs, SEED), folds)
    return check(found, HERE / "expected.json", TOLERANCES) if given.check else 0


def scores(pairs: Sequence[Pair], folds: Mapping[str, Calibration]) -> dict[str, Mapping[str, float]]:
    """Prints and returns the figures of the ways to state a probability."""
    shared, separate = probabilities(pairs, folds)
    better = np.array([float(pair.log_ratio < 0.0) for pair in pairs])
    same = np.array([pair.same_size for pair in pairs])
    sources = len({pair.first.source for pair in pairs})
    print(f"{len(pairs)} pairs of {sources} sources, {same.sum()} of the same tokens per step and GPUs; bar {BAR:.0%}")
    ways = {"errors shared": shared, "separate bands": separate, "coin": np.full(len(pairs), 0.5)}
    subsets = {"all": np.ones(len(pairs), bool), "same size": same, "other sizes": ~same}
    found = {}
    for way, prob in ways.items():
        for name, keep in subsets.items():
            if keep.sum() >= len(BINS):
                found[f"{way}, {name}"] = own = reliability(prob[keep], better[keep])
                _tell(f"{way}, {name}", own)
    return {name: own.figures() for name, own in found.items()}


def probabilities(pairs: Sequence[Pair], folds: Mapping[str, Calibration]) -> tuple[Floats, Floats]:
    """[pair] that the first takes less time per token: with shared errors, and with a band of its own for each."""
    rows = list({id(row): row for pair in pairs for row in (pair.first, pair.second)}.values())
    jobs = {id(row): _costed(row, folds[row.source]) for row in rows}
    typical_s = step_times(list(jobs.values()), SEED).typical_s
    value = {id(row): per_token(row, seconds) for row, seconds in zip(rows, typical_s.tolist(), strict=True)}
    shared, separate = [], []
    for number, pair in enumerate(pairs):
        both = (pair.first, pair.second)
        calibration, values = folds[pair.first.source], [value[id(row)] for row in both]
        cases = [_case(jobs[id(row)]) for row in both]
        together = joint_factors(cases, calibration, number, N_REPEAT)
        shared.append(_prob(values, together))
        alone = [
            joint_factors([case], calibration, number + k * len(pairs), N_REPEAT)[:, 0]
            for k, case in enumerate(cases, 1)
        ]
        alone[1] = np.random.default_rng([SEED, number]).permutation(alone[1])
        separate.append(_prob(values, np.stack(alone, axis=-1)))
    return np.array(shared), np.array(separate)


def _costed(row: MeasuredRow, calibration: Calibration) -> CostedJob:
    return costed(job_of_row(row, calibration), row.assumed)


def _case(one: CostedJob) -> CalibrationCase:
    job = one.job
    return CalibrationCase((job.model, job.cluster, job.plan), one.outline, one.setting, job.open_fields + one.doubts)


def _prob(values: Sequence[float], factors: Floats) -> float:
    return float(prob_less(paired_values(values, [0.0, 0.0], factors))[0, 1])


def _tell(name: str, own: Reliability) -> None:
    print(f"{name}: off by {own.reliability:.1%} (chance alone {own.noise:.1%}), Brier {own.brier:.3f}")
    for k, count in enumerate(own.count):
        if count:
            print(
                f"    {BINS[k]:.1f}-{BINS[k + 1]:.1f}: {count:4.0f} pairs, stated {own.stated[k]:.2f}, right {own.right[k]:.2f}"
            )


if __name__ == "__main__":
    raise SystemExit(main())

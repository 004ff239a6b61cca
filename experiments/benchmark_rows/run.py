"""Steps of MLPerf Training's BERT, ResNet-50 and DLRM: each GPU model, each number of devices, each source left out.

python experiments/benchmark_rows/run.py [--data TABLE] [--leave-out gpu scale source] [--check]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.score_steps import score_steps
from prism_jax.validation.score import RowResult

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "steps" / "steps_nonllm.csv.gz"
BARS = {  # by what is left out: model -> median absolute error
    "gpu": {"bert-large-mlperf": 0.12, "dlrm-criteo1tb": 0.15, "dlrm-dcnv2": 0.12, "resnet-50": 0.12},
    "scale": {"bert-large-mlperf": 0.04, "dlrm-criteo1tb": 0.08, "dlrm-dcnv2": 0.12, "resnet-50": 0.08},
    "source": {},
}
P90, COVERAGE = 0.30, (0.85, 0.95)  # of left-out GPU models


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--leave-out", nargs="+", choices=list(BARS), default=list(BARS))
    parser.add_argument("--check", action="store_true", help="exit 1 where a median is beyond its bar")
    given = parser.parse_args()
    missed = 0
    for way in given.leave_out:
        report = score_steps(given.data, leave_out=way)
        missed += _table(way, [row for row in report.rows if row.error is not None and not row.defect])
    if given.check:
        raise SystemExit(int(missed > 0))


def _table(way: str, rows: Sequence[RowResult]) -> int:
    """Prints the scores by model and returns how many medians are beyond their bar."""
    by_model: dict[str, list[RowResult]] = defaultdict(list)
    for row in rows:
        by_model[row.model].append(row)
    print(f"\neach {way} left out")
    print(f"  {'model':20} {'rows':>5} {'median':>8} {'bar':>6} {'p90':>7} {'in 90%':>8} {'typical utilisation':>20}")
    missed = 0
    for model, own in sorted(by_model.items()):
        error = np.abs([row.error or 0.0 for row in own])
        trivial = [abs(row.baseline_error) for row in own if row.baseline_error is not None]
        bar = BARS[way].get(model)
        missed += bar is not None and float(np.median(error)) > bar
        inside = np.mean([bool(row.inside) for row in own])
        print(
            f"  {model:20} {len(own):5} {np.median(error):8.1%} {'' if bar is None else f'{bar:.0%}':>6} "
            f"{np.quantile(error, 0.9):7.1%} {inside:8.1%} {np.median(trivial):20.1%}"
        )
    return missed


if __name__ == "__main__":
    main()

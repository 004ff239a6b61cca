"""How far off are the steps of encoders that a table of decoders holds, when a calibration has not seen their source?

python experiments/encoder_rows/run.py [--data ../shared/data] [--check]

All rows of `steps.csv.gz` become jobs. For each source with encoders or encoder-decoders a calibration is fitted to the rows of
all other sources (decoders: rows about encoders rest on recipes, and are in no fit), and predicts its encoders. Beside it what
needs no model: the median utilisation of rows of other sources on the same generation of GPUs. Writes `expected.json`; `--check`
compares.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import check_or_keep, start
from experiments.step_tables.table import read_step_rows
from prism_jax.validation.score import MeasuredRow
from prism_jax.workload.transformer.spec import TransformerSpec

EXPECTED = Path(__file__).with_name("expected.json")


def encoders_of(rows: list[MeasuredRow]) -> list[MeasuredRow]:
    """Rows that are jobs of other models than decoders."""
    return [row for row in rows if row.model is not None and not isinstance(row.model, TransformerSpec)]


def scored(rows: list[MeasuredRow]) -> Any:
    """The encoders of every source, predicted by a calibration without it."""
    import jax

    from inference.cost_model.calibrate import step_folds
    from prism_jax.validation.steps import validate_steps

    encoders = encoders_of(rows)
    sources = {row.source for row in encoders}
    folds = step_folds(rows, "source", key=jax.random.key(0), only=sources)
    return validate_steps(encoders, calibration_of=lambda row: folds[row.source])


def peak_scaled(rows: list[MeasuredRow]) -> np.ndarray:
    """Relative errors of the encoders at the median model-FLOP utilisation of other sources on the same generation."""
    known = [(row, _utilisation(row)) for row in rows if row.model is not None and row.measured_s]
    errors = []
    for row in encoders_of(rows):
        _, cluster, _ = row.job
        others = [u for other, u in known if other.source != row.source and _is_alike(other, cluster.device.generation)]
        errors.append(_utilisation(row) / float(np.median(others)) - 1.0)
    return np.array(errors)


def _is_alike(row: MeasuredRow, generation: str) -> bool:
    return isinstance(row.model, TransformerSpec) and row.job[1].device.generation == generation


def _utilisation(row: MeasuredRow) -> float:
    model, cluster, plan = row.job
    assert row.measured_s is not None
    peak = cluster.device.peak(plan.dtype) * plan.n_devices
    return model.step_flops(plan, recomputed=False) / (row.measured_s * peak)


def figures(rows: list[MeasuredRow], outcome: Any) -> dict[str, dict[str, float]]:
    """By source, and of all."""
    trivial = np.abs(peak_scaled(rows))
    error = np.array([np.abs(row.error) for row in outcome.rows])
    inside = np.array([bool(row.inside) for row in outcome.rows])
    source = np.array([row.source for row in outcome.rows])
    found = {}
    for name in ("", *sorted(set(source))):
        chosen = source == name if name else np.ones(len(source), dtype=bool)
        found[name or "all"] = {
            "rows": float(chosen.sum()),
            "median": float(np.median(error[chosen])),
            "p90": float(np.quantile(error[chosen], 0.9)),
            "covered_90": float(inside[chosen].mean()),
            "peak_scaled_median": float(np.median(trivial[chosen])),
        }
    return found


def main() -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--check", action="store_true", help="compare with expected.json instead of writing it")
    given = parser.parse_args()
    start()
    rows = [row for row in read_step_rows(given.data / "steps" / "steps.csv.gz") if not row.unsupported]
    found = figures(rows, scored(rows))
    for name, values in found.items():
        print(f"{name:34s}", "  ".join(f"{key} {value:.3g}" for key, value in values.items()))
    return check_or_keep(found, EXPECTED, given.check)


if __name__ == "__main__":
    sys.exit(main())

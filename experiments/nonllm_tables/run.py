"""Scores of a family of models on the tables: a source left out, and a number of GPUs left out.

python experiments/nonllm_tables/run.py [--family cnn] [--data FOLDER]

Every group is predicted by levels fitted to all rows outside of it (`levels.py`). Where a source is left out, all its rows are
unseen; where a number of GPUs is left out, all rows with that number, of every source that has others. Prints median and 90th
percentile of the error by group, and beside them the peak-scaled rate: the share of the peak that is the median of other rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.common import start
from experiments.nonllm_tables.jobs import step_row
from experiments.nonllm_tables.levels import MOST, Measured, fitted, measured, predicted_log_s
from experiments.nonllm_tables.models import model_of
from experiments.nonllm_tables.row import TableRow
from experiments.nonllm_tables.tables import table_rows
from inference.cost_model.calibrate import thinned_rows
from prism_jax.core.arrays import Floats
from prism_jax.validation.score import MeasuredRow

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "nonllm"
BARS = {"source": 15.0, "number of GPUs": 10.0}  # %, median


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--family", default="cnn", help="as in the modules of models.FAMILIES")
    given = parser.parse_args()
    start()
    rows = family_rows(given.data, given.family)
    data = measured(rows, [path_of(row) for row in rows])
    score("source", np.array([row.source for row in rows]), data, rows)
    score("number of GPUs", counts_of_sources(rows), data, rows)


def counts_of_sources(rows: Sequence[MeasuredRow]) -> NDArray[np.str_]:
    """[row] number of GPUs; empty where a source has no other number: its rows would be those of an unseen source."""
    counts: dict[str, set[int]] = {}
    for row in rows:
        counts.setdefault(row.source, set()).add(row.job[2].n_devices)
    return np.array([str(row.job[2].n_devices) if len(counts[row.source]) > 1 else "" for row in rows])


def family_rows(folder: Path, family: str) -> list[MeasuredRow]:
    """Rows of one family that are possible jobs; at most `MOST` of each source."""
    table = table_rows(folder)
    mine = [row for row in table if _family(row) == family]
    found = [one for one in map(step_row, mine) if one.model is not None]
    print(f"{family}: {len(mine)} rows, {len(found)} possible jobs, ", end="")
    kept = thinned_rows(found, MOST)
    print(f"{len(kept)} of them, at most {MOST} per source")
    return kept


def _family(row: TableRow) -> str:
    made = model_of(row)
    return "" if made is None else made.family


def path_of(row: MeasuredRow) -> str:
    """Generation of the GPU and precision that products run in."""
    _, cluster, plan = row.job
    return f"{cluster.device.generation} {cluster.device.product_dtype(plan.dtype)}"


def score(by: str, group: NDArray[np.str_], data: Measured, rows: Sequence[MeasuredRow]) -> None:
    """A line per group, and the medians."""
    off, trivial = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    share = np.array([flops_share(row) for row in rows])
    names = sorted(set(group) - {""}, key=lambda one: (len(one), one))
    for name in names:
        out = group == name
        off[out] = (predicted_log_s(data, fitted(data, ~out)) - data.log_s)[out]
        trivial[out] = np.log(share[out] / median_share(share, data.path, out))
    print(f"\n{by} left out")
    for name in names:
        _line(name, off[group == name], trivial[group == name])
    _line("all rows", off[group != ""], trivial[group != ""])
    middle = [100.0 * np.median(np.abs(np.expm1(off[group == name]))) for name in names]
    print(f"  median over groups {np.median(middle):.1f} % (bar {BARS[by]:.0f} %)")


def flops_share(row: MeasuredRow) -> float:
    """Model FLOPs of the measured step over what the devices' peak allows."""
    model, cluster, plan = row.job
    peak = cluster.device.peak(cluster.device.product_dtype(plan.dtype))
    return model.step_flops(plan, recomputed=False) / (plan.n_devices * peak * (row.measured_s or np.nan))


def median_share(share: Floats, path: NDArray[np.int64], out: NDArray[np.bool_]) -> Floats:
    """[row of the group] median share of the other rows of its generation and precision, of all where there are none."""
    found = [share[~out & (path == own)] for own in path[out]]
    return np.array([np.median(one) if len(one) else np.median(share[~out]) for one in found])


def _line(name: str, off: Floats, trivial: Floats) -> None:
    error, other = (100.0 * np.abs(np.expm1(x)) for x in (off, trivial))
    print(
        f"  {name:62} {len(off):4} rows  median {np.median(error):5.1f} %  p90 {np.quantile(error, 0.9):5.1f} %"
        f"   peak-scaled rate {np.median(other):5.1f}, {np.quantile(other, 0.9):5.1f} %"
    )


if __name__ == "__main__":
    main()

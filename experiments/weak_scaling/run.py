"""How does the throughput per GPU change from a few nodes to hundreds? Measured weak scaling against predictions.

python experiments/weak_scaling/run.py [--data TABLE] [--shipped]

Finds the families of the open steps table that ran on three sizes or more, spanning a factor of eight or more, with the same
batch per GPU, and predicts them under calibrations that had no part of the family's source (`--shipped`: under the shipped one).
Prints the mean absolute error of the change, in points, beside that of "no change"; then the published scaling of Llama-2 7B
under FSDP (arXiv 2411.13055), which no calibration has seen.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

import jax
import numpy as np

from experiments.common import start
from experiments.step_tables.records import read_records
from experiments.step_tables.table import read_step_rows
from experiments.weak_scaling.families import Family, families_of
from inference.cost_model.calibrate import Calibrator, row_data, thinned_rows, usable, without as left_out
from prism_jax import Job, ParallelPlan
from prism_jax.calibration.calibration import Calibration, shipped
from prism_jax.system import catalog as systems
from prism_jax.system.hardware import mfu
from prism_jax.validation.costed import costed, job_of_row, step_times
from prism_jax.validation.score import MeasuredRow
from prism_jax.variability.config import default_for, preset
from prism_jax.workload import catalog as workloads

STEPS = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "steps" / "steps.csv.gz"
SEED = 0
BAR_MEAN, BAR_LARGEST, BAR_LLAMA = 1.2, 2.0, 6.0  # points
PUBLISHED_CHANGE = -37.22  # %, 128 to 2,048 H100, arXiv 2411.13055
PUBLISHED_MFU = {"dgx-h100": 40.77, "dgx-a100": 59.67}  # %


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=STEPS)
    parser.add_argument("--shipped", action="store_true", help="under the shipped calibration, which has seen the rows")
    given = parser.parse_args()
    start()
    rows = read_step_rows(given.data)
    every = families_of(read_records(given.data), rows)
    known = [family for family in every if family.is_expressible]
    print(f"{len(every)} families, {len(known)} expressible, {sum(len(f.sizes) - 1 for f in known)} points")
    sources = sorted({family.source for family in known})
    calibrations = dict.fromkeys(sources, shipped()) if given.shipped else without(rows, sources)
    score(known, calibrations)
    llama()


def without(rows: Sequence[MeasuredRow], sources: Sequence[str]) -> dict[str, Calibration]:
    """Source -> the calibration that its rows have had no part in."""
    kept = thinned_rows(usable(rows))
    data, owner = row_data(kept), np.array([row.source for row in kept])
    calibrator = Calibrator(data)
    return {source: calibrator.fit(left_out(data, owner == source), key=jax.random.key(SEED)) for source in sources}


def score(families: Sequence[Family], calibrations: dict[str, Calibration]) -> None:
    """A line per family, and the mean errors of all points and of the largest sizes."""
    errors, still = [], []
    for family in families:
        calibration = calibrations[family.source]
        measured = family.changes(lambda row: row.measured_s or np.nan)
        predicted = family.changes(cache(partial(_predicted_s, calibration)))
        errors.append(np.abs(predicted - measured))
        still.append(np.abs(measured))
        print(f"{family.name} ({family.source}), {family.sizes[0]} to {family.sizes[-1]} GPUs")
        for said, change in (("measured ", measured), ("predicted", predicted)):
            print(f"    {said} {' '.join(f'{x:6.1f}' for x in change)}")
    _line("all points", np.concatenate(errors), np.concatenate(still), BAR_MEAN)
    at_largest = [np.array([own[-1] for own in each]) for each in (errors, still)]
    _line("largest sizes", at_largest[0], at_largest[1], BAR_LARGEST)


def _predicted_s(calibration: Calibration, row: MeasuredRow) -> float:
    return _typical_s(job_of_row(row, calibration))


def _typical_s(job: Job) -> float:
    """Median step, seconds."""
    return float(step_times([costed(job)], SEED).typical_s[0])


def _line(name: str, errors: np.ndarray, still: np.ndarray, bar: float) -> None:
    print(f"{name}: mean error {errors.mean():.2f} points (bar {bar}), no change {still.mean():.2f}, n = {len(errors)}")


def llama() -> None:
    """Llama-2 7B, all of dp sharded, 4,096 tokens, two sequences per GPU."""
    for cluster, published in PUBLISHED_MFU.items():
        print(f"Llama-2 7B on {cluster}, 8 GPUs: MFU {100.0 * _llama(cluster, 8)[1]:.1f} % (published {published})")
    change = 100.0 * (_llama("dgx-h100", 128)[0] / _llama("dgx-h100", 2048)[0] - 1.0)
    bar = f"published {PUBLISHED_CHANGE}, bar +- {BAR_LLAMA}"
    print(f"Llama-2 7B on dgx-h100, 128 to 2,048 GPUs: throughput per GPU {change:.1f} % ({bar})")


def _llama(cluster: str, n_devices: int) -> tuple[float, float]:
    """Median step in seconds, and model FLOPs utilisation."""
    model, system = workloads.model("llama2-7b"), systems.cluster(cluster, n_devices)
    plan = ParallelPlan(
        micro_batch=2, global_batch=2 * n_devices, seq_len=4096, dp=n_devices, sharding="fsdp", dtype="bf16"
    )
    job = Job(model, system, plan, preset(default_for(system.device)), "llama", "fsdp")
    seconds = _typical_s(job)
    return seconds, mfu(model.step_flops(plan, recomputed=False), seconds, system, n_devices, plan.dtype)


if __name__ == "__main__":
    main()

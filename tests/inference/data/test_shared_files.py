"""The files of measured data, without a mapping. They are not part of the project; facts about them are asserted, no rows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inference.data.read import read_measurements

from .tables import COLLECTIVES, FLEET, KERNELS, OVERLAP, STEPS, accounted, values

NAMES = tuple(
    replace(column, aliases=(*column.aliases, "duration")) if column.is_duration else column for column in FLEET
)


def test_gpu_kernels(shared_data: Path) -> None:
    found = read_measurements([shared_data / "variability" / "gpu_kernels.csv.gz"], NAMES)
    assert found.hygiene.n_read == 15_990
    assert set(found.hygiene.dropped) == {"gpu is missing", "the same row again"}
    assert len(set(found.frame["node"].dropna())) == 96
    assert np.median(values(found.frame, "duration_s")) == pytest.approx(2.4, rel=0.05)
    assert accounted(found)


def test_mlperf(shared_data: Path) -> None:
    folder = shared_data / "variability"
    alone = read_measurements([folder / "mlperf_series.csv.gz"], STEPS)
    assert alone.hygiene.n_read == len(alone.frame) == 702_660
    assert not any(
        alone.frame[name].isna().to_numpy().any() for name in ("system", "submitter", "benchmark", "n_gpus", "gpu")
    )
    for metric in ("step_s", "log_dt_ms"):
        assert 0.1 < np.median(values(alone.frame, "duration_s")[values(alone.frame, "metric") == metric]) < 10


def test_training_logs(shared_data: Path) -> None:
    folder = shared_data / "variability"
    found = read_measurements([folder / "training_runs.csv.gz", folder / "training_steps.csv.gz"], STEPS)
    assert found.hygiene.n_read == len(found.frame) == 2_043_315  # equal rows are repeats of rounded times
    assert len(set(found.frame["run"])) == 2119
    assert found.frame["group"].notna().to_numpy().all()


def test_collectives(shared_data: Path) -> None:
    folder = shared_data / "collectives"
    found = read_measurements([folder / "collectives.csv.gz", folder / "allreduce_a100_ib.csv"], COLLECTIVES)
    assert found.hygiene.n_read == 15_018 + 183
    assert found.hygiene.dropped == {
        "message_bytes is missing": 55,
        "duration_s is missing": 13,
        "duration_s is longer than 5 days, a placeholder": 102,
    }
    assert 1e-7 < values(found.frame, "duration_s").min() < values(found.frame, "duration_s").max() < 60


def test_kernels(shared_data: Path) -> None:
    found = read_measurements(
        [shared_data / "kernels" / "gemm.csv.gz", shared_data / "kernels" / "attention.csv"], KERNELS
    )
    assert len(found.frame) == 33_279 + 94
    assert found.frame["gpu"].notna().to_numpy().all()


def test_overlap(shared_data: Path) -> None:
    found = read_measurements([shared_data / "kernels" / "overlap_slowdown_a100.csv"], OVERLAP)
    assert len(found.frame) == 619
    assert 1e-6 < values(found.frame, "duration_s").min() < values(found.frame, "duration_s").max() < 1e-2
    assert any("ns is assumed" in note for note in found.hygiene.notes)

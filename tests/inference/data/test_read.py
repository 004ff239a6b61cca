"""Reading of measurements: rows that are chosen, tables of runs, and published files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from inference.data.read import read_measurements, tidy
from prism_jax.core.errors import DataError
from prism_jax.fits.models import model_named
from tests.inference.data.tables import COLLECTIVES, FLEET, KERNELS, OVERLAP, STEPS, accounted, fleet_frame, values


@pytest.mark.parametrize("name", ["gpu", "GPU_UUID", "gpu_uuid"])
def test_rows_are_chosen_by_canonical_name_or_that_of_the_file(name: str) -> None:
    frame = fleet_frame().rename(columns={"gpu": "gpu_uuid"})
    found = tidy(frame, FLEET, where={name: "2"})
    assert set(found.frame["gpu"]) == {"2"}
    assert found.hygiene.dropped == {f"not chosen by {name}=2": 15}
    assert accounted(found)


def test_rows_are_chosen_by_a_column_the_model_does_not_know() -> None:
    frame = fleet_frame().assign(site=["a", "b"] * 10)
    assert len(tidy(frame, FLEET, where={"site": "b"}).frame) == 10


def test_numbers_are_compared_as_numbers() -> None:
    frame = pd.DataFrame({"run_id": range(4), "num_gpus": [8, 8, 64, 512], "dt_ms": [1.0, 2.0, 3.0, 4.0]})
    for text in ("8", "8.0", "8e0"):
        assert len(tidy(frame, STEPS, where={"n_gpus": text}).frame) == 2
    assert len(tidy(frame.assign(num_gpus=["8", "8.0", "64", "x"]), STEPS, where={"n_gpus": "8"}).frame) == 2


def test_several_conditions_hold_together() -> None:
    assert len(tidy(fleet_frame(), FLEET, where={"gpu": "1", "run": "3"}).frame) == 1


@pytest.mark.parametrize(
    ("where", "match"),
    [
        ({"gqu": "1"}, r"--where gqu=1: .* without a column gqu, did you mean gpu"),
        ({"kernel": "gem"}, r"--where kernel=gem: no row of table has it, did you mean gemm"),
        ({"gpu": "77"}, r"--where gpu=77: no row of table has it; known are 0, 1, 2, 3"),
    ],
)
def test_a_condition_that_nothing_meets_is_refused(where: dict[str, str], match: str) -> None:
    with pytest.raises(DataError, match=match):
        tidy(fleet_frame(), FLEET, where=where)


# --- Tables in two parts, steps and runs -----------------------------------------------------------------------------


RUNS = pd.DataFrame(
    {
        "run_id": [1, 2, 3],
        "system": ["a", "b", "b"],
        "num_gpus": [8, 64, 64],
        "metric": "throughput",
        "dup_of": [None, None, 2],
    }
)
SERIES = pd.DataFrame(
    {
        "run_id": [1, 1, 2, 2, 3, 9],
        "metric": "log_dt_ms",
        "pos": [10, 20] * 3,
        "value": [100.0, 101.0, 200.0, 201.0, 200.0, 5.0],
    }
)


def _folder(folder: Path, long: str = "x_series.csv", runs: str = "x_runs.csv") -> tuple[Path, Path]:
    SERIES.to_csv(folder / long, index=False)
    RUNS.to_csv(folder / runs, index=False)
    return folder / long, folder / runs


@pytest.mark.parametrize("long", ["x_series.csv", "x_steps.csv.gz"])
def test_steps_know_what_is_known_of_their_runs(long: str, tmp_path: Path) -> None:
    found = read_measurements(list(_folder(tmp_path, long)), STEPS)
    assert found.frame["system"].tolist()[:4] == ["a", "a", "b", "b"]
    assert found.frame["n_gpus"].tolist()[:4] == [8, 8, 64, 64]
    assert set(found.frame["metric"]) == {"log_dt_ms"}  # the steps' own column
    assert found.frame["duration_s"].tolist() == pytest.approx([0.1, 0.101, 0.2, 0.201, 0.005])
    assert found.hygiene.dropped == {"a run that was submitted before (dup_of)": 1}
    assert any("1 rows of runs that are not in x_runs.csv" in note for note in found.hygiene.notes)
    assert accounted(found)


def test_a_total_beside_the_columns_of_experts_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "routing.csv"
    file.write_text("layer,step,e0,e1,tokens\n0,0,5,7,12\n0,1,4,8,12\n")
    found = read_measurements([file], model_named("routing").columns).frame
    assert sorted(found["tokens"]) == [4, 5, 7, 8]


def test_the_runs_beside_the_steps_are_found_and_a_note_says_so(tmp_path: Path) -> None:
    long, runs = _folder(tmp_path)
    alone = read_measurements([long], STEPS)
    pd.testing.assert_frame_equal(alone.frame, read_measurements([runs, long], STEPS).frame)
    assert any("joined with x_runs.csv, which lies in the same folder" in note for note in alone.hygiene.notes)
    runs.unlink()
    assert "system" not in read_measurements([long], STEPS).frame


def test_rows_are_chosen_by_a_column_of_the_runs(tmp_path: Path) -> None:
    long, _ = _folder(tmp_path)
    assert set(read_measurements([long], STEPS, where={"num_gpus": "64"}).frame["run"]) == {"2"}


def test_runs_of_two_tables_keep_apart(tmp_path: Path) -> None:
    first, _ = _folder(tmp_path)
    second, _ = _folder(tmp_path, "y_steps.csv", "y_runs.csv")
    SERIES.assign(value=SERIES["value"] + 0.125).to_csv(second, index=False)
    found = read_measurements([first, second], STEPS)
    assert found.frame["run"].unique().tolist() == ["x/1", "x/2", "x/9", "y/1", "y/2", "y/9"]


def test_runs_without_their_steps_say_where_those_are(tmp_path: Path) -> None:
    _, runs = _folder(tmp_path)
    with pytest.raises(DataError, match=r"x_runs\.csv: no column duration_s.*are in x_series\.csv: name it too"):
        read_measurements([runs], STEPS)


def test_a_run_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    long, runs = _folder(tmp_path)
    pd.concat([RUNS, RUNS.iloc[:1]]).to_csv(runs, index=False)
    with pytest.raises(DataError, match=r"x_runs\.csv: run 1 is there twice"):
        read_measurements([long], STEPS)


# --- Shared files ----------------------------------------------------------------------------------------------------
# The files of measured data, without a mapping. They are not part of the project; facts about them are asserted, no
# rows.


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

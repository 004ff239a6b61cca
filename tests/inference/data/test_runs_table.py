"""Tables in two parts, steps and runs."""

from pathlib import Path

import pandas as pd
import pytest

from inference.data.read import read_measurements
from prism_jax.core.errors import DataError

from .tables import STEPS, accounted

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


def test_the_runs_beside_the_steps_are_found_and_a_note_says_so(tmp_path: Path) -> None:
    long, runs = _folder(tmp_path)
    alone = read_measurements([long], STEPS)
    pd.testing.assert_frame_equal(alone.frame, read_measurements([runs, long], STEPS).frame)
    assert any("joined with x_runs.csv, which lies beside it" in note for note in alone.hygiene.notes)
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

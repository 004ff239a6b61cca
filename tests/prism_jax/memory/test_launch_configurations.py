"""Published launch configurations that run fit, and those that were reported to run out of memory are refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from prism_jax.prediction.check import check_job
from prism_jax.shell.app import main

TABLE = yaml.safe_load((Path(__file__).parents[2] / "data" / "launch_configurations.yaml").read_text())


def job_file(folder: Path, row: dict[str, Any]) -> str:
    """A job file of one row, without its source."""
    path = folder / "job.yaml"
    job = {name: value for name, value in row.items() if name != "source"}
    path.write_text(yaml.safe_dump({"name": "launched", "variability": "none", **job}))
    return str(path)


def test_the_table_holds_ten_runs_and_three_controls():
    assert len(TABLE["runs"]) >= 10
    assert len(TABLE["out_of_memory"]) >= 3
    assert all(row["source"] for rows in TABLE.values() for row in rows)


@pytest.mark.parametrize("row", TABLE["runs"], ids=lambda row: row["source"])
def test_a_configuration_that_runs_fits(tmp_path: Path, row: dict[str, Any]):
    assert check_job(job_file(tmp_path, row)).fits


@pytest.mark.parametrize("row", TABLE["out_of_memory"], ids=lambda row: row["source"])
def test_a_configuration_that_runs_out_of_memory_is_refused(
    tmp_path: Path, row: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    path = job_file(tmp_path, row)
    assert not check_job(path).fits
    assert main(["check", path]) == 1
    captured = capsys.readouterr()
    assert "DOES NOT FIT" in captured.out
    assert "warning: does not fit" in captured.err
    assert main(["check", path, "--ignore-memory"]) == 0

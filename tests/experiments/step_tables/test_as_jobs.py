"""Tables of published steps as plain tables of jobs: the same jobs, the same predictions, nothing lost without a word."""

from collections import Counter
from pathlib import Path

from experiments.step_tables.as_jobs import main, plain_rows, write_table
from experiments.step_tables.table import read_step_rows
from prism_jax.validation.job_table import read_job_table
from prism_jax.validation.score import MeasuredRow
from prism_jax.validation.steps import validate_steps
from prism_jax.validation.validate import _row_of

from .test_table import write_csv


def test_a_published_table_is_predicted_alike_as_a_plain_one(tmp_path: Path) -> None:
    table = write_csv(
        tmp_path / "steps.csv",
        {},
        {"id": "x-2", "micro_batch": "2.0", "gpus_per_node": "4.0", "precision": "bf16", "recompute": "full"},
        {"id": "x-3", "gpu": "A100-SXM-80GB", "precision": "bf16", "sharding": "zero1", "network": "800 Gb/s RoCE"},
    )
    rows = read_step_rows(table)
    refused: Counter[str] = Counter()
    write_table(tmp_path / "jobs.csv", plain_rows(rows, refused))
    again = [_row_of(run, MeasuredRow) for run in read_job_table(tmp_path / "jobs.csv")]
    assert not refused
    assert [(row.id, row.source, row.measured_s, row.framework) for row in again] == [
        (row.id, row.source, row.measured_s, row.framework) for row in rows
    ]
    assert [row.predicted_s for row in validate_steps(again).rows] == [
        row.predicted_s for row in validate_steps(rows).rows
    ]


def test_rows_that_no_field_states_are_counted_by_name(tmp_path: Path, capsys) -> None:
    table = write_csv(tmp_path / "steps.csv", {}, {"id": "x-2", "notes": "use for relative scaling only"})
    assert main([str(table), "-o", str(tmp_path / "jobs.csv")]) == 0
    said = capsys.readouterr().out
    assert "wrote 1 rows; left out 1" in said
    assert "relative comparison" in said


def test_a_folder_that_is_not_there_is_found_out_first(tmp_path: Path, capsys) -> None:
    assert main(["absent.csv", "-o", str(tmp_path / "no folder" / "jobs.csv")]) == 2
    assert "there is no folder" in capsys.readouterr().err

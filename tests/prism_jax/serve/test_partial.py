"""Rows of commands that have not ended: those of their journals, whole or damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prism_jax.core.archive import write_archive
from prism_jax.core.errors import DataError
from prism_jax.serve.partial import MOST_ROWS, NO_ROWS, partial_rows
from prism_jax.shell.app import main
from prism_jax.study.journal import COLUMNS

JOB = "llama2_7b_fsdp_64"


def test_without_a_journal_there_are_no_rows(tmp_path: Path):
    assert partial_rows(tmp_path / "nothing.work") is NO_ROWS
    assert partial_rows(tmp_path) is NO_ROWS
    (tmp_path / "text.work").write_text("no archive")
    assert partial_rows(tmp_path / "text.work") is NO_ROWS
    write_archive(tmp_path / "fit.work", "fit", {}, {})
    assert partial_rows(tmp_path / "fit.work") is NO_ROWS


def study(path: Path, **changes: Any) -> Path:
    """The journal of a study of four jobs, three of which are done."""
    rows = np.full((3, len(COLUMNS)), np.nan)
    rows[0, COLUMNS.index("p95_s")], rows[1, COLUMNS.index("mfu")] = 2.0, 0.5
    arrays: dict[str, Any] = {
        "tasks/positions": np.array([3, 0, 2]),
        "tasks/rows": rows,
        "tasks/problems": np.array(["", "", "too\x1b large"]),
        "tasks/jobs": np.array(["x", "y", "z"]),
    }
    about = {"labels": ["tp=8", "tp=1", "tp=4"], "n_tasks": 4}
    for name, value in changes.items():
        (arrays if f"tasks/{name}" in arrays else about)[f"tasks/{name}" if f"tasks/{name}" in arrays else name] = value
    write_archive(path, "study", {"identity": "of another", **about}, arrays)
    return path


def test_jobs_of_a_study_stand_in_its_order_with_what_is_known_of_them(tmp_path: Path):
    found = partial_rows(study(tmp_path / "a.work"))
    assert [(row.label, dict(row.figures), row.problem) for row in found.rows] == [
        ("tp=1", {"mfu": 0.5}, ""),
        ("tp=4", {}, r"too\x1b large"),
        ("tp=8", {"p95_s": 2.0}, ""),
    ]
    table = found.table()
    assert (table.title, tuple(table.columns)) == ("3 of 4 jobs", ("job", "p95", "MFU", "why not"))
    assert tuple(table.rows[2]) == ("tp=8", "2 s", "", "")


def test_a_journal_that_has_changed_is_read_again(tmp_path: Path):
    path = study(tmp_path / "a.work")
    assert partial_rows(path).n_done == 3
    study(path, positions=np.array([1, 0, 2]), labels=["changed", "b", "c"])
    assert [row.label for row in partial_rows(path).rows] == ["b", "changed", "c"]


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": np.array([0, 1])},
        {"positions": np.array([-1, 0, 1])},
        {"positions": np.array([0.0, 1.0, 2.0])},
        {"rows": np.zeros((3, 2))},
        {"rows": np.full((3, len(COLUMNS)), np.inf)},
        {"problems": np.array([1, 2, 3])},
    ],
)
def test_arrays_that_are_none_of_a_study_are_refused_by_name(changes: dict[str, Any], tmp_path: Path):
    with pytest.raises(DataError, match=r"a\.work"):
        partial_rows(study(tmp_path / "a.work", **changes))


@pytest.mark.parametrize("labels", [None, "abc", ["one"], {}, [[1], {"a": 2}, "\x1b[2J"]])
def test_labels_that_are_none_do_no_harm(labels: Any, tmp_path: Path):
    found = partial_rows(study(tmp_path / "a.work", labels=labels, n_tasks="many"))
    assert [len(found.rows), found.n_all] == [3, 3]
    assert all(row.label.isprintable() for row in found.rows)


@pytest.mark.parametrize("best", [None, {}, [1], ["plan"], [{"plan": 1, "value": "x"}], [{}] * (MOST_ROWS + 1)])
def test_what_a_search_tells_is_read_with_care(best: Any, tmp_path: Path):
    path = tmp_path / "a.work"
    write_archive(path, "search", {"best": best, "objective": [], "unit": "s"}, {})
    try:
        assert len(partial_rows(path).rows) <= MOST_ROWS
    except DataError as error:
        assert "a.work" in str(error)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_rows_of_a_sweep_are_those_of_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    report = printed(capsys, "sweep", JOB, "--set", "plan.recompute=none,full", "--samples", "64", "--resume", "a.work")
    found = partial_rows("a.work")
    assert [row.label for row in found.rows] == [f"plan.recompute={kind}" for kind in ("none", "full")]
    for row, own in zip(found.rows, report["rows"], strict=True):
        known = own["figures"] or {}
        assert row.figures == {name: known[name] for name in row.figures}
        assert bool(row.figures) != bool(row.problem)


def test_plans_of_a_search_are_those_of_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    report = printed(capsys, "search", JOB, "--top", "3", "--resume", "a.work")
    found = partial_rows("a.work")
    memory = {row.figures["memory_bytes"] for row in found.rows}
    assert {one["memory_bytes"] for one in report["top"]} <= memory
    assert (found.objective, found.unit) == (report["objective"], report["objective_unit"])
    best = min(row.figures["value"] for row in found.rows)
    assert best == pytest.approx(report["best"]["value_s"], rel=0.01)
    assert tuple(found.table().columns) == ("plan", "p95", "memory", "GPUs")

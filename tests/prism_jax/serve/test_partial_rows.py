"""Rows of a study that goes on: the same as those of its answer, and nothing of a journal that is damaged."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest

from prism_jax.core.archive import write_archive
from prism_jax.result.objective import OBJECTIVES
from prism_jax.serve.partial_rows import partial_rows
from prism_jax.shell.catalogue import COMMANDS
from prism_jax.study.figures import JobFigures

SWEEP = ["sweep", "j.yaml", "--set", "plan.tp=1,2,4", "--set", "plan.pp=1,2", "--set", "plan.micro_batch=1"]
FIGURES = JobFigures(*(1.0,) * 33)


def figures(p95_s: float) -> np.ndarray:
    return np.array(astuple(replace(FIGURES, value=p95_s, p95_s=p95_s)), float)


def write_study(path: Path, rows: dict[int, float | str]) -> None:
    problems = [text if isinstance(text, str) else "" for text in rows.values()]
    values = [np.full(len(figures(1.0)), np.nan) if isinstance(one, str) else figures(one) for one in rows.values()]
    arrays = {
        "tasks/positions": np.array(list(rows)),
        "tasks/rows": np.array(values),
        "tasks/problems": np.array(problems, dtype=str),
        "tasks/jobs": np.array(["a"] * len(rows), dtype=str),
    }
    write_archive(path, "study", {"identity": "x"}, arrays)


def test_rows_of_a_sweep_have_their_settings_best_first(tmp_path: Path) -> None:
    write_study(tmp_path / "a.work", {0: 3.0, 3: 2.0, 4: "out of memory"})
    found = partial_rows(COMMANDS.named("sweep"), SWEEP, tmp_path / "a.work")
    assert found is not None
    assert found.text == "3 of 6 jobs are done. They are compared by p95."
    assert found.tables[0].columns[:2] == ("tp", "pp")
    assert [tuple(row[:2]) for row in found.tables[0].rows] == [("2", "2"), ("1", "1"), ("4", "1")]
    assert [row[-1] for row in found.tables[0].rows] == ["1.000", "1.500", "impossible: out of memory"]


def test_rows_of_a_scaling_study_go_by_size_and_plan(tmp_path: Path) -> None:
    write_study(tmp_path / "a.work", {3: 2.0})
    words = ["scale", "j.yaml", "--gpus", "8:32", "--vary", "plan.tp=1,2"]
    found = partial_rows(COMMANDS.named("scale"), words, tmp_path / "a.work")
    assert found is not None
    assert tuple(found.tables[0].rows[0][:2]) == ("16", "2")
    assert found.text.startswith("1 of 6 jobs are done.")


def test_a_search_tells_its_rounds(tmp_path: Path) -> None:
    arrays = {
        "screen/reason": np.array([0, 0, 1]),
        "screen/memory": np.ones(3),
        "screen/bound": np.array([1.0, 2.0, np.inf]),
        "screen/n_devices": np.ones(3, int),
        "64/scores": np.array([2.5]),
        "64/plans": np.array([0, 1]),
    }
    write_archive(tmp_path / "a.work", "search", {"identity": "x"}, arrays)
    found = partial_rows(COMMANDS.named("search"), ["search", "j.yaml"], tmp_path / "a.work")
    assert found is not None
    assert found.text == "2 of 3 plans can run and fit into memory."
    assert found.tables[0].rows == [("64 draws", "1 of 2", "2.5 s")]
    words = ["search", "j.yaml", "--objective", "cost_per_mtoken"]
    in_money = partial_rows(COMMANDS.named("search"), words, tmp_path / "a.work")
    assert in_money is not None
    assert in_money.tables[0].rows[0][2] == f"2.5 {OBJECTIVES.named('cost_per_mtoken').unit}"


PLAN = {"plan": "tp 2", "value": 2.5, "memory_bytes": 2.0**30, "n_devices": 8}


@pytest.mark.parametrize(
    ("best", "rows"),
    [
        ([PLAN, 1], [("tp 2", "2.5 s", "1 GiB", "8")]),
        (
            [PLAN, {"plan": "\x1b[2J", "value": "x", "n_devices": True}],
            [("tp 2", "2.5 s", "1 GiB", "8"), (r"\x1b[2J", "", "", "")],
        ),
    ],
)
def test_a_search_tells_the_plans_that_lead(tmp_path: Path, best: object, rows: list[tuple[str, ...]]) -> None:
    arrays = {"screen/bound": np.array([1.0, np.inf]), "64/scores": np.array([2.5]), "64/plans": np.array([0])}
    about = {"identity": "x", "objective": "p95", "unit": "s", "best": best}
    write_archive(tmp_path / "a.work", "search", about, arrays)
    found = partial_rows(COMMANDS.named("search"), ["search", "j.yaml"], tmp_path / "a.work")
    assert found is not None
    assert found.tables[0].columns == ("plan", "p95", "memory", "GPUs")
    assert [tuple(row) for row in found.tables[0].rows] == rows
    assert found.tables[1].rows == [("64 draws", "1 of 1", "2.5 s")]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text"])
def test_a_damaged_journal_shows_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.work").write_bytes(content)
    assert partial_rows(COMMANDS.named("sweep"), SWEEP, tmp_path / "a.work") is None


def test_a_journal_of_other_work_shows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.work"
    assert partial_rows(COMMANDS.named("sweep"), SWEEP, path) is None
    write_archive(path, "search", {"identity": "x"}, {"screen/reason": np.ones(3, int)})
    assert partial_rows(COMMANDS.named("sweep"), SWEEP, path) is None
    write_study(path, {9: 1.0})
    assert partial_rows(COMMANDS.named("sweep"), SWEEP, path) is None
    write_study(path, {0: 1e31})
    assert partial_rows(COMMANDS.named("sweep"), SWEEP, path) is None
    write_study(path, {0: 1.0})
    assert partial_rows(COMMANDS.named("sweep"), ["sweep", "j.yaml", "--set", "tp"], path) is None
    assert partial_rows(COMMANDS.named("predict"), ["predict", "j.yaml"], path) is None

"""The page of blind scores: its figures are those of the rows, and nothing that was measured is on it."""

import importlib.util
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from prism_jax.validation.score import RowResult, validation_of
from tests.conftest import ROOT

PARTS = {"compute": 3.0, "communication": 1.0, "host": 0.0, "bubble": 0.0}
REMARK = "says 134.02 in another place"


def row(name: str, source: str, error: float, **more: Any) -> RowResult:
    measured = 7.654321
    return RowResult(
        name, source, measured, measured * (1.0 + error), error, 6.0, 9.0, True, parts_s=PARTS, device="h100-sxm",
        n_devices=64, mfu=0.4321, baseline_error=0.9, **more,
    )  # fmt: skip


ROWS = [
    *(row(f"a{i}", "repo/A", 0.02 * i) for i in range(8)),
    row("b0", "repo/B | odd", -0.8, framework="fsdp"),
    row("c0", "repo/C", 3.0, defect=REMARK),
    RowResult("d0", "repo/D", None, unsupported="device not stated"),
]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("accuracy_page", ROOT / "docs" / "accuracy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    record = asdict(validation_of(ROWS)) | {
        "inputs": {"file": "/somewhere/rows.csv", "leave_out": "source", "deterministic": False},
        "versions": {"prism-jax": "1", "jax": "2"},
        "git_revision": None,
        "seed": 0,
    }
    (folder / "scores.json").write_text(json.dumps(record))
    before, sys.argv = sys.argv, ["accuracy.py", str(folder / "scores.json"), "--out", str(folder)]
    try:
        script.main()
    finally:
        sys.argv = before
    assert (folder / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    return (folder / "accuracy.md").read_text()


def test_page_shows_scores_and_reasons(page: str):
    assert "| repo/A | 8 | 7.0% | 7.0% | +7.0% |" in page
    assert "| b0 | repo/B / odd | -80% | yes | 64 x h100-sxm, fsdp: compute 75%, communication 25% |" in page
    assert "| 1 | device not stated |" in page
    assert "rows.csv --leave-out source --seed 0 --json" in page
    assert "typical utilisation" in page


def test_page_holds_nothing_that_was_measured(page: str):
    assert REMARK not in page
    assert "/somewhere" not in page
    for value in ("7.65", "0.43", "43.2"):
        assert value not in page


def test_no_source_fills_the_list_of_the_worst(page: str, script: ModuleType):
    named = re.findall(r"^\| (a\d) \| repo/A", page, re.MULTILINE)
    assert named == [f"a{i}" for i in range(7, 7 - script.PER_SOURCE, -1)]


def test_the_shipped_page_is_whole():
    text = (Path(ROOT) / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert text.startswith("# How far predictions are from measurements")
    assert (ROOT / "docs" / "accuracy.png").is_file()

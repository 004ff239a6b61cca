"""`python -m experiments.score_steps` and `score_memory`: tables of published rows under the report of `prism-jax validate`."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments import score_memory, score_steps

ROW = {
    "id": "one", "source": "site A", "model": "llama 7B", "layers": "32", "hidden": "4096", "ffn": "11008", "heads": "32",
    "kv_heads": "32", "vocab": "32000", "experts": "", "seq_len": "4096", "gpu": "H100-SXM-80GB", "num_gpus": "16",
    "gpus_per_node": "8", "tp": "1", "pp": "1", "vpp": "", "dp": "16", "cp": "1", "ep": "1", "sharding": "fsdp",
    "micro_batch": "1", "global_batch": "32", "precision": "bf16", "recompute": "none", "network": "",
    "measured_step_time_s": "1.0", "notes": "torchtitan",
}  # fmt: skip
CHANGES = (
    {},
    {"id": "two", "source": "site B", "measured_step_time_s": "10"},
    {"id": "three", "source": "site B", "gpu": "abacus"},
    {"id": "four", "source": "site B", "notes": "torchtitan CHECK: tokens per step do not fit"},
)


def printed(capsys: pytest.CaptureFixture[str], module: Any, *arguments: str) -> str:
    """What a script prints to stdout."""
    before, sys.argv = sys.argv, [module.__name__, *arguments]
    try:
        assert module.main() == 0
    finally:
        sys.argv = before
    return capsys.readouterr().out


@pytest.fixture
def file(tmp_path: Path) -> str:
    with (tmp_path / "rows.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(ROW))
        writer.writeheader()
        writer.writerows(ROW | change for change in CHANGES)
    return str(tmp_path / "rows.csv")


def test_rows_without_a_job_and_with_a_defect_are_told_apart(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, score_steps, file, "--deterministic", "--seed", "5", "--json"))
    assert found["overall"]["n"] == 2
    assert (found["overall"]["n_unsupported"], found["overall"]["n_defect"]) == (1, 1)
    assert found["overall_with_defects"]["n"] == 3
    one, two, three, four = found["rows"]
    assert one["predicted_s"] == two["predicted_s"]
    assert one["framework"] == "fsdp"
    assert "no preset of device abacus" in three["unsupported"]
    assert "tokens per step" in four["defect"]
    assert (found["seed"], found["inputs"]["file"]) == (5, file)


def test_the_text_is_that_of_the_command(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, score_steps, file, "--deterministic")
    assert out.index("two") < out.index("one")
    assert "tokens per step" in out
    assert "no preset of device" in out


def test_shared_layouts_are_classified_as_the_study_found(
    shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = str(shared_data / "steps" / "memory_oom.csv.gz")
    overall = json.loads(printed(capsys, score_memory, table, "--json"))["overall"]
    assert overall["n"] == 3682
    assert overall["accuracy"] > 0.95 > overall["majority_accuracy"] + 0.3
    assert overall["peak_bytes"]["median_ape"] <= 0.08


@pytest.mark.slow
def test_reference_rows_of_the_shared_data(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, score_steps, str(shared_data / "steps" / "reference_rows.json"), "--json"))
    assert found["overall"]["n"] == 28  # the typical step: ranges are of steps that varied
    assert found["overall"]["mape"] < 0.08
    assert all(row["in_range"] for row in found["rows"] if row["id"].startswith("llama3"))

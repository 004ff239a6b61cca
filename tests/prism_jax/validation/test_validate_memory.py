"""`prism-jax validate memory`: the figures of the classification, against the table itself and by hand, and its mistakes."""

import json
from pathlib import Path
from typing import Any

import pytest

from prism_jax.shell.app import main
from prism_jax.validation.job_table import read_memory_runs

ROW = {
    "row": "1", "model": "llama-2-7b", "model.name": "tiny 1B", "model.n_layers": "16", "model.hidden": "2048",
    "model.n_heads": "16", "model.n_kv_heads": "16", "model.ffn_hidden": "8192", "framework": "nanotron", "cluster": "dgx-h100",
    "plan.tp": "", "plan.dp": "8", "plan.micro_batch": "1", "plan.global_batch": "32", "plan.seq_len": "4096",
    "plan.zero_stage": "0", "plan.recompute": "none", "fits": "true", "peak_memory_bytes": "",
}  # fmt: skip
LARGE = {"plan.micro_batch": "512", "plan.global_batch": "4096"}


def write(path: Path, *changes: dict[str, str]) -> str:
    lines = [",".join(ROW), *(",".join((ROW | change).values()) for change in changes)]
    path.write_text("\n".join(lines))
    return str(path)


def validated(capsys: pytest.CaptureFixture[str], file: str) -> dict[str, Any]:
    assert main(["validate", "memory", file, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_outcomes_and_peaks_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two that fit, one of them called OOM in the table; one that cannot; one that says nothing; a peak 10% too low."""
    (plain,) = read_memory_runs(write(tmp_path / "one.csv", {}))
    peak = plain.job.memory.worst.allocator_bytes
    file = write(
        tmp_path / "rows.csv",
        {"fits": "", "peak_memory_bytes": f"{peak / 0.9:.6f}"},
        {"fits": "false"},
        {"fits": "false", "model.name": "tiny 2B", **LARGE},
        {"fits": ""},
    )
    found = validated(capsys, file)
    overall = found["overall"]
    assert {key: overall[key] for key in ("n", "fits_called_fits", "oom_called_fits", "oom_called_oom")} == {
        "n": 3,
        "fits_called_fits": 1,
        "oom_called_fits": 1,
        "oom_called_oom": 1,
    }
    assert overall["accuracy"] == pytest.approx(2 / 3)
    assert overall["majority_accuracy"] == pytest.approx(2 / 3)
    assert overall["peak_bytes"]["n"] == 1
    assert overall["peak_bytes"]["median_ape"] == pytest.approx(0.1, abs=1e-5)
    assert overall["peak_bytes"]["bias"] == pytest.approx(-0.1, abs=1e-5)
    assert list(found["by_model"]) == ["tiny 1B", "tiny 2B"]
    assert found["by_model"]["tiny 2B"]["peak_bytes"] == {
        "n": 0, "median_ape": None, "mape": None, "bias": None, "p90_ape": None,
    }  # fmt: skip


def test_text_has_a_line_per_model_and_the_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "rows.csv", {}, {"model.name": "tiny 2B", "fits": "false", **LARGE})
    assert main(["validate", "memory", file, "--details"]) == 0
    out = capsys.readouterr().out
    assert "majority" in out
    assert "tiny 1B" in out
    assert "tiny 2B" in out
    assert "overall" in out
    assert "100.0%" in out


def test_the_device_of_a_row_decides_what_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big = {
        "model.hidden": "4096",
        "model.n_layers": "40",
        "model.ffn_hidden": "14336",
        "plan.zero_stage": "1",
        "plan.tp": "2",
    }
    small, large = ({**big, "plan.dp": "4", "cluster": name} for name in ("dgx-a100-40gb", "dgx-b200"))
    assert validated(capsys, write(tmp_path / "small.csv", small))["overall"]["fits_called_oom"] == 1
    assert validated(capsys, write(tmp_path / "large.csv", large))["overall"]["fits_called_fits"] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.hidden": "wide"}, "rows.csv line 2 model.hidden: 'wide', but it must be an integer"),
        ({"plan.tp": "0"}, "rows.csv line 2 plan.tp: 0, but it must be at least 1"),
        ({"cluster": "abacus"}, "rows.csv line 2 cluster: unknown cluster 'abacus'"),
        ({"plan.recompute": "some"}, "rows.csv line 2 plan.recompute: 'some' must be one of"),
        ({"peak_memory_bytes": "lots"}, "line 2: peak_memory_bytes = 'lots' is not a positive number"),
        ({"fits": "maybe"}, "line 2: fits = 'maybe', but it must be true or false"),
        ({"fits": ""}, "no row has fits or peak_memory_bytes"),
    ],
)
def test_mistakes_name_line_field_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str], message: str
) -> None:
    assert main(["validate", "memory", write(tmp_path / "rows.csv", changes)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_files_that_are_no_memory_table_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.csv"
    for content, message in (
        (b"id,model\n1,2\n", "no column fits"),
        (b"status,layers\n1,2\n", "unknown column 'status'"),
        (b"\x1f\x8b broken", "the gzip file ends too early"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        ((",".join(ROW) + "\n1,2\n" + "true").encode(), "line 2: the number of fields differs"),
        (b"", "no column job"),
    ):
        file.write_bytes(content)
        assert main(["validate", "memory", str(file)]) == 2
        assert message in capsys.readouterr().err
    assert main(["validate", "memory", str(tmp_path / "absent.csv")]) == 2
    assert "cannot be read" in capsys.readouterr().err

"""`prism-jax validate memory`: the figures of the classification, against the table itself and by hand, and its mistakes."""

import json
from pathlib import Path
from typing import Any

import pytest

from prism_jax.framework.memory_options import GIB
from prism_jax.framework.nanotron import NANOTRON
from prism_jax.io.tables.memory_table import read_memory_table
from prism_jax.memory.breakdown import memory
from prism_jax.shell.app import main

ROW = {
    "job_id": "1", "model": "tiny 1B", "layers": "16", "hidden": "2048", "ffn": "8192.0", "heads": "32", "kv_heads": "32.0",
    "vocab": "131072", "seq_len": "4096", "tp": "1", "pp": "1", "dp": "8", "zero_stage": "0", "micro_batch": "1",
    "grad_accum": "4", "status": "Success", "peak_mem_reserved_gb": "", "gpu": "H100-SXM-80GB",
    "recompute": "none", "source": "nanotron bench",
}  # fmt: skip


def write(path: Path, *changes: dict[str, str]) -> str:
    lines = [",".join(ROW), *(",".join((ROW | change).values()) for change in changes)]
    path.write_text("\n".join(lines))
    return str(path)


def validated(capsys: pytest.CaptureFixture[str], file: str) -> dict[str, Any]:
    assert main(["validate", "memory", file, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_outcomes_and_peaks_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two that fit, one of them called OOM in the table; one that cannot; one failure of another kind; a peak 10 % too low."""
    plain = read_memory_table(write(tmp_path / "one.csv", {}))[0]
    peak = memory(plain.model, plain.cluster, plain.plan, NANOTRON.memory).worst.allocator_bytes / GIB
    file = write(
        tmp_path / "rows.csv",
        {"peak_mem_reserved_gb": f"{peak / 0.9:.6f}"},
        {"status": "OOM"},
        {"status": "OOM", "micro_batch": "512", "model": "tiny 2B"},
        {"status": "Other"},
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
    file = write(tmp_path / "rows.csv", {}, {"model": "tiny 2B", "micro_batch": "512", "status": "OOM"})
    assert main(["validate", "memory", file]) == 0
    out = capsys.readouterr().out
    assert "majority" in out
    assert "tiny 1B" in out
    assert "tiny 2B" in out
    assert "overall" in out
    assert "100.0%" in out


def test_the_device_of_a_row_decides_what_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big = {"hidden": "4096", "layers": "40", "ffn": "14336", "zero_stage": "1", "tp": "2", "dp": "4"}
    small, large = ({**big, "gpu": gpu, "status": "Success"} for gpu in ("A100-SXM-40GB", "B200"))
    assert validated(capsys, write(tmp_path / "small.csv", small))["overall"]["fits_called_oom"] == 1
    assert validated(capsys, write(tmp_path / "large.csv", large))["overall"]["fits_called_fits"] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": "wide"}, "line 2: hidden = 'wide' is not a whole number"),
        ({"tp": "0"}, "line 2: tp = 0, but it must be at least 1"),
        ({"gpu": "abacus"}, "line 2: unknown device 'abacus'"),
        ({"recompute": "some"}, "recompute = 'some', but it must be one of none, selective, full"),
        ({"peak_mem_reserved_gb": "lots"}, "peak_mem_reserved_gb = 'lots' is not a positive number"),
        ({"status": "Other"}, "no row says Success or OOM"),
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
        (b"id,model\n1,2\n", "no column status"),
        (b"\x1f\x8b broken", "the gzip file ends too early"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        ((",".join(ROW) + "\n1,2\n" + "Success").encode(), "line 2: the number of fields differs"),
        (b"", "no column status"),
    ):
        file.write_bytes(content)
        assert main(["validate", "memory", str(file)]) == 2
        assert message in capsys.readouterr().err
    assert main(["validate", "memory", str(tmp_path / "absent.csv")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_shared_layouts_are_classified_as_the_study_found(
    shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overall = validated(capsys, str(shared_data / "steps" / "memory_oom.csv.gz"))["overall"]
    assert overall["n"] == 3682
    assert overall["accuracy"] >= 0.92
    assert overall["accuracy"] > overall["majority_accuracy"] + 0.3
    assert overall["peak_bytes"]["median_ape"] <= 0.08

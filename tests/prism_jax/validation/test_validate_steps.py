"""`prism-jax validate steps`: what is printed, what the JSON holds, which mistakes are refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference.cost_model.store import save
from prism_jax.calibration.calibration import Calibration, shipped
from prism_jax.shell.app import main
from prism_jax.validation.report import cut
from tests.support.measured_rows import only_misfit

ROW = {
    "row": "one", "source": "site A", "model": "llama-2-7b", "framework": "fsdp", "cluster": "dgx-h100", "plan.dp": "16",
    "plan.sharding": "fsdp", "plan.micro_batch": "1", "plan.global_batch": "32", "plan.seq_len": "4096", "step_time_s": "1.0",
    "step_time_sd_s": "0.25", "notes": "torchtitan",
}  # fmt: skip


def table(path: Path, *changes: dict[str, str]) -> str:
    lines = [",".join(ROW), *(",".join((ROW | change).values()) for change in changes)]
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return table(
        tmp_path / "rows.csv",
        {},
        {"row": "two", "source": "site B", "step_time_s": "10", "step_time_sd_s": ""},
        {"row": "three", "source": "site B", "step_time_s": ""},
    )


def validated(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["validate", "steps", *arguments, "--deterministic", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_holds_figures_rows_inputs_and_versions(file: str, capsys: pytest.CaptureFixture[str]):
    found = validated(capsys, file, "--seed", "5")
    assert found["overall"]["n"] == 2
    assert (found["overall"]["n_unsupported"], found["overall"]["n_defect"]) == (1, 0)
    assert found["overall_with_defects"]["n"] == 2
    assert found["overall_baseline"] is None
    assert set(found["by_source"]) == {"site A", "site B"}
    assert [row["id"] for row in found["rows"]] == ["one", "two", "three"]
    one, two, three = found["rows"]
    assert one["predicted_s"] == two["predicted_s"]
    assert one["framework"] == "fsdp"
    assert one["low_s"] < one["predicted_s"] < one["high_s"]
    assert two["inside"] is False
    assert (one["measured_range"], two["measured_range"]) == ([0.5, 1.5], None)
    assert three["unsupported"] == "no measured time"
    assert found["seed"] == 5
    assert found["inputs"]["file"] == file
    assert "prism-jax" in found["versions"]
    assert found == validated(capsys, file, "--seed", "5")


def test_text_has_the_worst_row_first_and_the_reasons(file: str, capsys: pytest.CaptureFixture[str]):
    assert main(["validate", "steps", file, "--deterministic", "--details"]) == 0
    out = capsys.readouterr().out
    assert "worst row  two: " in out
    out = out[out.index("Rows, worst first") :]
    assert out.index("two") < out.index("one")
    assert "no measured time" in out
    assert "compute" in out
    assert "overall" in out


def test_rows_that_shaped_the_calibration_are_no_blind_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def note(source: str) -> str:
        assert (
            main(["validate", "steps", table(tmp_path / "x.csv", {"source": source}), "--deterministic", "--details"])
            == 0
        )
        return " ".join(capsys.readouterr().out.split())

    known = next(name for name in (shipped().record or {})["sources"] if "," not in name)
    assert "no blind score" in note(known)
    assert "--leave-out source" in note(known)
    assert "no blind score" not in note("nobody's")


def test_a_kept_calibration_is_used_for_its_devices_only(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    wide = only_misfit(1.0)
    save(replace(wide, record={"generation": "hopper"}), tmp_path / "h.npz")
    save(replace(wide, record={"generation": "ampere"}), tmp_path / "a.npz")
    plain, fitted = validated(capsys, file), validated(capsys, file, "--fit", str(tmp_path / "h.npz"))
    assert fitted["rows"][0]["high_s"] > 1.5 * plain["rows"][0]["high_s"]
    other = validated(capsys, file, "--fit", str(tmp_path / "a.npz"))
    assert other["overall"]["n"] == 0
    assert "calibrated on ampere, but h100-sxm is of hopper" in other["rows"][0]["unsupported"]


def test_left_out_groups_get_the_calibration_of_their_fold(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    import inference

    asked: list[str] = []

    def folds(
        rows: Any, by: str, *, key: Any, progress: Callable[[float], None], workers: Any = None
    ) -> dict[str, Calibration]:
        asked.append(by)
        return {"site A": only_misfit(0.01), "site B": only_misfit(0.5)}

    monkeypatch.setattr(inference, "step_folds", folds)
    picture = tmp_path / "accuracy.png"
    found = validated(capsys, file, "--leave-out", "source", "--plot", str(picture))
    one, two = found["rows"][:2]
    assert asked == ["source"]
    assert (one["group"], two["group"]) == ("site A", "site B")
    assert two["high_s"] > 1.5 * one["high_s"]
    assert found["overall_baseline"]["n"] == 2
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main(["validate", "steps", file, "--leave-out", "source", "--deterministic"]) == 0
    captured = capsys.readouterr()
    assert "baseline" in captured.out
    assert "no blind score" not in captured.out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plan.tpp": "2"}, "rows.csv line 2 plan.tpp: unknown field, did you mean tp?"),
        ({"model": ""}, "rows.csv line 2 model: is missing"),
        ({"cluster": "dgx-h10"}, "rows.csv line 2 cluster: unknown cluster 'dgx-h10'. Did you mean dgx-h100"),
        ({"plan.dp": "8.5"}, "rows.csv line 2 plan.dp: 8.5, but it must be an integer"),
        ({"gpu": "H100"}, "rows.csv line 1: unknown column 'gpu'"),
        ({"sorce": "x"}, "rows.csv line 1: unknown column 'sorce', did you mean source? Fields are named as in --set"),
        ({"id": "x"}, "rows.csv line 1: the columns row and id are the same. Keep one."),
        ({"step_time_sd_s": "wide"}, "rows.csv line 2: step_time_sd_s = 'wide' is not a number"),
        ({"set": "plan.pp=x"}, "rows.csv line 2: --set plan.pp=x: 'x', but it must be an integer"),
    ],
)
def test_a_table_that_is_wrong_is_refused_with_row_field_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str], message: str
):
    row = ROW | changes
    (tmp_path / "rows.csv").write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    assert main(["validate", "steps", str(tmp_path / "rows.csv")]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_cut_keeps_short_texts_and_marks_long_ones():
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"

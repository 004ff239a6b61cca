"""Training logs against what their own heads predict."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from prism_jax.core.errors import DataError
from prism_jax.job.load_job import load_job
from prism_jax.shell.app import main
from prism_jax.trace.step_log import StepLog
from prism_jax.validation.log_report import LogValidationReport
from prism_jax.validation.validate_log import settled, validate_log

from ..launch.heads import LLAMA, megatron_block, megatron_steps

LOGS = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "logs"


def log_of(tmp_path: Path, *runs: tuple[dict[str, object], list[float]]) -> Path:
    path = tmp_path / "train.log"
    text = [line for arguments, step_s in runs for line in [*megatron_block(arguments), *megatron_steps(step_s)]]
    path.write_text("\n".join(text) + "\n")
    return path


def predicted_s(path: Path) -> float:
    [run] = validate_log(path, device="h100-sxm").runs
    assert run.predicted is not None
    return run.predicted.p50_s


@pytest.fixture(scope="module")
def typical_s(tmp_path_factory) -> float:
    """Seconds that the job of these tests is predicted to take."""
    return predicted_s(log_of(tmp_path_factory.mktemp("typical"), (LLAMA, [1.0] * 8)))


def test_a_run_as_predicted_is_inside_and_a_slow_one_is_sick(typical_s, tmp_path, capsys):
    path = log_of(tmp_path, (LLAMA, [3 * typical_s, *[1.1 * typical_s] * 12]))
    assert main(["validate", str(path), "--device", "h100-sxm"]) == 0
    text = capsys.readouterr().out
    assert "As expected: predicted 9.1% shorter than measured" in text
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    assert {"measured", "predicted"} <= rows.keys()
    assert "inside" in rows["predicted"]
    slow = log_of(tmp_path, (LLAMA, [20 * typical_s] * 12))
    assert main(["validate", str(slow), "--device", "h100-sxm"]) == 1
    assert "SICK: predicted 95% shorter than measured" in capsys.readouterr().out


def test_every_block_is_a_run_of_its_own(typical_s, tmp_path):
    path = log_of(tmp_path, (LLAMA, [typical_s] * 8), ({**LLAMA, "global_batch_size": 128}, [2 * typical_s] * 8))
    runs = validate_log(path, device="h100-sxm").runs
    assert [run.measured.median_s for run in runs if run.measured] == pytest.approx(
        [typical_s, 2 * typical_s], rel=1e-3
    )
    assert [run.job["plan.global_batch"] for run in runs] == [64, 128]
    assert [run.verdict for run in runs] == ["inside", "inside"]


def test_without_a_device_the_steps_are_told_and_it_is_asked_for(tmp_path, capsys):
    path = log_of(tmp_path, (LLAMA, [1.0] * 8))
    assert main(["validate", str(path)]) == 2
    said = capsys.readouterr().err
    assert "--device" in said
    assert "1 s per step" in said


def test_without_job_and_steps_the_reason_is_said_once(tmp_path):
    path = log_of(tmp_path, (LLAMA, []))
    with pytest.raises(DataError) as told:
        validate_log(path)
    assert str(told.value).count("--device") == 1


def test_skipping_all_steps_is_refused(tmp_path, capsys):
    path = log_of(tmp_path, (LLAMA, [1.0] * 8))
    assert main(["validate", str(path), "--device", "h100-sxm", "--skip", "99"]) == 2
    said = capsys.readouterr().err
    assert "--skip 99 leaves none of 8 recorded steps" in said


def test_a_log_without_a_head_is_told_its_steps(tmp_path):
    path = tmp_path / "plain.log"
    path.write_text("".join(f"step {n} time 0.5 s\n" for n in range(20)))
    with pytest.raises(DataError, match=r"no head .* 0\.5 s"):
        validate_log(path)


def test_the_written_job_loads_with_the_same_step(typical_s, tmp_path):
    path, output = log_of(tmp_path, (LLAMA, [typical_s] * 8)), tmp_path / "job.yaml"
    validate_log(path, device="h100-sxm", output=output)
    text = output.read_text()
    assert "# line" in text
    assert str(tmp_path) not in text
    job = load_job(output)
    assert (job.model.n_params(), job.plan.tp, job.cluster.device.name) == (8_030_261_248, 2, "h100-sxm")


def test_a_table_of_jobs_is_told_apart_by_its_columns(tmp_path, capsys):
    path = tmp_path / "runs.csv"
    path.write_text(
        "model,framework,cluster,plan.dp,plan.micro_batch,plan.global_batch,plan.seq_len,step_time_s\n"
        "llama-2-7b,fsdp,dgx-h100,16,1,32,4096,2.0\n"
    )
    assert main(["validate", str(path)]) == 0
    assert "Predicted against measured steps: 1 row" in capsys.readouterr().out


def test_json_has_the_fields_and_where_they_are_from(typical_s, tmp_path, capsys):
    path = log_of(tmp_path, (LLAMA, [typical_s] * 8))
    main(["validate", str(path), "--device", "h100-sxm", "--json"])
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert run["job"]["plan.tp"] == 2
    assert run["read_from"]["plan.tp"].startswith("line ")


def test_the_first_steps_of_a_run_are_left_out_of_its_median():
    step_s = [9.0, 8.0, 7.0, *[1.0] * 20]
    found, n_left_out = settled(StepLog("log", "log", *_columns(step_s)))
    assert n_left_out == 3
    assert found.step_s.max() == 1.0
    assert settled(StepLog("log", "log", *_columns([9.0, 1.0, 1.0, 1.0])))[1] == 1


def _columns(step_s: list[float]):
    import numpy as np

    return np.arange(1, len(step_s) + 1), np.array(step_s), np.ones(len(step_s), np.int32)


def test_a_site_is_calibrated_by_a_log_alone_but_not_by_a_sick_one(typical_s, tmp_path, capsys):
    path = log_of(tmp_path, (LLAMA, [1.2 * typical_s] * 8), ({**LLAMA, "global_batch_size": 128}, [40 * typical_s] * 8))
    assert main(["calibrate", "--log", str(path), "--device", "h100-sxm", "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    [run] = found["runs"]
    assert run["measured_s"] == pytest.approx(1.2 * typical_s, rel=1e-3)
    assert any("run 2 of 2: sick, left out" in note for note in found["notes"])
    sick = log_of(tmp_path, (LLAMA, [20 * typical_s] * 8))
    assert main(["calibrate", "--log", str(sick), "--device", "h100-sxm"]) == 2
    assert "Nothing is measured" not in (said := capsys.readouterr().err)
    assert "sick" in said
    started = log_of(tmp_path, (LLAMA, []))
    assert main(["calibrate", "--log", str(started), "--device", "h100-sxm"]) == 2
    assert "run 1 of 1: no steps, left out" in (said := capsys.readouterr().err)
    assert said.endswith("Nothing is measured.\n")


@pytest.mark.parametrize(
    "timers",
    [
        "(min, max) time across ranks (ms):\n    forward-backward ........: (1100.00, {passes:.2f})\n"
        "    all-grads-sync ..........: (1.00, 12.00)\n    params-all-gather .......: (1.00, 8.00)\n"
        "    optimizer ...............: (20.00, 30.00)",
        "time (ms) | forward-compute: 300.00 | forward-recv: 200.00 | backward-compute: {rest:.2f} | "
        "backward-params-all-reduce: 20.00 | optimizer-clip-main-grad: 4.00 | optimizer: 30.00 | batch-generator: 3.71",
    ],
)
def test_timers_of_a_log_say_where_the_difference_lies(timers, typical_s, tmp_path):
    passes = 1e3 * 2 * typical_s
    text = timers.format(passes=passes, rest=passes - 500.0)
    steps = [f"{line}\n{text}" for line in megatron_steps([passes / 1e3 + 0.05] * 8)]
    path = tmp_path / "train.log"
    path.write_text("\n".join([*megatron_block(LLAMA), *steps]) + "\n")
    [run] = validate_log(path, device="h100-sxm").runs
    assert [one.measured_s for one in run.timed] == pytest.approx([passes / 1e3, 0.02, 0.03], rel=1e-3)
    assert run.predicted is not None
    assert sum(one.predicted_s for one in run.timed) == pytest.approx(run.predicted.p50_s)
    assert run.facts["where"].startswith("forward and backward")
    assert "100%" in run.facts["where"]


def test_timers_that_are_no_numbers_are_passed_over(typical_s, tmp_path):
    broken = "time (ms) | forward-compute: 1.2.3 | optimizer: . |\n    forward-backward .......: (1.2.3, ...)\n"
    path = tmp_path / "train.log"
    path.write_text("\n".join([*megatron_block(LLAMA), *(broken + line for line in megatron_steps([typical_s] * 8))]))
    [run] = validate_log(path, device="h100-sxm").runs
    assert run.timed == ()


def test_the_picture_shows_every_run_with_its_interval(typical_s, tmp_path, capsys):
    path = log_of(tmp_path, (LLAMA, [typical_s] * 8), ({**LLAMA, "global_batch_size": 128}, [2 * typical_s] * 8))
    report = validate_log(path, device="h100-sxm")
    panels = LogValidationReport.from_dict(report.to_dict()).figure().axes  # of the report alone
    assert report.card().verdict == "2 of 2 runs are as their heads predict."
    assert report.card().facts["run 2"].startswith("As expected")
    assert len(panels) == 4
    for run, ax in zip(report.runs, panels[::2], strict=True):
        assert run.measured is not None
        assert run.predicted is not None
        assert len(ax.lines[0].get_xdata()) == run.measured.n
        assert {line.get_ydata()[0] for line in ax.lines[1:]} == {run.measured.median_s, run.predicted.p50_s}
        [band] = ax.patches
        assert (band.get_y(), band.get_y() + band.get_height()) == pytest.approx(
            (run.predicted.low_s, run.predicted.high_s)
        )
    with pytest.raises(DataError, match="older version"):
        replace(report, points=None).figure()
    assert main(["validate", str(path), "--device", "h100-sxm", "--plot", str(tmp_path / "steps.png")]) == 0
    assert (tmp_path / "steps.png").stat().st_size > 1000


@pytest.mark.skipif(not LOGS.exists(), reason=f"the open logs are not at {LOGS}")
def test_heads_of_the_open_logs_say_what_is_known_of_them():
    from experiments.log_heads.run import outcome

    found = [outcome(folder)[0] for folder in sorted(LOGS.iterdir()) if (folder / "truth.json").exists()]
    right, wrong = sum(one.right for one in found), sum(len(one.wrong) for one in found)
    assert right >= 0.98 * (right + wrong)
    assert [one.name for one in found if one.runs[0] != one.runs[1]] == []
    assert [one.name for one in found if one.error is None or abs(one.error) > 0.005] == []
    assert [one.name for one in found if "sick" in one.verdicts] == []


@pytest.mark.skipif(not LOGS.exists(), reason=f"the open logs are not at {LOGS}")
def test_open_logs_with_steps_five_times_as_long_are_sick():
    from experiments.log_heads.run import outcome

    found = [outcome(folder, slower=5.0)[0] for folder in sorted(LOGS.iterdir()) if (folder / "truth.json").exists()]
    assert {verdict for one in found for verdict in one.verdicts} == {"sick", "no job"}

"""`prism-jax watch`: traces and logs, what is printed, and what is refused in one line."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inference.data.formats import read_training_log
from prism_jax import watch_steps
from prism_jax.core.errors import DataError
from prism_jax.shell.app import main
from prism_jax.trace.dependencies import durations
from prism_jax.trace.pipeline import dependencies
from prism_jax.trace.step_log import MOST_POINTS, StepLog, step_points
from prism_jax.watch.report import WatchReport
from tests.prism_jax.launch import heads
from tests.prism_jax.recorded.calls import refused
from tests.support.broken_traces import BROKEN, Broken
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import Law, draws, planted, record, timed

N = 150
JOB = PipelineJob(pp=2, dp=2, n_micro_batch=3)
LAW = Law(rank=0.05, own=0.03)


def log(factor=1.0, first=0, last=N, n_per_entry=1, seed=0):
    step_s = 2.0 * np.exp(0.004 * np.random.default_rng(seed).standard_normal(N))
    step_s[first:last] *= factor
    return StepLog("train.log", "train", np.arange(1, N + 1), step_s, np.full(N, n_per_entry))


def test_a_log_without_a_slow_phase_has_none():
    assert watch_steps(log()).phases == ()


def test_onset_size_loss_and_the_step_to_act_at():
    (phase,) = watch_steps(log(1.2, 100), restart_cost_s=10.0).phases
    assert (phase.onset_step, phase.told_step, phase.end_step) == (101, 103, None)
    assert phase.size == pytest.approx(0.2, abs=0.01)
    assert phase.lost_s == pytest.approx(50 * 0.4, rel=0.05)
    assert phase.verdict == "act"
    assert phase.act_step == pytest.approx(125, abs=2)  # 25 steps of .4 s


def test_waiting_is_told_with_the_steps_left():
    (phase,) = watch_steps(log(1.2, 100), restart_cost_s=40.0).phases
    assert phase.verdict == "wait"
    assert phase.wait_steps == pytest.approx(50, abs=5)


def test_entries_that_are_means_over_ten_steps_cost_ten_times():
    one = watch_steps(log(1.2, 100)).phases[0].lost_s
    assert watch_steps(log(1.2, 100, n_per_entry=10)).phases[0].lost_s == pytest.approx(10 * one)


def test_a_phase_that_ends_is_over():
    (phase,) = watch_steps(log(1.2, 60, 100)).phases
    assert (phase.onset_step, phase.end_step, phase.verdict) == (61, 101, "over")


def test_a_faster_job_is_told_and_no_slow_phase():
    report = watch_steps(log(0.9, 80))
    assert report.phases == ()
    assert report.faster_steps == (81,)


def test_a_log_that_starts_over_names_its_first_steps():
    found = log(1.04, 80, 83)
    steps = np.concatenate([np.arange(1, 81), np.arange(61, 131)])
    report = watch_steps(replace(found, step=steps))
    assert report.phases == ()
    assert set(report.settled_steps) <= {61, 62, 63}
    assert report.settled_steps


def test_the_report_survives_json():
    report = watch_steps(log(1.2, 100))
    assert WatchReport.from_dict(report.to_dict()) == report
    assert "20% slower since step 101" in report.card().verdict
    assert report.card().tone == "unsure"


@pytest.mark.parametrize("found", [log(1.2, 100), log(), timed(JOB, planted(JOB, 30, 0, LAW).run_s)])
def test_a_stored_report_is_drawn_as_the_new_one(found):
    """The picture is made of the report alone; of a long log it keeps the longest step."""
    report = watch_steps(found, n_learn=20)
    again = WatchReport.from_dict(json.loads(report.to_json()))
    drawn = [np.asarray(line.get_xydata()) for line in again.figure().axes[0].lines]
    for line, other in zip(report.figure().axes[0].lines, drawn, strict=True):
        np.testing.assert_array_equal(line.get_xydata(), other)
    with pytest.raises(DataError, match="older version"):
        replace(report, points=None).figure()


def test_points_of_a_long_log_are_few_and_hold_its_longest_step():
    steps, step_s = np.arange(5000), np.random.default_rng(0).gamma(4.0, size=5000)
    found = step_points(steps, step_s)
    assert sum(found.stands_for) == 5000
    assert len(found.step) <= MOST_POINTS
    assert max(found.step_s) == pytest.approx(step_s.max(), rel=1e-5)
    assert np.median(found.step_s) > np.median(step_s)  # the longest of every block are among them
    assert list(found.step) == sorted(found.step)
    few = step_points(steps[:9], step_s[:9])
    assert few.step == tuple(range(9))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"restart_cost_s": 0.0}, "--restart-cost"),
        ({"restart_cost_s": float("inf")}, "--restart-cost"),
        ({"smallest": 0.0}, "--smallest"),
        ({"smallest": float("nan")}, "--smallest"),
        ({"n_learn": 3}, "--learn"),
        ({"n_learn": N}, "--learn"),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(options, named):
    with pytest.raises(DataError, match=named):
        watch_steps(log(), **options)


@pytest.mark.parametrize("slow", [(0, 1), (1, 0)])
def test_the_worker_that_slows_down_in_a_trace_is_named_and_those_that_wait_for_it_are_not(slow):
    trace = record(PipelineJob(pp=2, dp=2, n_micro_batch=3), 1, *draws(0, spread=0.0)).trace()
    job = PipelineJob(pp=2, dp=2, n_micro_batch=3)
    needs = dependencies(trace)
    run_s = np.repeat(durations(trace, needs).run_s, 60, axis=2)
    run_s *= np.exp(0.005 * np.random.default_rng(1).standard_normal(run_s.shape))
    computes = np.array([op.op_type in ("forward-compute", "backward-compute") for op in trace.ops])
    of_stage = np.array([op.stage for op in trace.ops]) == slow[1]
    run_s[computes & of_stage, slow[0], 40:] *= 1.3
    found = timed(job, run_s)
    (phase,) = watch_steps(found).phases
    assert abs(phase.onset_step - int(found.steps[40])) <= 1
    assert phase.slow_rank is not None
    assert phase.slow_rank.rank == int(found.rank[slow])
    assert phase.slow_rank.size == pytest.approx(0.3, abs=0.1)
    assert abs(phase.slow_rank.others_size) < 0.02


# --- `prism-jax watch`: what it prints, and what it refuses in one line ----------------------------------------------


@pytest.fixture
def slow_log(tmp_path: Path) -> Path:
    step_s = 2.0 * np.exp(0.004 * np.random.default_rng(0).standard_normal(120))
    step_s[80:] *= 1.15
    file = tmp_path / "train.csv"
    rows = "".join(f"{number},{seconds:.6f}\n" for number, seconds in enumerate(step_s, 1))
    file.write_text(f"step,step_time_s\n{rows}")
    return file


def test_it_prints_onset_size_and_verdict(slow_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(slow_log)]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"WAIT: steps are 15% slower since step 81; a restart \(10 min\) would cost more", printed)
    assert main(["watch", str(slow_log), "--restart-cost", "5s"]) == 0
    assert "ACT: steps are 15% slower since step 81" in capsys.readouterr().out


def test_json_and_picture(slow_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = slow_log.with_suffix(".png")
    assert main(["watch", str(slow_log), "--json", "--plot", str(picture)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == "prism-jax/watch/1"
    assert report["phases"][0]["onset_step"] == 81
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_what_is_left_is_told_on_request(slow_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(slow_log), "--remaining", "900"]) == 0
    assert "900 steps take 3" in capsys.readouterr().out  # minutes: 900 steps of 2 to 2.3 s
    assert main(["watch", str(slow_log), "--json"]) == 0
    assert "time_left" not in json.loads(capsys.readouterr().out)
    assert main(["watch", str(slow_log), "--remaining", "900", "--json"]) == 0
    left = json.loads(capsys.readouterr().out)["time_left"]
    assert left["p5_s"] < left["p50_s"] < left["p95_s"]
    assert left["p95_s"] - left["p5_s"] > 5.0 * (left["independent_p95_s"] - left["independent_p5_s"])
    assert left["variance_shares"]["change"] > 0.5  # the log holds a slow phase that lasts


@pytest.mark.parametrize("kind", BROKEN[::30], ids=lambda kind: kind.name)
def test_broken_logs_and_traces_are_refused_in_one_line(
    tmp_path: Path, kind: Broken, capsys: pytest.CaptureFixture[str]
) -> None:
    assert re.search(kind.match, refused([str(kind.make(tmp_path))], capsys, "watch"))


def test_of_a_log_of_several_jobs_the_last_is_watched(tmp_path):
    """A new block of arguments is a new job: its steps are no slow phase of the one before."""
    path = tmp_path / "train.log"
    rng = np.random.default_rng(0)
    runs = [(heads.LLAMA, 1.0), ({**heads.LLAMA, "global_batch_size": 128}, 2.0)]
    lines = [
        line
        for arguments, seconds in runs
        for line in [
            *heads.megatron_block(arguments),
            *heads.megatron_steps((seconds * (1.0 + 0.01 * rng.standard_normal(120))).tolist()),
        ]
    ]
    path.write_text("\n".join(lines) + "\n")
    report = watch_steps(path)
    assert report.normal_s == pytest.approx(2.0, rel=0.02)
    assert not report.phases
    assert any("run 2 of 2 of the log: 16 x GPUs" in note for note in report.info.notes)
    table = read_training_log(path, "mine")
    assert set(table.frame["run"]) == {"mine run 1", "mine run 2"}
    assert set(table.frame["n_gpus"]) == {16}

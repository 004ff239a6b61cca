"""Two recordings compared: what is beyond run-to-run noise is called, what is not is not, and where a change begins is told."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.recorded.compare_recordings import compare_recordings
from prism_jax.recorded.paired_runs import RUN_SPREAD, RunSteps, compared_runs, quantile_ratio
from prism_jax.shell.app import main
from prism_jax.trace.step_log import StepLog
from tests.support.traces import trace_at

SCHEDULE = np.where(np.arange(400) < 150, 0.3, 0.5) * (
    1.0 + 0.1 * (np.arange(400) % 7 == 0)
)  # levels that all runs have


def log(seed: int = 0, level: float = 1.0, noise: float = 0.01, ar1: float = 0.3, first: int = 10) -> StepLog:
    """A run of the schedule: successive steps are correlated, some stall."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(len(SCHEDULE))
    for n in range(1, len(x)):
        x[n] = ar1 * x[n - 1] + np.sqrt(1.0 - ar1**2) * x[n]
    step_s = level * SCHEDULE * np.exp(noise * x) * np.where(rng.random(len(x)) < 0.01, 3.0, 1.0)
    return StepLog(f"run{seed}.csv", f"run {seed}", np.arange(first, first + len(x)), step_s, np.ones(len(x), np.int32))


def steps(one: StepLog) -> RunSteps:
    return RunSteps(one.source, one.step, one.step_s, one.n_steps.astype(np.int64))


def slower(one: StepLog, factor: float, entry: int = 0) -> StepLog:
    step_s = one.step_s.copy()
    step_s[entry:] *= factor
    return replace(one, step_s=step_s)


def test_a_recording_is_like_itself():
    report = compare_recordings([log(), log()])
    assert (report.result, report.typical.ratio, report.change, report.is_failed) == ("same", 1.0, None, False)
    assert report.p50.ratio == report.p95.ratio == 1.0


def test_the_ratio_of_paired_steps_is_exact_whatever_the_schedule():
    report = compare_recordings([log(1), slower(log(1), 1.1)])
    assert report.typical.ratio == pytest.approx(1.1, rel=1e-12)
    assert report.typical.low < 1.1 < report.typical.high
    assert report.n_paired == 400
    assert report.result == "slower"
    assert compare_recordings([slower(log(1), 1.1), log(1)]).result == "faster"


@pytest.mark.parametrize("entry", [100, 200, 321])
def test_a_change_is_found_at_its_step(entry):
    noiseless = compare_recordings([log(1), slower(log(1), 1.02, entry)])
    assert noiseless.result == "slower"
    assert noiseless.change is not None
    assert noiseless.change.step == 10 + entry
    assert noiseless.change.ratio == pytest.approx(1.02)
    noisy = compare_recordings([log(1), slower(log(2), 1.03, entry)])
    assert noisy.change is not None
    assert noisy.change.ratio == pytest.approx(1.03, abs=0.005)
    assert abs(noisy.change.step - 10 - entry) <= 20


def test_runs_that_differ_by_run_to_run_noise_are_rarely_called_different():
    rng = np.random.default_rng(3)
    called = 0
    for seed in range(75):
        a, b = np.exp(RUN_SPREAD * rng.standard_normal(2))
        called += compared_runs([steps(log(2 * seed, a))], [steps(log(2 * seed + 1, b))]).typical.is_beyond_noise
    assert called <= 10  # 5% are expected; more than 10 three times in ten thousand


def test_several_runs_of_either_side_find_what_one_pair_cannot():
    a, b = [log(n) for n in range(6)], [log(n, level=1.008) for n in range(6, 12)]
    assert compare_recordings([a[0], b[0]]).result == "same"
    report = compare_recordings(a, against=b)
    assert report.result == "slower"
    assert report.typical.ratio == pytest.approx(1.008, abs=0.002)
    assert report.run_spread < 0.5 * RUN_SPREAD


def test_a_stated_spread_of_runs_decides():
    pair = [log(1), log(2, level=1.01)]
    assert compare_recordings(pair).result == "same"
    assert compare_recordings(pair, run_spread=0.001).result == "slower"
    assert compare_recordings([log(1), log(2, level=1.03)], run_spread=0.02).result == "same"


def test_runs_without_common_steps_are_compared_by_their_levels():
    flat = [replace(log(n, first=first), step_s=log(n).step_s / SCHEDULE) for n, first in ((1, 0), (2, 5000))]
    report = compare_recordings([flat[0], slower(flat[1], 1.05)])
    assert report.n_paired == 0
    assert report.result == "slower"
    assert report.typical.ratio == pytest.approx(1.05, abs=0.01)
    assert any("share few step numbers" in note for note in report.notes)


def test_only_steps_that_all_runs_have_are_compared():
    whole = log(1, noise=0.001)
    report = compare_recordings([whole, whole.choose(np.arange(120))])  # without the longer steps of the schedule
    assert report.p95.ratio == report.p50.ratio == report.typical.ratio == 1.0
    assert any("120 of up to 400" in note for note in report.notes)


def test_parts_of_the_step_are_compared_where_both_have_them():
    trace = trace_at("local_cluster")
    report = compare_recordings([trace, replace(trace, start_s=1.04 * trace.start_s, end_s=1.04 * trace.end_s)])
    assert set(report.ratios) == {op.op_type for op in trace.ops}
    assert all(one.ratio == pytest.approx(1.04) and one.is_beyond_noise for one in report.ratios.values())


def test_the_interval_of_the_tail_holds_the_ratio():
    held = 0
    for seed in range(20):
        one = quantile_ratio([steps(log(2 * seed))], [steps(log(2 * seed + 1))], 0.95, 0.0)
        held += one.low <= 1.0 <= one.high
    assert held >= 16  # 95% are expected; fewer than 16 three times in ten thousand


def test_exit_codes_say_whether_it_became_slower(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, one in {"a": log(1), "b": slower(log(2), 1.1), "c": log(3)}.items():
        rows = "".join(f"{step},{seconds}\n" for step, seconds in zip(one.step, one.step_s, strict=True))
        (tmp_path / f"{name}.csv").write_text(f"step,step_time_s\n{rows}")
    assert main(["trace", "compare", "a.csv", "b.csv"]) == 1
    told = capsys.readouterr()
    assert "B is slower by" in told.out
    assert "B is slower than A" in told.err
    assert main(["trace", "compare", "b.csv", "a.csv"]) == 0
    assert main(["trace", "compare", "a.csv", "c.csv"]) == 0
    assert main(["trace", "compare", "a.csv", "b.csv", "--threshold", "0.2"]) == 0
    assert main(["trace", "compare", "a.csv", "c.csv", "--against", "b.csv"]) == 1
    capsys.readouterr()
    assert main(["trace", "compare", "a.csv"]) == 2
    assert "1 recording. Give two" in capsys.readouterr().err
    assert main(["trace", "compare", "a.csv", "none.csv"]) == 2
    assert "none.csv" in capsys.readouterr().err


def test_few_steps_are_refused():
    short = log().choose(np.arange(5))
    with pytest.raises(DataError, match=r"run0.csv: 5 recorded steps"):
        compare_recordings([short, log()])

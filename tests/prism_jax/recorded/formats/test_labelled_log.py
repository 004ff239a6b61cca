"""Logs that nobody has described: read by their labelled numbers, whatever trainer wrote them."""

from pathlib import Path

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.trace.step_log import StepLog
from tests.support.trainer_lines import BY_BAR, BY_CLOCK, BY_RATE, REPORTED, Step, write
from tests.support.training_logs import read_log

RANDOM = np.random.default_rng(7)
STEP_S = (2.0 * np.exp(0.02 * RANDOM.standard_normal(120))).round(4).tolist()
STEP_S[0], STEP_S[40], STEP_S[80] = 3.0, 2.6, 2.7


def ratio(log: StepLog, step_s: list[float]) -> float:
    return float(np.median(np.repeat(log.step_s, log.n_steps))) / float(np.median(step_s))


@pytest.mark.parametrize("name", REPORTED)
def test_reported_times_are_read_step_by_step(name: str, tmp_path: Path):
    log = read_log(tmp_path, write(REPORTED[name], STEP_S))
    assert log.step.tolist() == list(range(1, 121))
    np.testing.assert_allclose(log.step_s, STEP_S, rtol=6e-3)


@pytest.mark.parametrize("name", BY_BAR)
def test_rates_of_a_bar(name: str, tmp_path: Path):
    log = read_log(tmp_path, write(BY_BAR[name], STEP_S).replace("\nTrain", "\rTrain"))
    assert ratio(log, STEP_S) == pytest.approx(1.0, rel=5e-3)
    assert len(log) == 120


@pytest.mark.parametrize("name", BY_CLOCK)
def test_times_of_day(name: str, tmp_path: Path):
    log = read_log(tmp_path, write(BY_CLOCK[name], STEP_S))
    np.testing.assert_allclose(log.step_s, STEP_S[1:], atol=2e-3)


@pytest.mark.parametrize("name", BY_RATE)
def test_a_rate_of_work_is_scaled_to_a_coarse_clock(name: str, tmp_path: Path):
    log = read_log(tmp_path, write(BY_RATE[name], STEP_S))
    assert ratio(log, STEP_S) == pytest.approx(1.0, rel=1e-2)


RANKS = 4


@pytest.mark.parametrize("name", ["Composer", "OLMo", "verl", "MaxText", "LitGPT"])
@pytest.mark.parametrize("prefix", ["{}: ", "[rank{}]:", "[default{}]:", "[1,{}]<stdout>:", "worker-{} | "])
def test_lines_of_several_ranks_are_one_step(name: str, prefix: str, tmp_path: Path):
    def of_all(step: Step) -> str:
        lines = REPORTED[name](step).split("\n")
        return "\n".join(prefix.format(rank) + line for line in lines for rank in range(RANKS))

    log = read_log(tmp_path, write(of_all, STEP_S))
    assert log.step.tolist() == list(range(1, 121))
    np.testing.assert_allclose(log.step_s, STEP_S, rtol=6e-3)


@pytest.mark.parametrize("name", [*REPORTED, *BY_CLOCK])
def test_evaluations_and_checkpoints_are_no_steps(name: str, tmp_path: Path):
    line = (REPORTED | BY_CLOCK)[name]

    def with_others(step: Step) -> str:
        others = (
            "Evaluating: 100%|####| 50/50 [00:10<00:00,  4.9it/s]\n"
            f"validation loss at step {step.n} | loss 2.3 | time: 12.3s\nSaving checkpoint at step {step.n} took 33.1 s"
        )
        return line(step) + (f"\n{others}" if step.n % 20 == 0 else "")

    log = read_log(tmp_path, write(with_others, STEP_S))
    assert ratio(log, STEP_S) == pytest.approx(1.0, rel=5e-3)
    assert len(log) >= 110


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step 1 loss 2.3\nstep 2 loss 2.2\n", "2 numbered lines, but not how long steps took"),
        ("step 1 tok/sec: 5\nstep 2 tok/sec: 6\n", "'tok/sec' becomes a time with --work-per-step N"),
        ("".join(f"step {n} step_time: {40 + n}\n" for n in range(9)), "'step_time': nothing says the unit"),
        ("step 1 took -3 s\n", r"train\.log:1 took: -3 s is not a step time"),
        ("nothing of the kind 1 2 3\n", "no line with a step time"),
    ],
)
def test_what_cannot_be_told_is_refused(text: str, message: str, tmp_path: Path):
    with pytest.raises(DataError, match=message):
        read_log(tmp_path, text)


def test_a_clock_tells_the_unit_and_the_time_of_an_interval(tmp_path: Path):
    def line(step: Step) -> str:
        return f"{step.stamp} step {step.n} time: {10 * step.ms:.1f}"  # of ten steps, in ms

    log = read_log(tmp_path, write(line, [2.0] * 100, every=10))
    np.testing.assert_allclose(log.step_s, 2.0, rtol=1e-6)


def test_the_work_of_a_step_may_be_stated(tmp_path: Path):
    log = read_log(tmp_path, "step 1 tok/sec: 1,000\nstep 2 tok/sec: 2,000\n", work_per_step=4000.0)
    assert log.step_s.tolist() == [4.0, 2.0]


def test_one_of_several_runs_is_read_or_the_one_that_is_named(tmp_path: Path):
    text = "Step,a - perf/step_time,b - perf/step_time\n1,2.0,3.0\n2,2.0,3.0\n"
    first = read_log(tmp_path, text, "w.csv")
    assert first.step_s.tolist() == [2.0, 2.0]
    assert any("the run 'a' of 2 is read" in note for note in first.notes)
    assert any("assumed: a - perf/step_time is in seconds" in note for note in first.notes)
    assert read_log(tmp_path, text, "w.csv", columns={"b - perf/step_time": "step_time"}).step_s.tolist() == [3.0, 3.0]

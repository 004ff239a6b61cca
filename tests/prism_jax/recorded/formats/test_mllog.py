"""MLPerf logs of several submitters: reported step times, and those that follow from the clock."""

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.trace.step_log import StepLog
from tests.support.broken_traces import mllog_line as line
from tests.support.training_logs import read_log

BATCH = line("global_batch_size", 5, 32)


def read(tmp_path, *lines: str) -> StepLog:
    return read_log(tmp_path, "".join(lines), "result_0.txt")


def test_reported_times_of_single_steps(tmp_path):
    text = [
        line(
            "tracked_stats",
            1000 * n,
            {"train_step_time": 3.0 + n / 10, "reduced_train_loss": 9.0},
            samples_count=32 * n,
        )
        for n in range(1, 6)
    ]
    log = read(tmp_path, line("submission_benchmark", 1, "gpt3"), BATCH, *text)
    assert log.step.tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(log.step_s, [3.1, 3.2, 3.3, 3.4, 3.5])
    assert log.n_steps.tolist() == [1] * 5
    assert log.name == "gpt3"


def test_reported_times_of_single_steps_that_are_logged_now_and_then(tmp_path):
    """With a loss beside it, the time is that of the last step, not the mean since the entry before."""
    text = [
        line("tracked_stats", n, {"train_step_time": 0.4, "reduced_train_loss": 9.0}, step_num=32 * n)
        for n in (1, 2, 3)
    ]
    log = read(tmp_path, *text)
    assert (log.step.tolist(), log.n_steps.tolist()) == ([32, 64, 96], [1, 1, 1])


def test_reported_means_of_blocks_whose_count_starts_again(tmp_path):
    """Only train_step_time, and samples_count is that of the block: a mean over the block."""
    text = [line("tracked_stats", n, {"train_step_time": 0.5}, samples_count=3200) for n in (1, 2, 3)]
    log = read(tmp_path, BATCH, *text)
    assert (log.step.tolist(), log.n_steps.tolist()) == ([100, 200, 300], [100, 100, 100])


def test_single_steps_are_preferred_to_fewer_blocks(tmp_path):
    blocks = [line("tracked_stats", n, {"train_step_time": 0.5}, samples_count=3200) for n in (1, 2)]
    steps = [line("tracked_stats", n, {"train_step_time": 0.4, "loss": 1.0}, samples_count=32 * n) for n in (1, 2, 3)]
    assert read(tmp_path, BATCH, *blocks, *steps).step_s.tolist() == [0.4] * 3


def test_step_that_counts_samples_is_recognised(tmp_path):
    """Some logs call a number of samples `step`; it equals samples_count of the entries beside it."""
    text = []
    for n in (1, 2, 3):
        text.append(line("tracked_stats", 1000 * n, {"throughput": 9.0, "train_step_time": 2.0}, step=384 * n))
        text.append(line("block_stop", 1000 * n, None, samples_count=384 * n))
    log = read(tmp_path, BATCH, *text)
    assert (log.step.tolist(), log.n_steps.tolist()) == ([12, 24, 36], [12, 12, 12])


def test_losses_on_the_clock_leave_evaluations_out(tmp_path):
    text = [line("train_loss", 1000 * n, 9.0, samples_count=320 * n) for n in (1, 2, 3)]
    text += [line("eval_start", 3100, None, samples_count=960), line("eval_stop", 7000, None, samples_count=960)]
    text += [line("train_loss", 1000 * n, 9.0, samples_count=320 * (n - 4)) for n in (8, 9)]
    log = read(tmp_path, BATCH, line("run_start", 10), *text, line("run_stop", 9999, None, status="success"))
    assert log.step.tolist() == [20, 30, 50]
    assert log.step_s.tolist() == [0.1] * 3
    assert log.n_steps.tolist() == [10] * 3
    assert any("train_loss" in note for note in log.notes)


def test_blocks_on_the_clock_run_from_start_to_stop(tmp_path):
    text = []
    for n in range(3):
        text.append(line("block_start", 10_000 * n, None, samples_count=3200 * n))
        text.append(line("block_stop", 10_000 * n + 8000, None, samples_count=3200 * (n + 1)))
        text.append(line("eval_start", 10_000 * n + 8000, None, samples_count=3200 * (n + 1)))
        text.append(line("eval_stop", 10_000 * n + 9990, None, samples_count=3200 * (n + 1)))
    log = read(tmp_path, BATCH, *text)
    assert (log.step.tolist(), log.step_s.tolist(), log.n_steps.tolist()) == ([100, 200, 300], [0.08] * 3, [100] * 3)


def test_step_num_needs_no_batch(tmp_path):
    log = read(tmp_path, *[line("tracked_stats", 100 * n, {"throughput": 1.0}, step_num=50 * n) for n in (0, 1, 2)])
    assert (log.step.tolist(), log.step_s.tolist()) == ([50, 100], [0.002, 0.002])


def test_samples_without_a_batch_are_said(tmp_path):
    with pytest.raises(DataError, match="no step times: .*no global_batch_size"):
        read(tmp_path, *[line("train_loss", 100 * n, 9.0, samples_count=32 * n) for n in (0, 1, 2)])


def test_prefixes_and_two_entries_in_one_line(tmp_path):
    text = [line("train_loss", 100 * n, 9.0, step_num=n) for n in (0, 1, 2)]
    log = read(tmp_path, "epoch 0\n 0: " + text[0], "12: [rank0] " + text[1].rstrip(), text[2], "done\n")
    assert log.step_s.tolist() == [0.1, 0.1]


def test_entries_of_several_ranks_repeat_and_do_not_count_twice(tmp_path):
    text = [line("train_loss", 100 * n + rank, 9.0, step_num=n) for n in (1, 2, 3) for rank in (0, 1)]
    log = read(tmp_path, *text)
    assert log.step.tolist() == [2, 3]
    np.testing.assert_allclose(log.step_s, 0.1)


def test_two_runs_in_one_file_do_not_touch(tmp_path):
    run = (
        [line("run_start", 0)]
        + [line("train_loss", 100 * n, 9.0, step_num=n) for n in (1, 2)]
        + [line("run_stop", 500)]
    )
    assert read(tmp_path, *run, *run).step.tolist() == [2, 2]


def test_too_many_entries_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("prism_jax.recorded.formats.mllog.MAX_EVENTS", 2)
    with pytest.raises(DataError, match=r"result_0\.txt: more than 2 entries"):
        read(tmp_path, *[line("train_loss", n, 9.0, step_num=n) for n in range(3)])

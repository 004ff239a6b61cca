"""Logs of single frameworks, a few lines each, as they look on disk."""

from pathlib import Path

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.recorded.formats.text_logs import read_text_log
from prism_jax.trace.step_log import StepLog
from tests.support.training_logs import LOGS, deepspeed_breakdown, deepspeed_throughput, megatron, torchtitan

BAR = " {share:3d}%|█████▏    | {n}/1000 [{elapsed}<16:42,  2.03s/it]"


def read(folder: Path, text: str) -> StepLog:
    path = folder / "train.log"
    path.write_text(text, encoding="utf-8")
    return read_text_log(path)


def bar(n: int, seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    elapsed = f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60:02d}:{rest % 60:02d}"
    return BAR.format(share=n // 10, n=n, elapsed=elapsed)


@pytest.mark.parametrize("colours", [True, False])
def test_torchtitan_every_ten_steps_gives_means(tmp_path: Path, colours: bool):
    log = read(tmp_path, torchtitan([9.0] + [1.5] * 29, every=10, colours=colours))
    assert log.step.tolist() == [10, 20, 30]
    assert log.n_steps.tolist() == [9, 10, 10]
    np.testing.assert_allclose(log.step_s, 1.5, atol=2e-4)
    assert any("by the clock" in note for note in log.notes)
    assert any("repeat the step before them" in note for note in log.notes)  # two ranks


def test_torchtitan_leaves_out_checkpoints(tmp_path: Path):
    lines = torchtitan([1.0] * 4).splitlines(keepends=True)
    saved = "[rank0]:[titan] 2025-03-12 11:10:22,900 - root - INFO - Saving the checkpoint (or staging if async is enabled).\n"
    log = read(tmp_path, "".join([*lines[:5], saved, *lines[5:]]))
    assert log.step.tolist() == [2, 4]


TITAN_START = (
    "Building device mesh with parallelism: pp=1, dp_replicate=2, dp_shard=4, cp=1, tp=2, ep=8, etp=1\n",
    "Training starts at step 1, with local batch size 8, global batch size 64, sequence length 8192, total steps 100\n",
)


def test_torchtitan_without_a_clock_needs_the_tokens_of_a_step(tmp_path: Path):
    step = "step:  {}  loss:  8.1296  memory:  1.41GiB(1.79%)  wps: 16,384  mfu: 1.86%\n"
    log = read(tmp_path, "".join((*TITAN_START, *(step.format(n) for n in (1, 10, 20)))))
    np.testing.assert_allclose(log.step_s, 64 * 8192 / 16 / 16_384)
    assert log.n_steps.tolist() == [1, 9, 10]
    with pytest.raises(DataError, match=r"3 steps of torchtitan .* nor the lines 'Training starts at"):
        read(tmp_path, "".join((TITAN_START[1], *(step.format(n) for n in (1, 10, 20)))))


def test_deepspeed_without_a_clock_needs_the_batch(tmp_path: Path):
    text = deepspeed_throughput([2.0, 4.0])
    assert read(tmp_path, text).step_s.tolist() == [2.0, 4.0]
    assert read(tmp_path, text.replace("train_batch_size .............", '"train_batch_size":')).step_s.tolist() == [
        2,
        4,
    ]
    with pytest.raises(DataError, match=r"2 steps of DeepSpeed .*train_batch_size"):
        read(tmp_path, text.partition("\n")[2])


def test_old_deepspeed_prints_the_step_behind_a_slash(tmp_path: Path):
    line = "[2022-03-11 02:0{m}:58,985] [INFO] [timer.py:189:stop] 0/{n}, SamplesPerSec=83.48, MemAllocated=0.26GB\n"
    log = read(tmp_path, "".join(line.format(m=n // 10, n=n) for n in (40, 50, 60)))
    assert (log.step.tolist(), log.step_s.tolist()) == ([50, 60], [6.0, 6.0])


def test_times_of_whole_steps_win_over_parts_and_those_over_the_clock(tmp_path: Path):
    parts, clock = deepspeed_breakdown([1.0] * 5), LOGS["DeepSpeed steps"].write([1.5] * 9)
    assert read(tmp_path, megatron([1.2] * 3) + parts + clock).step_s.tolist() == [1.2] * 3
    found = read(tmp_path, parts + clock)
    assert len(found) == 5
    assert any("loading data between steps is not in it" in note for note in found.notes)


def test_megatron_timers_are_no_breakdown_of_deepspeed(tmp_path: Path):
    timers = "time (ms) | forward-compute: 12.0 | backward-compute: 20.0 | optimizer: 3.0\n"
    assert read(tmp_path, timers + megatron([1.5])).step_s.tolist() == [1.5]
    with pytest.raises(DataError, match="no line with a step time"):
        read(tmp_path, timers)


def test_hugging_face_bar_ticks_in_whole_seconds(tmp_path: Path):
    draws = [bar(n, 2 * n) for n in range(1, 101)]
    log = read(tmp_path, "Loading shards: 100%|████| 2/2 [00:01<00:00,  1.9it/s]\n" + "\r".join(draws) + "\n")
    np.testing.assert_allclose(log.step_s, 2.0)
    assert log.n_steps.tolist() == [25, 25, 25]
    assert any("ticks every 1 s" in note for note in log.notes)


def test_evaluations_between_draws_of_the_bar_are_left_out(tmp_path: Path):
    draws = [bar(n, 30 * n + (3000 if n > 3 else 0)) for n in range(1, 8)]
    evaluation = "100%|██████████| 50/50 [00:10<00:00,  4.9it/s]"
    text = "\r".join([*draws[:3], evaluation, *draws[3:]])
    log = read(tmp_path, text)
    assert set(log.step_s.tolist()) == {30.0}


def test_hugging_face_records_with_a_step_and_a_time_of_day(tmp_path: Path):
    line = "2025-03-12 11:1{m}:00,000 - INFO - {{'loss': 2.31, 'learning_rate': 4.9e-05, 'epoch': 0.02, 'step': {n}}}\n"
    log = read(tmp_path, "".join(line.format(m=n // 10, n=n) for n in (10, 20, 30)))
    assert (log.step_s.tolist(), log.n_steps.tolist()) == ([6.0, 6.0], [10, 10])


def test_a_run_that_says_only_how_long_it_took_is_one_mean(tmp_path: Path):
    text = (
        "{'loss': 2.3456, 'grad_norm': 1.2, 'learning_rate': 4.9e-05, 'epoch': 0.02}\n"
        "{'train_runtime': 1600.0, 'train_samples_per_second': 10.3, 'train_steps_per_second': 0.32, 'epoch': 1.0}\n"
    )
    log = read(tmp_path, text)
    assert (log.step_s.tolist(), log.n_steps.tolist()) == ([3.125], [512])
    assert any("one mean over the whole run" in note for note in log.notes)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("completed step: 5, seconds: -1.0, loss: 1\n", r"train\.log:1 seconds: -1 s is not a step time"),
        ("completed step: 5, seconds: 0.0, loss: 1\n", r"train\.log:1 seconds: 0 s"),
        ("steps: 10 loss: 9.5 iter time (s): nan samples/sec: 2\n", r"train\.log:1 iter time: nan s"),
        ("[Rank 0] time (ms) | fwd: -5.0 | bwd: 2.0 | step: 1.0\n", r"train\.log:1 time \(ms\): -0\.005 s"),
    ],
)
def test_a_time_that_is_none_is_refused_with_its_line(tmp_path: Path, text: str, match: str):
    with pytest.raises(DataError, match=match):
        read(tmp_path, text)

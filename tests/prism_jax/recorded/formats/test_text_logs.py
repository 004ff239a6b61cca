"""Logs of training frameworks as text: every framework, every spelling, and steps timed by the clock."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.recorded.formats.log_entries import TICKS, steps_by_clock, timestamp
from prism_jax.recorded.formats.text_logs import LINE_FORMATS
from tests.support.training_logs import LOGS, deepspeed_breakdown, deepspeed_throughput, megatron, read_log, torchtitan

MEGATRON = (
    " [2025-03-02 10:14:{n:02d}] iteration {step:8d}/   5000 | consumed samples: {samples:12d} | "
    "elapsed time per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): 412.7 | learning rate: 4.500000E-06 | "
    "global batch size:   512 | lm loss: 1.087654E+01 | loss scale: 1.0 | grad norm: 12.345 | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |"
)
NEMO_BAR = (
    "Epoch 0: :  {share:2d}%|█▌        | {n}/1000 [09:37<2:59:01, v_num=ab12, reduced_train_loss=10.90, "
    "global_step={step:.2e}, consumed_samples=13056.0, train_step_timing in s={s}]"
)


def megatron_lines(*steps: int, ms: float = 1000.0) -> str:
    return "".join(MEGATRON.format(n=n % 60, step=n, samples=512 * n, ms=ms) + "\n" for n in steps)


def test_megatron_every_step(tmp_path: Path):
    noise = "training ...\n(min, max) time across ranks (ms):\n    forward-backward: (1201.2, 1203.9)\n"
    log = read_log(tmp_path, noise + "".join(megatron_lines(n, ms=1000.0 + n) + noise for n in range(1, 6)))
    assert log.step.tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(log.step_s, [1.001, 1.002, 1.003, 1.004, 1.005], rtol=1e-12)
    assert log.n_steps.tolist() == [1] * 5
    assert log.name == "train"
    assert log.notes == ("Megatron-LM log",)


@pytest.mark.parametrize(
    ("logged", "n_steps"),
    [
        ((10, 20, 30, 35), [10, 10, 10, 5]),
        ((1, 10, 20, 30), [1, 9, 10, 10]),  # the first iteration is logged alone
        ((10, 20, 30, 20, 30, 40), [10] * 6),
    ],
)
def test_megatron_entries_are_means_of_the_steps_since_the_one_before(
    tmp_path: Path, logged: tuple[int, ...], n_steps: list[int]
):
    log = read_log(tmp_path, megatron_lines(*logged))
    assert log.n_steps.tolist() == n_steps
    assert any("starts over 1 times" in note for note in log.notes) == (logged[3] == 20)


def test_megatron_line_printed_by_two_ranks_counts_once(tmp_path: Path):
    lines = [f"[default7]:{megatron_lines(n, ms=990.0)}[default3]:{megatron_lines(n)}" for n in (1, 2, 3)]
    log = read_log(tmp_path, "".join(lines))
    assert log.step.tolist() == [1, 2, 3]
    assert log.n_steps.tolist() == [1, 1, 1]
    assert any("3 entries repeat" in note for note in log.notes)


def test_megatron_deepspeed_writes_seconds(tmp_path: Path):
    line = "[default3]: iteration   {}/  292968 | consumed samples: 1 | elapsed time per iteration (s): 35.8651 | lm loss: 1 |\n"
    log = read_log(tmp_path, "".join(line.format(n) for n in (10, 20)))
    assert log.step_s.tolist() == [35.8651, 35.8651]


def test_nemo_2_lines(tmp_path: Path):
    line = (
        "[default0]:Training epoch {epoch}, iteration {i}/99 | lr: 9.804e-08 | global_batch_size: 4 | global_step: {step} | "
        "reduced_train_loss: 14.66 | train_step_timing in s: {s} | consumed_samples: 8\n"
    )
    text = "".join(line.format(epoch=n // 100, i=n % 100, step=n, s=1.9 + n / 1000) for n in (98, 99, 100, 101))
    log = read_log(tmp_path, text)
    assert log.step.tolist() == [98, 99, 100, 101]
    np.testing.assert_allclose(log.step_s, [1.998, 1.999, 2.0, 2.001])
    assert log.n_steps.tolist() == [1] * 4


def test_nemo_2_without_global_step_uses_the_iteration_and_a_summary_list_is_no_step(tmp_path: Path):
    text = "[NeMo I] train_step_timing in s: [11.85, 6.98]\nTraining epoch 0, iteration 5/99 | train_step_timing in s: 11.2\n"
    log = read_log(tmp_path, text)
    assert (log.step.tolist(), log.step_s.tolist()) == ([5], [11.2])


def test_nemo_progress_bar_is_one_line_with_carriage_returns(tmp_path: Path):
    bars = [
        NEMO_BAR.format(share=n // 10, n=n, step=n - 1, s=s) for n, s in ((50, "11.10"), (51, "11.10"), (51, "11.20"))
    ]
    log = read_log(
        tmp_path, "Loading\n" + "\r".join([*bars, NEMO_BAR.format(share=5, n=52, step=51, s="9.870")]) + "\nDone\n"
    )
    assert log.step.tolist() == [50, 51, 52]
    assert log.step_s.tolist() == [11.1, 11.2, 9.87]  # the last drawing of a step is the right one
    assert any("three digits" in note for note in log.notes)


def test_nemo_progress_bar_without_length_and_after_other_bars(tmp_path: Path):
    text = "Sanity: 100%|##| 2/2 [00:01<00:00]Epoch 1: : {}it [00:04,  4.36s/it, v_num=d3c7, train_step_timing in s=3.370]\n"
    log = read_log(tmp_path, text.format(1) + text.format(2).replace("Sanity: 100%|##| 2/2 [00:01<00:00]", ""))
    assert log.step_s.tolist() == [3.37, 3.37]
    assert log.step.tolist()[1] == 2


@pytest.mark.parametrize(("written", "seconds"), [("3.51K", 3.51), ("985", 0.985), ("1.2M", 1200.0), ("12.5K", 12.5)])
def test_nanotron_has_letters_for_thousands(tmp_path: Path, written: str, seconds: float):
    line = (
        "[default0]:07/02/2024 22:04:30 [INFO|DP=0|PP=0|TP=0|ip-26-0-160-192]: iteration: 5 / 100 | consumed_tokens: 1.31M | "
        f"elapsed_time_per_iteration_ms: {written} | tokens_per_sec: 298K | lm_loss: 10.6 | grad_norm: 21.3\n"
    )
    log = read_log(tmp_path, line)
    assert log.step.tolist() == [5]
    np.testing.assert_allclose(log.step_s, [seconds], rtol=1e-12)


def test_packed_log_and_its_name(tmp_path: Path):
    assert read_log(tmp_path, megatron_lines(1), "gpt.3b.log.gz").name == "gpt.3b"


def test_format_with_most_entries_wins(tmp_path: Path):
    nemo = "Training epoch 0, iteration {}/9 | train_step_timing in s: 2\n"
    log = read_log(tmp_path, megatron_lines(1) + "".join(nemo.format(n) for n in range(3)))
    assert log.step_s.tolist() == [2.0] * 3


def test_bytes_that_are_no_text_do_not_hide_the_steps(tmp_path: Path):
    assert read_log(tmp_path, b"caf\xe9 \xff\xfe\n" + megatron_lines(4).encode()).step.tolist() == [4]


HOSTILE = (
    "iteration ",
    "iteration" + " " * 30,
    "1" * 15,
    "1/1 [",
    "1/",
    "e-+.0",
    "train_step_timing in s=",
    "iteration: 1 / ",
    "step: 1 ",
    "2025-03-12 11:10:00,1 ",
    "step=1, skipped=",
    "global_step=1 ",
    "| fwd: 1 ",
    "parallelism: a=1, ",
    "device mesh with [a], [1, ",
    " 1%|",
    "'step': 1 ",
    "\x1b[3",
)


def test_patterns_repeat_nothing_without_bound():
    """So that matching takes time in proportion to the line."""
    for known in LINE_FORMATS:
        assert known.patterns
        for pattern in known.patterns:
            outside_classes = re.sub(r"\[[^\]]*\]", "", pattern.pattern.replace("\\[", ""))
            assert not re.search(r"[*+]|\{\d*,\}", outside_classes), pattern.pattern


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_line_of_a_megabyte_ends_in_an_answer(tmp_path: Path, part: str):
    markers = (
        "elapsed time per iteration (ms): x train_step_timing in s: x train_step_timing in s=x time_per_iteration_ms: x "
        "completed step: x tps: x time (ms) | x, skipped= SamplesPerSec= iter time (s): x %| 'loss': 'train_runtime': x"
    )
    line = (part * (2**20 // len(part)))[: 2**20 - len(markers)] + markers
    with pytest.raises(DataError):
        read_log(tmp_path, line)


def test_too_many_entries_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("prism_jax.recorded.formats.labelled_log.MAX_ENTRIES", 3)
    with pytest.raises(DataError, match=r"train\.log: more than 3 step times"):
        read_log(tmp_path, megatron_lines(0, 1, 2, 3))


# --- Logs of single frameworks, a few lines each, as they look on disk -----------------------------------------------


BAR = " {share:3d}%|█████▏    | {n}/1000 [{elapsed}<16:42,  2.03s/it]"


def bar(n: int, seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    elapsed = f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60:02d}:{rest % 60:02d}"
    return BAR.format(share=n // 10, n=n, elapsed=elapsed)


@pytest.mark.parametrize("colours", [True, False])
def test_torchtitan_every_ten_steps_gives_means(tmp_path: Path, colours: bool):
    log = read_log(tmp_path, torchtitan([9.0] + [1.5] * 29, every=10, colours=colours))
    assert log.step.tolist() == [10, 20, 30]
    assert log.n_steps.tolist() == [9, 10, 10]
    np.testing.assert_allclose(log.step_s, 1.5, atol=2e-4)
    assert any("by the clock" in note for note in log.notes)
    assert any("repeat the step before them" in note for note in log.notes)  # two ranks


def test_torchtitan_leaves_out_checkpoints(tmp_path: Path):
    lines = torchtitan([1.0] * 4).splitlines(keepends=True)
    saved = "[rank0]:[titan] 2025-03-12 11:10:22,900 - root - INFO - Saving the checkpoint (or staging if async is enabled).\n"
    log = read_log(tmp_path, "".join([*lines[:5], saved, *lines[5:]]))
    assert log.step.tolist() == [2, 4]


TITAN_START = (
    "Building device mesh with parallelism: pp=1, dp_replicate=2, dp_shard=4, cp=1, tp=2, ep=8, etp=1\n",
    "Training starts at step 1, with local batch size 8, global batch size 64, sequence length 8192, total steps 100\n",
)


def test_torchtitan_without_a_clock_needs_the_tokens_of_a_step(tmp_path: Path):
    step = "step:  {}  loss:  8.1296  memory:  1.41GiB(1.79%)  wps: 16,384  mfu: 1.86%\n"
    log = read_log(tmp_path, "".join((*TITAN_START, *(step.format(n) for n in (1, 10, 20)))))
    np.testing.assert_allclose(log.step_s, 64 * 8192 / 16 / 16_384)
    assert log.n_steps.tolist() == [1, 9, 10]
    with pytest.raises(DataError, match=r"3 steps of torchtitan .* nor the lines 'Training starts at"):
        read_log(tmp_path, "".join((TITAN_START[1], *(step.format(n) for n in (1, 10, 20)))))


def test_deepspeed_without_a_clock_needs_the_batch(tmp_path: Path):
    text = deepspeed_throughput([2.0, 4.0])
    assert read_log(tmp_path, text).step_s.tolist() == [2.0, 4.0]
    assert read_log(
        tmp_path, text.replace("train_batch_size .............", '"train_batch_size":')
    ).step_s.tolist() == [
        2,
        4,
    ]
    with pytest.raises(DataError, match=r"2 steps of DeepSpeed .*train_batch_size"):
        read_log(tmp_path, text.partition("\n")[2])


def test_old_deepspeed_prints_the_step_behind_a_slash(tmp_path: Path):
    line = "[2022-03-11 02:0{m}:58,985] [INFO] [timer.py:189:stop] 0/{n}, SamplesPerSec=83.48, MemAllocated=0.26GB\n"
    log = read_log(tmp_path, "".join(line.format(m=n // 10, n=n) for n in (40, 50, 60)))
    assert (log.step.tolist(), log.step_s.tolist()) == ([50, 60], [6.0, 6.0])


def test_times_of_whole_steps_win_over_parts_and_those_over_the_clock(tmp_path: Path):
    parts, clock = deepspeed_breakdown([1.0] * 5), LOGS["DeepSpeed steps"].write([1.5] * 9)
    assert read_log(tmp_path, megatron([1.2] * 3) + parts + clock).step_s.tolist() == [1.2] * 3
    found = read_log(tmp_path, parts + clock)
    assert len(found) == 5
    assert any("loading data between steps is not in it" in note for note in found.notes)


def test_megatron_timers_are_no_breakdown_of_deepspeed(tmp_path: Path):
    timers = "time (ms) | forward-compute: 12.0 | backward-compute: 20.0 | optimizer: 3.0\n"
    assert read_log(tmp_path, timers + megatron([1.5])).step_s.tolist() == [1.5]
    with pytest.raises(DataError, match="no line with a step time"):
        read_log(tmp_path, timers)


def test_hugging_face_bar_ticks_in_whole_seconds(tmp_path: Path):
    draws = [bar(n, 2 * n).replace("2.03s/it", "?s/it") for n in range(1, 101)]
    log = read_log(tmp_path, "Loading shards: 100%|████| 2/2 [00:01<00:00,  1.9it/s]\n" + "\r".join(draws) + "\n")
    np.testing.assert_allclose(log.step_s, 2.0)
    assert log.n_steps.tolist() == [25, 25, 25]
    assert any("ticks every 1 s" in note for note in log.notes)


def test_evaluations_between_draws_of_the_bar_are_left_out(tmp_path: Path):
    draws = [bar(n, 30 * n + (3000 if n > 3 else 0)) for n in range(1, 8)]
    evaluation = "100%|██████████| 50/50 [00:10<00:00,  4.9it/s]"
    text = "\r".join([*draws[:3], evaluation, *draws[3:]])
    log = read_log(tmp_path, text)
    assert set(log.step_s.tolist()) == {30.0}


def test_hugging_face_records_with_a_step_and_a_time_of_day(tmp_path: Path):
    line = "2025-03-12 11:1{m}:00,000 - INFO - {{'loss': 2.31, 'learning_rate': 4.9e-05, 'epoch': 0.02, 'step': {n}}}\n"
    log = read_log(tmp_path, "".join(line.format(m=n // 10, n=n) for n in (10, 20, 30)))
    assert (log.step_s.tolist(), log.n_steps.tolist()) == ([6.0, 6.0], [10, 10])


def test_a_run_that_says_only_how_long_it_took_is_one_mean(tmp_path: Path):
    text = (
        "{'loss': 2.3456, 'grad_norm': 1.2, 'learning_rate': 4.9e-05, 'epoch': 0.02}\n"
        "{'train_runtime': 1600.0, 'train_samples_per_second': 10.3, 'train_steps_per_second': 0.32, 'epoch': 1.0}\n"
    )
    log = read_log(tmp_path, text)
    assert (log.step_s.tolist(), log.n_steps.tolist()) == ([3.125], [512])
    assert any("one mean over the whole run" in note for note in log.notes)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("completed step: 5, seconds: -1.0, loss: 1\n", r"train\.log:1 seconds: -1 s is not a step time"),
        ("completed step: 5, seconds: 0.0, loss: 1\n", r"train\.log:1 seconds: 0 s"),
        ("steps: 10 loss: 9.5 iter time (s): nan samples/sec: 2\n", r"train\.log:1 iter time \(s\): nan s"),
        ("[Rank 0] time (ms) | fwd: -5.0 | bwd: 2.0 | step: 1.0\n", r"train\.log:1 time \(ms\): -0\.005 s"),
    ],
)
def test_a_time_that_is_none_is_refused_with_its_line(tmp_path: Path, text: str, match: str):
    with pytest.raises(DataError, match=match):
        read_log(tmp_path, text)


# --- A log written from known steps reads back those steps, in every format that has one -----------------------------


SECONDS = st.lists(st.integers(800, 1500).map(lambda ms: ms / 1e3), min_size=3, max_size=8)


@pytest.mark.parametrize("kind", LOGS)
@settings(max_examples=15, deadline=None)
@given(step_s=SECONDS)
def test_steps_are_read_back(kind: str, step_s: list[float], tmp_path_factory: pytest.TempPathFactory):
    written = LOGS[kind]
    log = read_log(tmp_path_factory.mktemp("log"), written.write(step_s), written.name)
    np.testing.assert_allclose(log.step_s, step_s[written.lost :], rtol=0, atol=written.rounds_s)
    assert log.n_steps.tolist() == [1] * len(log)
    assert log.framework == written.framework
    assert np.diff(log.step).tolist() == [1] * (len(log) - 1)


def test_a_log_of_no_steps_is_refused_with_what_is_read(tmp_path: Path):
    with pytest.raises(DataError, match=r"Supported formats: .*torchtitan, DeepSpeed, MaxText, .*Looked for"):
        read_log(tmp_path, "loading the model\ndone\n")


# --- Times of day, and step times from them --------------------------------------------------------------------------


NOON = 1_741_780_800.0  # 2025-03-12 12:00:00 UTC


@pytest.mark.parametrize(
    ("text", "seconds", "resolution"),
    [
        ("[titan] 2025-03-12 12:00:01,250 - root", NOON + 1.25, 1e-3),
        ("[2025-03-12 12:00:01,250] [INFO]", NOON + 1.25, 1e-3),
        ("2025-03-12T12:00:01.250000Z step", NOON + 1.25, 1e-6),
        ("2025-03-12 12:00:01 step", NOON + 1.0, 1.0),
        ("03/12/2025 12:00:01 [INFO|DP=0]", NOON + 1.0, 1.0),
        ("started 2024-01-01 00:00:00, now 2025-03-12 12:00:00,000", NOON, 1e-3),
    ],
)
def test_times_of_day(text: str, seconds: float, resolution: float):
    assert timestamp(text) == pytest.approx((seconds, resolution))


def test_glog_has_no_year_and_differences_are_right():
    first, second = timestamp("I0811 21:54:55.500000 1 a.py:1]"), timestamp("I0812 00:00:00.000000 1 a.py:1]")
    assert first is not None
    assert second is not None
    assert second[0] - first[0] == pytest.approx(7504.5)


@pytest.mark.parametrize("text", ["", "step 3", "2025-99-12", "1:00:01", "1.2025-3-1"])
def test_what_is_no_time_of_day(text: str):
    assert timestamp(text) is None


def test_pauses_and_restarts_are_left_out():
    step = np.array([1, 2, 3, 4, 3, 4])
    found = steps_by_clock(step, np.array([0.0, 1.0, 2.0, 60.0, 99.0, 100.0]), np.array([0, 0, 0, 1, 1, 1]), 1e-3)
    assert found.step.tolist() == [2, 3, 4]
    assert found.step_s.tolist() == [1.0, 1.0, 1.0]
    assert "1 intervals with an evaluation or a checkpoint" in found.notes[-1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.5, 20.0), min_size=60, max_size=200))
def test_a_clock_of_whole_seconds_gives_means_that_are_right_to_two_percent(step_s: list[float]):
    exact = np.cumsum([0.0, *step_s])
    found = steps_by_clock(np.arange(len(exact)), np.floor(exact), np.zeros(len(exact), np.int64), 1.0)
    ends = found.step
    starts = ends - found.n_steps
    truth = (exact[ends] - exact[starts]) / found.n_steps
    assert len(found.step) == 0 or np.abs(found.step_s / truth - 1.0).max() <= 1.0 / (TICKS - 1)
    assert (starts[1:] == ends[:-1]).all()  # every step is in one interval

"""Text logs of training frameworks, as they look on disk: prefixes, progress bars, restarts, noise."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.recorded.formats.text_logs import LINE_FORMATS, read_text_log
from prism_jax.trace.step_log import StepLog

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


def read(tmp_path: Path, text: str, name: str = "run7.log") -> StepLog:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return read_text_log(path)


def megatron(step: int, ms: float) -> str:
    return MEGATRON.format(n=step % 60, step=step, samples=512 * step, ms=ms) + "\n"


def test_megatron_every_step(tmp_path: Path):
    noise = "training ...\n(min, max) time across ranks (ms):\n    forward-backward: (1201.2, 1203.9)\n"
    log = read(tmp_path, noise + "".join(megatron(n, 1000.0 + n) + noise for n in range(1, 6)))
    assert log.step.tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(log.step_s, [1.001, 1.002, 1.003, 1.004, 1.005], rtol=1e-12)
    assert log.n_steps.tolist() == [1] * 5
    assert log.name == "run7"
    assert log.notes == ("Megatron-LM log",)


def test_megatron_every_ten_steps_gives_means_of_ten(tmp_path: Path):
    log = read(tmp_path, "".join(megatron(n, 1000.0) for n in (10, 20, 30, 35)))
    assert log.n_steps.tolist() == [10, 10, 10, 5]


def test_megatron_first_iteration_is_logged_alone(tmp_path: Path):
    log = read(tmp_path, "".join(megatron(n, 1000.0) for n in (1, 10, 20, 30)))
    assert log.n_steps.tolist() == [1, 9, 10, 10]


def test_megatron_restart_is_counted_and_noted(tmp_path: Path):
    log = read(tmp_path, "".join(megatron(n, 1000.0) for n in (10, 20, 30, 20, 30, 40)))
    assert log.n_steps.tolist() == [10] * 6
    assert any("starts over 1 times" in note for note in log.notes)


def test_megatron_line_printed_by_two_ranks_counts_once(tmp_path: Path):
    log = read(tmp_path, "".join(f"[default7]:{megatron(n, 990.0)}[default3]:{megatron(n, 1000.0)}" for n in (1, 2, 3)))
    assert log.step.tolist() == [1, 2, 3]
    assert log.n_steps.tolist() == [1, 1, 1]
    assert any("3 entries repeat" in note for note in log.notes)


def test_megatron_deepspeed_writes_seconds(tmp_path: Path):
    line = "[default3]: iteration   {}/  292968 | consumed samples: 1 | elapsed time per iteration (s): 35.8651 | lm loss: 1 |\n"
    log = read(tmp_path, "".join(line.format(n) for n in (10, 20)))
    assert log.step_s.tolist() == [35.8651, 35.8651]


def test_nemo_2_lines(tmp_path: Path):
    line = (
        "[default0]:Training epoch {epoch}, iteration {i}/99 | lr: 9.804e-08 | global_batch_size: 4 | global_step: {step} | "
        "reduced_train_loss: 14.66 | train_step_timing in s: {s} | consumed_samples: 8\n"
    )
    text = "".join(line.format(epoch=n // 100, i=n % 100, step=n, s=1.9 + n / 1000) for n in (98, 99, 100, 101))
    log = read(tmp_path, text)
    assert log.step.tolist() == [98, 99, 100, 101]
    np.testing.assert_allclose(log.step_s, [1.998, 1.999, 2.0, 2.001])
    assert log.n_steps.tolist() == [1] * 4


def test_nemo_2_without_global_step_uses_the_iteration_and_a_summary_list_is_no_step(tmp_path: Path):
    text = "[NeMo I] train_step_timing in s: [11.85, 6.98]\nTraining epoch 0, iteration 5/99 | train_step_timing in s: 11.2\n"
    log = read(tmp_path, text)
    assert (log.step.tolist(), log.step_s.tolist()) == ([5], [11.2])


def test_nemo_progress_bar_is_one_line_with_carriage_returns(tmp_path: Path):
    bars = [
        NEMO_BAR.format(share=n // 10, n=n, step=n - 1, s=s) for n, s in ((50, "11.10"), (51, "11.10"), (51, "11.20"))
    ]
    log = read(
        tmp_path, "Loading\n" + "\r".join([*bars, NEMO_BAR.format(share=5, n=52, step=51, s="9.870")]) + "\nDone\n"
    )
    assert log.step.tolist() == [50, 51, 52]
    assert log.step_s.tolist() == [11.1, 11.2, 9.87]  # the last drawing of a step is the right one
    assert any("three digits" in note for note in log.notes)


def test_nemo_progress_bar_without_length_and_after_other_bars(tmp_path: Path):
    text = "Sanity: 100%|##| 2/2 [00:01<00:00]Epoch 1: : {}it [00:04,  4.36s/it, v_num=d3c7, train_step_timing in s=3.370]\n"
    log = read(tmp_path, text.format(1) + text.format(2).replace("Sanity: 100%|##| 2/2 [00:01<00:00]", ""))
    assert log.step_s.tolist() == [3.37, 3.37]
    assert log.step.tolist()[1] == 2


@pytest.mark.parametrize(("written", "seconds"), [("3.51K", 3.51), ("985", 0.985), ("1.2M", 1200.0), ("12.5K", 12.5)])
def test_nanotron_has_letters_for_thousands(tmp_path: Path, written: str, seconds: float):
    line = (
        "[default0]:07/02/2024 22:04:30 [INFO|DP=0|PP=0|TP=0|ip-26-0-160-192]: iteration: 5 / 100 | consumed_tokens: 1.31M | "
        f"elapsed_time_per_iteration_ms: {written} | tokens_per_sec: 298K | lm_loss: 10.6 | grad_norm: 21.3\n"
    )
    log = read(tmp_path, line)
    assert log.step.tolist() == [5]
    np.testing.assert_allclose(log.step_s, [seconds], rtol=1e-12)


def test_packed_log_and_its_name(tmp_path: Path):
    assert read(tmp_path, megatron(1, 500.0), "gpt.3b.log.gz").name == "gpt.3b"


def test_format_with_most_entries_wins(tmp_path: Path):
    nemo = "Training epoch 0, iteration {}/9 | train_step_timing in s: 2\n"
    log = read(tmp_path, megatron(1, 500.0) + "".join(nemo.format(n) for n in range(3)))
    assert log.step_s.tolist() == [2.0] * 3


def test_bytes_that_are_no_text_do_not_hide_the_steps(tmp_path: Path):
    path = tmp_path / "a.log"
    path.write_bytes(b"\xff\xfe caf\xe9\n" + megatron(4, 500.0).encode())
    assert read_text_log(path).step.tolist() == [4]


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
        read(tmp_path, line)


def test_too_many_entries_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("prism_jax.recorded.formats.log_entries.MAX_ENTRIES", 3)
    with pytest.raises(DataError, match=r"run7\.log: more than 3 step times"):
        read(tmp_path, "".join(megatron(n, 500.0) for n in range(4)))

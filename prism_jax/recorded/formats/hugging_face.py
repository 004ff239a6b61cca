"""Hugging Face Trainer: its progress bar, its records with a step and a time of day, and the mean over the run that it ends with.

      51%|#####     | 507/1000 [15:32<16:42,  2.03s/it]                                            whole seconds since the start
    2025-03-12 11:10:21,511 - INFO - {'loss': 2.31, 'learning_rate': 4.9e-05, 'epoch': 0.02, 'step': 10}
    {'train_runtime': 1545.2, 'train_samples_per_second': 10.3, 'train_steps_per_second': 0.32, 'epoch': 1.0}

The speed in the bar is smoothed over steps, so that the time since the start is read. Evaluations draw bars with a total of their
own.
"""

from __future__ import annotations

import re

from .log_entries import CLOCK, NUMBER, WHOLE_RUN, Entry, LineFormat, seconds_of, timestamp

BAR = re.compile(
    r"^[ \x1b\[A-Z]{0,10}\d{1,3}%\|[^|]{0,400}\| {0,3}(\d{1,12})/(\d{1,12}) "
    r"\[(?:(\d{1,4}):)?(\d\d):(\d\d)<[^\]]{0,40}(?:s/it|it/s)"
)
RECORD_STEP = re.compile(r"'(?:global_)?step': {0,3}(\d{1,15})\b")
RUNTIME = re.compile(r"'train_runtime': {0,3}'?" + NUMBER)
STEPS_PER_S = re.compile(r"'train_steps_per_second': {0,3}'?" + NUMBER)


def _bar(line: str, place: str) -> Entry | None:
    found = BAR.search(line[:1000])
    if found is None or int(found[1]) == 0:
        return None
    hours, minutes, seconds = (int(text or 0) for text in found.groups()[2:5])
    elapsed_s = 3600.0 * hours + 60.0 * minutes + seconds
    return Entry(int(found[1]), clock_s=elapsed_s, resolution_s=1.0, series=int(found[2]))


def _record(line: str, place: str) -> Entry | None:
    step, clock = RECORD_STEP.search(line), timestamp(line, line.find("{"))
    if step is None or clock is None:
        return None
    return Entry(int(step[1]), clock_s=clock[0], resolution_s=clock[1])


def _whole_run(line: str, place: str) -> Entry | None:
    runtime, rate = RUNTIME.search(line), STEPS_PER_S.search(line)
    if runtime is None or rate is None:
        return None
    runtime_s = seconds_of(runtime, 1.0, "train_runtime", place)
    per_second = 1.0 / seconds_of(rate, 1.0, "train_steps_per_second", place)
    n_steps = max(round(runtime_s / per_second), 1)
    return Entry(n_steps, per_second, n_steps=min(n_steps, 2**31 - 1))


PROGRESS_BAR = LineFormat(
    "HF Trainer progress bar",
    "HF Trainer",
    "'51%|...| 507/1000 [15:32<16:42, 2.03s/it]'",
    b"%|",
    _bar,
    kind=CLOCK,
    pauses=(b"***** Running Evaluation", b"Saving model checkpoint"),
    patterns=(BAR,),
)
RECORDS = LineFormat(
    "HF Trainer records",
    "HF Trainer",
    "a time of day before {'loss': ..., 'step': 10}",
    b"'loss':",
    _record,
    kind=CLOCK,
    pauses=(b"'eval_loss':", b"Saving model checkpoint"),
    patterns=(RECORD_STEP,),
)
TRAIN_RUNTIME = LineFormat(
    "HF Trainer runtime",
    "HF Trainer",
    "'train_runtime' with 'train_steps_per_second'",
    b"'train_runtime':",
    _whole_run,
    kind=WHOLE_RUN,
    note="one mean over the whole run: evaluations, checkpoints and the start are in it, and how steps vary is not. "
    "Log a step time per step to see that",
    patterns=(RUNTIME, STEPS_PER_S),
)

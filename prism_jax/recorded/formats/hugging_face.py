"""Hugging Face Trainer: the mean over the run that it ends with. Its bar and its records are read by their labels.

{'train_runtime': 1545.2, 'train_samples_per_second': 10.3, 'train_steps_per_second': 0.32, 'epoch': 1.0}
"""

from __future__ import annotations

import re

from .log_entries import NUMBER, WHOLE_RUN, Entry, LineFormat, seconds_of

RUNTIME = re.compile(r"'train_runtime': {0,3}'?" + NUMBER)
STEPS_PER_S = re.compile(r"'train_steps_per_second': {0,3}'?" + NUMBER)


def _whole_run(line: str, place: str) -> Entry | None:
    runtime, rate = RUNTIME.search(line), STEPS_PER_S.search(line)
    if runtime is None or rate is None:
        return None
    runtime_s = seconds_of(runtime, 1.0, "train_runtime", place)
    per_second = 1.0 / seconds_of(rate, 1.0, "train_steps_per_second", place)
    n_steps = max(round(runtime_s / per_second), 1)
    return Entry(n_steps, per_second, n_steps=min(n_steps, 2**31 - 1))


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

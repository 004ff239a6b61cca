"""NeMo: the time of a step on a line of its own, or in the progress bar.

Training epoch 0, iteration 5/99 | ... | train_step_timing in s: 11.2
Epoch 0: :  5%|#   | 51/1000 [09:37<2:59:01, ... train_step_timing in s=11.20]
"""

from __future__ import annotations

import re

from .line_format import NUMBER, THREE_DIGITS, LineFormat, timed_line

TIME = re.compile(r"train_step_timing in s: {0,5}" + NUMBER + r"(?P<unit>)")
STEPS = (re.compile(r"global_step: {0,5}(\d{1,15})\b(?!\.\d|e)"), re.compile(r"iteration (\d{1,15})/"))
BAR_TIME = re.compile(r"train_step_timing in s=" + NUMBER + r"(?P<unit>)")
BAR_STEP = re.compile(r"(\d{1,15})(?:/\d{1,15}|it) \[")

NEMO = LineFormat(
    "NeMo",
    "NeMo",
    "'train_step_timing in s: 11.2'",
    b"train_step_timing in s:",
    timed_line("train_step_timing in s", TIME, STEPS, {"": 1.0}),
    patterns=(TIME, *STEPS),
)
NEMO_BAR = LineFormat(
    "NeMo progress bar",
    "NeMo",
    "'train_step_timing in s=11.2'",
    b"train_step_timing in s=",
    timed_line("train_step_timing in s", BAR_TIME, (BAR_STEP,), {"": 1.0}),
    note=THREE_DIGITS,
    patterns=(BAR_TIME, BAR_STEP),
)

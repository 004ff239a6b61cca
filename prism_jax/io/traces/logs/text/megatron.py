"""Megatron-LM, Megatron-DeepSpeed and Megatron-Bridge: the mean over the steps since the entry before.

iteration 20/ 1000 | ... | elapsed time per iteration (ms): 1234.5 | ...
"""

from __future__ import annotations

import re

from .line_format import NUMBER, LineFormat, timed_line

TIME = re.compile(r"elapsed time per iteration ?\((?P<unit>ms|s)\):? {0,20}" + NUMBER)
STEP = re.compile(r"iteration {0,20}(\d{1,15}) {0,20}/")

MEGATRON = LineFormat(
    "Megatron-LM",
    "Megatron-LM",
    "'elapsed time per iteration (ms): 1234.5'",
    b"elapsed time per iteration",
    timed_line("elapsed time per iteration", TIME, (STEP,), {"ms": 1e-3, "s": 1.0}),
    is_mean=True,
    patterns=(TIME, STEP),
)

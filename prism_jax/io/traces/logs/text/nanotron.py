"""Hugging Face nanotron: the time of a step, with letters for thousands.

iteration: 5 / 100 | ... | elapsed_time_per_iteration_ms: 3.51K | ...
"""

from __future__ import annotations

import re

from .line_format import NUMBER, THREE_DIGITS, LineFormat, timed_line

TIME = re.compile(r"time_per_iteration_ms: {0,5}" + NUMBER + r"(?P<unit>[KMB]?)")
STEP = re.compile(r"iteration: {0,5}(\d{1,15}) {0,5}/")

NANOTRON = LineFormat(
    "nanotron",
    "nanotron",
    "'elapsed_time_per_iteration_ms: 3.51K'",
    b"time_per_iteration_ms:",
    timed_line("time_per_iteration_ms", TIME, (STEP,), {"": 1e-3, "K": 1.0, "M": 1e3, "B": 1e6}),
    note=THREE_DIGITS,
    patterns=(TIME, STEP),
)

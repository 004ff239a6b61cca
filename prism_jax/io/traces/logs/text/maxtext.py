"""MaxText: the time of a step.

completed step: 5, seconds: 3.214, TFLOP/s/device: 180.1, Tokens/s/device: 3187.2, total_weights: 65536, loss: 10.9
"""

from __future__ import annotations

import re

from .line_format import NUMBER, LineFormat, timed_line

TIME = re.compile(r"completed step: {0,5}\d{1,15}, {1,5}seconds: {0,5}" + NUMBER + r"(?P<unit>)")
STEP = re.compile(r"completed step: {0,5}(\d{1,15}),")

MAXTEXT = LineFormat(
    "MaxText",
    "MaxText",
    "'completed step: 5, seconds: 3.214'",
    b"completed step:",
    timed_line("seconds", TIME, (STEP,), {"": 1.0}),
    patterns=(TIME, STEP),
)

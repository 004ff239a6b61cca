"""verl before 2025: its parts of a step, without their sum.

    step:3 - timing/gen:52.419 - timing/ref:14.218 - timing/values:11.854 - ... - timing/update_actor:47.590

Later versions write `timing_s/step`, which is read by its label.
"""

from __future__ import annotations

import re

from .log_entries import PARTS, Entry, LineFormat

STEP = re.compile(r"\bstep:(\d{1,15}) - ")
PART = re.compile(r"\btiming/(\w{1,40}):(\d{1,9}(?:\.\d{1,9})?)")
NOT_OF_STEP = ("testing", "save_checkpoint")


def _parts(line: str, place: str) -> Entry | None:
    """The sum of the parts of a step."""
    step = STEP.search(line)
    parts = [float(one[2]) for one in PART.finditer(line) if one[1] not in NOT_OF_STEP]
    return Entry(int(step[1]), sum(parts)) if step is not None and sum(parts) > 0 else None


VERL_PARTS = LineFormat(
    "verl parts",
    "verl",
    "'step:3 - timing/gen:52.4 - timing/update_actor:47.6'",
    b"timing/",
    _parts,
    kind=PARTS,
    note="sum of generation, reference, values and updates: no step of training alone",
    patterns=(STEP, PART),
)

"""DeepSpeed: what its engine prints and labels alone do not tell.

    [...] [Rank 0] time (ms) | fwd: 1113.9 | bwd: 2309.4 | bwd_inner: ... | step: 100.2    wall_clock_breakdown, of one step
    [2023-07-25 21:03:17,269] [INFO] [timer.py:215:stop] epoch=0/micro_step=34/global_step=34, ..., CurrSamplesPerSec=8.0, ...

The second holds the time of day. Without it, CurrSamplesPerSec is turned into seconds by train_batch_size, which DeepSpeed prints
with its configuration. Its other lines (`iter time (s)`, `step=35, skipped=0`) are read by their labels.
"""

from __future__ import annotations

import re

from .log_entries import (
    CLOCK,
    NAN,
    NUMBER,
    PARTS,
    Entry,
    Facts,
    LineFormat,
    WorkPerStep,
    first_number,
    seconds_of,
    step_number,
    timestamp,
)

BREAKDOWN = tuple(
    re.compile(rf"\| (?:{names}): {{0,5}}" + NUMBER) for names in ("fwd|forward", "bwd|backward", "step|step_allreduce")
)
GLOBAL_STEP = re.compile(r"global_step=(\d{1,15})\b")
OLD_STEP = re.compile(r"\b\d{1,9}/(\d{1,15}), {0,5}SamplesPerSec")
RATE = re.compile(r"\bCurrSamplesPerSec=([0-9.eE+-]{1,30})")
BATCH = re.compile(r"train_batch_size\"? ?[.: ]{1,60}(\d{1,12})\b")


def _breakdown(line: str, place: str) -> Entry | None:
    """Forward, backward and optimizer of one step; the backward contains its parts."""
    found = [pattern.search(line) for pattern in BREAKDOWN]
    parts = [seconds_of(one, 1e-3, "time (ms)", place) for one in found if one is not None and _is_more(one)]
    return Entry(None, sum(parts)) if None not in found and parts else None


def _is_more(found: re.Match[str]) -> bool:
    """Whether a part took any time: a step without an update shows 0.00."""
    return found["number"].strip("0.") != ""


def _throughput(line: str, place: str) -> Entry | None:
    step = step_number((GLOBAL_STEP, OLD_STEP), line, 0)
    if step is None:
        return None
    rate = RATE.search(line)
    clock_s, resolution_s = timestamp(line) or (NAN, 0.0)
    return Entry(step, clock_s=clock_s, resolution_s=resolution_s, rate=_rate(rate[1]) if rate else NAN)


def _rate(text: str) -> float:
    try:
        return float(text) or NAN
    except ValueError:
        return NAN


def _samples(facts: Facts) -> float | None:
    return facts.get("batch")


PAUSES = (b"Saving model checkpoint", b"Saving checkpoint", b"Saved checkpoint")
WALL_CLOCK_BREAKDOWN = LineFormat(
    "DeepSpeed wall clock breakdown",
    "DeepSpeed",
    "'time (ms) | fwd: 1113.9 | bwd: 2309.4 | ... | step: 100.2'",
    b"time (ms) | ",
    _breakdown,
    kind=PARTS,
    note="forward, backward and optimizer of each step; loading data between steps is not in it, and steps are numbered by "
    "their order",
    patterns=BREAKDOWN,
)
THROUGHPUT = LineFormat(
    "DeepSpeed throughput",
    "DeepSpeed",
    "'global_step=34, ..., CurrSamplesPerSec=8.0'",
    b"SamplesPerSec=",
    _throughput,
    kind=CLOCK,
    pauses=PAUSES,
    work=WorkPerStep(
        {"batch": (b"train_batch_size", first_number(BATCH))},
        _samples,
        "train_batch_size, which DeepSpeed prints with its configuration",
    ),
    patterns=(GLOBAL_STEP, OLD_STEP, RATE, BATCH),
)

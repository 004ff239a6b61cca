"""DeepSpeed: what its engine prints, of which a log has one or several.

    steps: 10 loss: 9.5312 iter time (s): 1.234 samples/sec: 25.932                    pipeline engine, mean since the line before
    [...] [Rank 0] time (ms) | fwd: 1113.9 | bwd: 2309.4 | bwd_inner: ... | step: 100.2    wall_clock_breakdown, of one step
    [2023-07-25 21:03:21,037] [INFO] [logging.py:96:log_dist] [Rank 0] step=35, skipped=0, lr=[2e-06], mom=[[0.9, 0.95]]
    [2023-07-25 21:03:17,269] [INFO] [timer.py:215:stop] epoch=0/micro_step=34/global_step=34, ..., CurrSamplesPerSec=8.0, ...

The last two hold the time of day. Without it, CurrSamplesPerSec is turned into seconds by train_batch_size, which DeepSpeed
prints with its configuration.
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
    timed_line,
    timestamp,
)

PIPE_TIME = re.compile(r"iter time \((?P<unit>s)\): {0,5}" + NUMBER)
PIPE_STEP = re.compile(r"steps: {0,5}(\d{1,15}) ")
BREAKDOWN = tuple(
    re.compile(rf"\| (?:{names}): {{0,5}}" + NUMBER) for names in ("fwd|forward", "bwd|backward", "step|step_allreduce")
)
STEP = re.compile(r"\bstep=(\d{1,15}), {0,5}skipped=")
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


def _step_line(line: str, place: str) -> Entry | None:
    step = STEP.search(line)
    if step is None:
        return None
    clock_s, resolution_s = timestamp(line, step.start()) or (NAN, 0.0)
    return Entry(int(step[1]), clock_s=clock_s, resolution_s=resolution_s)


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
PIPELINE = LineFormat(
    "DeepSpeed pipeline engine",
    "DeepSpeed",
    "'steps: 10 loss: 9.5 iter time (s): 1.234'",
    b"iter time (s):",
    timed_line("iter time", PIPE_TIME, (PIPE_STEP,), {"s": 1.0}),
    is_mean=True,
    patterns=(PIPE_TIME, PIPE_STEP),
)
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
STEP_LINES = LineFormat(
    "DeepSpeed step lines",
    "DeepSpeed",
    "'[2023-07-25 21:03:21,037] ... step=35, skipped=0, lr=...'",
    b", skipped=",
    _step_line,
    kind=CLOCK,
    pauses=PAUSES,
    patterns=(STEP,),
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

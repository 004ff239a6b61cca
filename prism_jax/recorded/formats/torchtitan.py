"""torchtitan: a line every few steps, with colours or without, that holds the tokens per second and device but no time.

    [rank0]:[titan] 2025-03-12 11:10:21,511 - root - INFO - step: 22  loss:  6.2250  ...  tps: 7,831  tflops: 18.36  mfu: 1.86%

Time is that between two lines. Where the lines have no time of day, it is the tokens of a step and device over `tps`:

    global batch size * sequence length / devices / tps

which the log says when it starts: "Training starts at step 1, with local batch size 5, global batch size 20, sequence length
8192, ..." and "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, ...".
"""

from __future__ import annotations

import math
import re

from .log_entries import CLOCK, NAN, Entry, Facts, LineFormat, WorkPerStep, first_number, timestamp

COLOUR = re.compile(
    r"(?:\x1b|\^\[|#033)?\[[0-9;]{1,12}m"
)  # as it is, or as tools write it that show or drop the escape
STEP = re.compile(r"\bstep: {0,10}(\d{1,15}) {1,10}loss:")
RATE = re.compile(r"\b[tw]ps: {0,10}([0-9][0-9,]{0,20}(?:\.\d{1,10})?)")
BATCH = re.compile(r"global batch size:? {0,5}(\d{1,12})\b")
LENGTH = re.compile(r"sequence length:? {0,5}(\d{1,12})\b")
NAMED_DEGREES = re.compile(r"parallelism: {0,5}((?:\w{1,20}=\d{1,8}(?:, {0,3})?){1,12})")
LISTED_DEGREES = re.compile(r"device mesh with \[[^\]]{1,200}\], {0,3}\[(\d{1,8}(?:, {0,3}\d{1,8}){0,8})\]")
OVER_THE_SAME = ("ep", "etp")  # degrees of experts, which live on devices that the other degrees count


def _parse(line: str, place: str) -> Entry | None:
    line = COLOUR.sub("", line)
    step, rate = STEP.search(line), RATE.search(line)
    if step is None or rate is None:
        return None
    clock_s, resolution_s = timestamp(line, step.start()) or (NAN, 0.0)
    tokens_per_s = float(rate[1].replace(",", ""))
    return Entry(int(step[1]), clock_s=clock_s, resolution_s=resolution_s, rate=tokens_per_s or NAN)


def _named_devices(line: str) -> float | None:
    found = NAMED_DEGREES.search(line)
    if found is None:
        return None
    degrees = dict(part.strip().split("=") for part in found[1].split(",") if "=" in part)
    return float(math.prod(int(degree) for name, degree in degrees.items() if name not in OVER_THE_SAME))


def _listed_devices(line: str) -> float | None:
    found = LISTED_DEGREES.search(line)
    return float(math.prod(int(degree) for degree in found[1].split(","))) if found else None


def _tokens(facts: Facts) -> float | None:
    devices = facts.get("named devices", facts.get("listed devices"))
    batch, length = facts.get("batch"), facts.get("length")
    return None if not (devices and batch and length) else batch * length / devices


TORCHTITAN = LineFormat(
    "torchtitan",
    "torchtitan",
    "'step: 10  loss: ...  tps: 7,831'",
    b"ps: ",
    _parse,
    kind=CLOCK,
    pauses=(b"Saving the checkpoint", b"Saving a full checkpoint", b"validate step:"),
    work=WorkPerStep(
        {
            "batch": (b"global batch size", first_number(BATCH)),
            "length": (b"sequence length", first_number(LENGTH)),
            "named devices": (b"parallelism:", _named_devices),
            "listed devices": (b"device mesh with", _listed_devices),
        },
        _tokens,
        "the lines 'Training starts at ... global batch size ..., sequence length ...' and 'Building device mesh with ...'",
    ),
    patterns=(COLOUR, STEP, RATE, BATCH, LENGTH, NAMED_DEGREES, LISTED_DEGREES),
)

"""Lines of DeepSpeed, torchtitan, verl and the Hugging Face Trainer that labels alone do not tell.

*DeepSpeed* prints parts of a step, and its rate.

    [...] [Rank 0] time (ms) | fwd: 1113.9 | bwd: 2309.4 | bwd_inner: ... | step: 100.2    wall_clock_breakdown, of one step
    [2023-07-25 21:03:17,269] [INFO] [timer.py:215:stop] epoch=0/micro_step=34/global_step=34, ..., CurrSamplesPerSec=8.0, ...

The second holds the time of day. Without it, CurrSamplesPerSec is turned into seconds by train_batch_size, which DeepSpeed prints
with its configuration. Its other lines (`iter time (s)`, `step=35, skipped=0`) are read by their labels.

*torchtitan* prints a line every few steps, with colours or without, that holds the tokens per second and device but no time.

    [rank0]:[titan] 2025-03-12 11:10:21,511 - root - INFO - step: 22  loss:  6.2250  ...  tps: 7,831  tflops: 18.36  mfu: 1.86%

Time is that between two lines. Where the lines have no time of day, it is the tokens of a step and device over `tps`:

    global batch size * sequence length / devices / tps

which the log says when it starts: "Training starts at step 1, with local batch size 5, global batch size 20, sequence length
8192, ..." and "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, ...".

*verl* before 2025 prints its parts of a step, without their sum.

    step:3 - timing/gen:52.419 - timing/ref:14.218 - timing/values:11.854 - ... - timing/update_actor:47.590

Later versions write `timing_s/step`, which is read by its label.

*Hugging Face's Trainer* ends with the mean over the run. Its bar and its records are read by their labels.

    {'train_runtime': 1545.2, 'train_samples_per_second': 10.3, 'train_steps_per_second': 0.32, 'epoch': 1.0}
"""

from __future__ import annotations

import math
import re

from .log_entries import (
    CLOCK,
    NAN,
    NUMBER,
    PARTS,
    WHOLE_RUN,
    Entry,
    Facts,
    LineFormat,
    WorkPerStep,
    first_number,
    seconds_of,
    step_number,
    timestamp,
)

# --- DeepSpeed -------------------------------------------------------------------------------------------------------

BREAKDOWN = tuple(
    re.compile(rf"\| (?:{names}): {{0,5}}" + NUMBER) for names in ("fwd|forward", "bwd|backward", "step|step_allreduce")
)
GLOBAL_STEP = re.compile(r"global_step=(\d{1,15})\b")
OLD_STEP = re.compile(r"\b\d{1,9}/(\d{1,15}), {0,5}SamplesPerSec")
SAMPLES_PER_S = re.compile(r"\bCurrSamplesPerSec=([0-9.eE+-]{1,30})")
TRAIN_BATCH = re.compile(r"train_batch_size\"? ?[.: ]{1,60}(\d{1,12})\b")


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
    rate = SAMPLES_PER_S.search(line)
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
        {"batch": (b"train_batch_size", first_number(TRAIN_BATCH))},
        _samples,
        "train_batch_size, which DeepSpeed prints with its configuration",
    ),
    patterns=(GLOBAL_STEP, OLD_STEP, SAMPLES_PER_S, TRAIN_BATCH),
)


# --- torchtitan ------------------------------------------------------------------------------------------------------

COLOUR = re.compile(
    r"(?:\x1b|\^\[|#033)?\[[0-9;]{1,12}m"
)  # as it is, or as tools write it that show or drop the escape
TITAN_STEP = re.compile(r"\bstep: {0,10}(\d{1,15}) {1,10}loss:")
TITAN_RATE = re.compile(r"\b[tw]ps: {0,10}([0-9][0-9,]{0,20}(?:\.\d{1,10})?)")
TITAN_BATCH = re.compile(r"global batch size:? {0,5}(\d{1,12})\b")
TITAN_LENGTH = re.compile(r"sequence length:? {0,5}(\d{1,12})\b")
NAMED_DEGREES = re.compile(r"parallelism: {0,5}((?:\w{1,20}=\d{1,8}(?:, {0,3})?){1,12})")
LISTED_DEGREES = re.compile(r"device mesh with \[[^\]]{1,200}\], {0,3}\[(\d{1,8}(?:, {0,3}\d{1,8}){0,8})\]")
OVER_THE_SAME = ("ep", "etp")  # degrees of experts, which live on devices that the other degrees count


def _titan_step(line: str, place: str) -> Entry | None:
    line = COLOUR.sub("", line)
    step, rate = TITAN_STEP.search(line), TITAN_RATE.search(line)
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


def _titan_tokens(facts: Facts) -> float | None:
    devices = facts.get("named devices", facts.get("listed devices"))
    batch, length = facts.get("batch"), facts.get("length")
    return None if not (devices and batch and length) else batch * length / devices


TORCHTITAN = LineFormat(
    "torchtitan",
    "torchtitan",
    "'step: 10  loss: ...  tps: 7,831'",
    b"ps: ",
    _titan_step,
    kind=CLOCK,
    pauses=(b"Saving the checkpoint", b"Saving a full checkpoint", b"validate step:"),
    work=WorkPerStep(
        {
            "batch": (b"global batch size", first_number(TITAN_BATCH)),
            "length": (b"sequence length", first_number(TITAN_LENGTH)),
            "named devices": (b"parallelism:", _named_devices),
            "listed devices": (b"device mesh with", _listed_devices),
        },
        _titan_tokens,
        "the lines 'Training starts at ... global batch size ..., sequence length ...' and 'Building device mesh with ...'",
    ),
    patterns=(COLOUR, TITAN_STEP, TITAN_RATE, TITAN_BATCH, TITAN_LENGTH, NAMED_DEGREES, LISTED_DEGREES),
)


# --- verl ------------------------------------------------------------------------------------------------------------

VERL_STEP = re.compile(r"\bstep:(\d{1,15}) - ")
VERL_PART = re.compile(r"\btiming/(\w{1,40}):(\d{1,9}(?:\.\d{1,9})?)")
NOT_OF_VERL_STEP = ("testing", "save_checkpoint")


def _verl_parts(line: str, place: str) -> Entry | None:
    """The sum of the parts of a step."""
    step = VERL_STEP.search(line)
    parts = [float(one[2]) for one in VERL_PART.finditer(line) if one[1] not in NOT_OF_VERL_STEP]
    return Entry(int(step[1]), sum(parts)) if step is not None and sum(parts) > 0 else None


VERL_PARTS = LineFormat(
    "verl parts",
    "verl",
    "'step:3 - timing/gen:52.4 - timing/update_actor:47.6'",
    b"timing/",
    _verl_parts,
    kind=PARTS,
    note="sum of generation, reference, values and updates: no step of training alone",
    patterns=(VERL_STEP, VERL_PART),
)


# --- Hugging Face Trainer --------------------------------------------------------------------------------------------

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

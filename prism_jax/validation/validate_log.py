"""A training log against what its own head predicts: what `prism-jax validate FILE` does with a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from ..core.errors import DataError, PrismError
from ..core.processes import Progress, silent
from ..core.report import RunRecord
from ..core.use_case import Argument, Message, Option, use_case
from ..core.write_file import check_target, run_record, write_text
from ..job.job import Job
from ..launch.head import Head, read_heads, runs_of
from ..launch.head_job import HeadJob, job_of_head, stated_job
from ..launch.job_text import job_text
from ..launch.stated import StatedJob
from ..recorded.formats.open_trace import detect, open_trace
from ..recorded.formats.text_logs import TEXT_LOG, read_text_log
from ..result.parameters import Overrides, Seed
from ..trace.step_log import StepLog, without_warm_up
from .log_report import (
    INSIDE,
    NO_JOB,
    NO_STEPS,
    OUTSIDE,
    SICK,
    Assumption,
    LogRun,
    LogValidationReport,
    MeasuredSteps,
    PredictedStep,
    StepCause,
)

FIRST_STEPS = 3  # that allocators, autotuning and caches need, of a run of some length
SHARE_OF_FIRST = 4  # of a short run at most every fourth entry is left out
MOST_CAUSES = 2
SICK_BOUNDS = (
    2.0  # distances between the median and the upper bound: 1.64 x 2 = 3.3 standard deviations of the logarithm
)


def exit_of(report: LogValidationReport) -> list[Message]:
    """Makes the exit code 1 where a run is outside of its interval."""
    return [Message("", detail=True, failed=True)] if report.fails else []


@use_case(then=(exit_of,), counts=True)
def validate_log(
    file: Annotated[str | Path, Argument(metavar="FILE")],
    *,
    device: Annotated[str | None, Option("--device", "NAME")] = None,
    overrides: Overrides = (),
    output: Annotated[str | Path | None, Option("--output -o", "JOB.yaml", key=None)] = None,
    skip: Annotated[int | None, Option(metavar="N", least=0, most=10**9)] = None,
    seed: Seed = 0,
    progress: Progress = silent,
) -> LogValidationReport:
    """Read the job from the head of a training log, predict its step, and compare it with the steps below.

    Args:
        file: a training log whose head says what ran (Megatron-LM and its forks, Megatron-DeepSpeed, ...); also as .gz.
        device: GPU that it ran on, where the log does not say (`prism-jax show devices`).
        overrides: "section.field=value" texts that replace fields of the job.
        output: write the job of the (first) run, every field with the line of the log that it is from.
        skip: first steps of every run to leave out; by default three, fewer of a short run, and what is warm-up.
        seed: same seed, same answer.
        progress: told what is being done.

    Raises:
        DataError: the file cannot be read, holds no head, or no job can be made of any run.

    Example:
        >>> validate_log("train.log", device="h100-sxm").runs[0].verdict  # doctest: +SKIP
    """
    path = Path(file)
    if output is not None:
        check_target(output)
    runs, made = _all_runs(path, _Asked(device, tuple(overrides), skip, seed), progress)
    if output is not None:
        _write(output, made)
    if not any(run.predicted for run in runs):
        _refuse(str(file), runs)
    inputs = {"file": file, "device": device, "set": list(overrides), "skip": skip}
    return LogValidationReport(tuple(runs), RunRecord(**run_record(inputs, seed)))


class _Asked(NamedTuple):
    """Options of `validate_log` that a run's result depends on."""

    device: str | None = None
    overrides: tuple[str, ...] = ()
    skip: int | None = None
    seed: int = 0
    slower: float = 1.0


def runs_in(path: Path, device: str | None = None, slower: float = 1.0) -> tuple[LogRun, ...]:
    """The runs of a log, those without a job too.

    Args:
        device: where the log does not say it.
        slower: multiplies the measured steps, to see what is made of a sick machine.

    Raises:
        DataError: the file cannot be read, or has no head.
    """
    return tuple(_all_runs(path, _Asked(device, slower=slower), silent)[0])


def _all_runs(path: Path, asked: _Asked, progress: Progress) -> tuple[list[LogRun], list[Made]]:
    heads = list(runs_of(read_heads(path)))
    if not heads:
        raise DataError(f"{path}: no head that says what ran was found. {open_steps(path)}")
    made = [_made(head, str(path), asked.device, asked.overrides) for head in heads]
    runs = []
    for number, (head, one) in enumerate(zip(heads, made, strict=True)):
        progress(number / len(heads), f"run {number + 1} of {len(heads)}")
        measured = _measured(path, head, asked.skip, len(heads) == 1)
        if not isinstance(measured, PrismError) and asked.slower != 1.0:
            measured = replace(measured[0], step_s=measured[0].step_s * asked.slower), measured[1]
        runs.append(_run(head, one, measured, asked.seed))
    timed = [index for index, run in enumerate(runs) if run.measured is not None] or list(range(len(runs)))
    return [runs[index] for index in timed], [made[index] for index in timed]  # a start without a step is no run


def open_steps(path: Path) -> str:
    """What is known of a log without a head: its steps."""
    try:
        found = open_trace(path)
    except PrismError as error:
        return str(error)
    if not isinstance(found, StepLog):
        return "It is a trace: see `prism-jax trace`."
    return f"Its steps take {np.median(found.step_s):.4g} s (median of {len(found)}); a job file and `trace info` serve there."


Made = tuple[StatedJob | None, HeadJob | None, PrismError | None]


def _made(head: Head, file: str, device: str | None, overrides: Sequence[str]) -> Made:
    """Fields of the head, its job, and why there is none."""
    stated = None
    try:
        stated = stated_job(head, device)
        found = job_of_head(head, file, device, overrides)
        return found.stated, found, None
    except PrismError as error:
        return stated or _without_device(head), None, error


def _without_device(head: Head) -> StatedJob | None:
    """What the head states, whatever device somebody named."""
    try:
        return stated_job(head)
    except PrismError:
        return None


def _refuse(file: str, runs: Sequence[LogRun]) -> None:
    """Says what was measured, and why there is nothing to compare it with."""
    first = next((run for run in runs if run.measured is not None), runs[0])
    raise DataError(f"{file}: {first.reason}. {first.lines()[0]}".replace("..", "."))


def _write(output: str | Path, made: Sequence[Made]) -> None:
    found = next((one for _, one, _ in made if one is not None), None)
    stated = next((one for one, _, _ in made if one is not None), None)
    if found is not None:
        write_text(output, job_text(found.stated, found.document))
    elif stated is not None:
        write_text(output, job_text(stated, stated.document("job", "log")))


# --- What was measured -----------------------------------------------------------------------------------------------


def _measured(path: Path, head: Head, skip: int | None, is_only: bool) -> PrismError | tuple[StepLog, int]:
    """Steps of a run without its first ones, and how many entries were left out."""
    try:
        if is_only and detect(path) is not TEXT_LOG:
            found = open_trace(path)
            assert isinstance(found, StepLog)
        else:
            found = read_text_log(path, between=(head.first_line, head.last_line))
        return settled(found, skip)
    except PrismError as error:
        return error


def settled(found: StepLog, skip: int | None = None) -> tuple[StepLog, int]:
    """The steps of one run once it has settled, and the number of entries left out.

    Args:
        skip: first steps to leave out; None: what is warm-up, at least the first three, of a short run fewer.
    """
    if skip is not None:
        return without_warm_up(found, skip)
    _, n_warm = without_warm_up(found)
    n = max(n_warm, min(FIRST_STEPS, len(found) // SHARE_OF_FIRST))
    return found.choose(np.arange(n, len(found))), n


def _figures(found: StepLog, n_left_out: int) -> MeasuredSteps:
    return MeasuredSteps(
        n=len(found),
        n_left_out=n_left_out,
        first_step=int(found.step[0]),
        last_step=int(found.step[-1]),
        median_s=float(np.median(found.step_s)),
        p95_s=float(np.quantile(found.step_s, 0.95)),
        per_entry=int(np.median(found.n_steps)),
    )


# --- One run ---------------------------------------------------------------------------------------------------------


def _run(head: Head, made: Made, measured: PrismError | tuple[StepLog, int], seed: int) -> LogRun:
    """A run with everything that there is to say about it."""
    stated, found, reason = made
    steps = None if isinstance(measured, PrismError) else _figures(*measured)
    run = LogRun(
        first_line=head.first_line,
        last_line=head.last_line,
        trainer=head.trainer or "Megatron-LM",
        verdict=NO_STEPS if steps is None else NO_JOB,
        reason=str(reason or measured if reason or steps is None else ""),
        measured=steps,
        job={} if stated is None else {path: one.value for path, one in stated.fields.items()},
        read_from={} if stated is None else {path: one.comment for path, one in stated.fields.items()},
        not_modelled=() if stated is None else tuple(f"{one.name} = {one.text[:40]}" for one in stated.not_modelled),
        notes=() if stated is None else tuple(stated.notes),
        printed=_printed(head),
    )
    if found is None:
        return run
    return _with_prediction(run, head, found, seed)


def _printed(head: Head) -> dict[str, Any]:
    """What the log prints beside the steps, as numbers."""
    params = next(iter(head.params.values()), None)
    used = {name.removeprefix("most_"): value for name, value in head.most.items() if name.endswith("_bytes")}
    named = {name: int(head.facts[name].text) for name in ("grad_accum",) if name in head.facts}
    return {**({"params_first_rank": int(params.text)} if params else {}), **used, **named}


def _with_prediction(run: LogRun, head: Head, found: HeadJob, seed: int) -> LogRun:
    from .log_causes import possibilities
    from .predicted_log import predictions  # here, so that logs without a job do not wait for JAX

    doubts, job = found.stated.doubts, found.job
    try:
        [own] = predictions([job], doubts, seed)
    except PrismError as error:
        return replace(run, reason=f"the job cannot be simulated: {error}")
    notes = [*run.notes, *_memory(head, job)]
    if run.measured is None:
        return replace(run, predicted=own, assumed=_assumed(found, {}, own), notes=tuple(notes))
    others = possibilities(job, over_ssh=head.has_hosts and len(head.hosts) > 1)
    known = dict(zip([one.text for one in others], predictions([one.job for one in others], doubts, seed), strict=True))
    seconds = run.measured.median_s
    inside = own.low_s <= seconds <= own.high_s
    causes = () if inside else _causes(known, own, seconds)
    explained = any(one.explains for one in causes)
    return replace(
        run,
        predicted=own,
        verdict=INSIDE if inside else SICK if not explained and _is_far_above(own, seconds) else OUTSIDE,
        causes=causes,
        assumed=_assumed(found, known, own),
        notes=tuple(notes),
    )


def _is_far_above(own: PredictedStep, seconds: float) -> bool:
    """Whether a step is so long that one healthy run in a thousand is: twice as far from the median as the bound is."""
    return log(seconds / own.p50_s) > SICK_BOUNDS * log(own.high_s / own.p50_s)


def _causes(known: Mapping[str, PredictedStep], own: PredictedStep, measured_s: float) -> tuple[StepCause, ...]:
    """Possibilities that come nearest to the measured step, and nearer than the assumed one."""

    def apart(seconds: float) -> float:
        return abs(log(seconds / measured_s))

    nearer = [(apart(one.p50_s), text, one) for text, one in known.items() if apart(one.p50_s) < 0.9 * apart(own.p50_s)]
    return tuple(
        StepCause(text, one.p50_s, one.low_s <= measured_s <= one.high_s)
        for _, text, one in sorted(nearer)[:MOST_CAUSES]
    )


def _memory(head: Head, job: Job) -> list[str]:
    """Measured memory overrules what is computed."""
    try:
        fits = job.fits
    except PrismError as error:
        return [str(error)]
    if fits:
        return []
    used = max(head.most.get("most_allocated_bytes", 0.0), head.most.get("most_reserved_bytes", 0.0))
    what = f"the log prints {used / 2**30:.1f} GiB" if used else "it ran"
    return [f"its memory is computed as more than the device has, but {what}: the run counts"]


def _assumed(found: HeadJob, known: Mapping[str, PredictedStep], own: PredictedStep) -> tuple[Assumption, ...]:
    """What the head leaves unsaid, what matters most first."""
    stated, job = found.stated, found.job
    open_ = [
        Assumption(
            f"{one.name.removeprefix('software.')} {one.values[0]}, or {', '.join(map(str, one.values[1:]))}",
            tuple(exp(ratio) - 1.0 for ratio in one.log_ratio[1:]),
        )
        for one in job.open_fields
    ]
    network = [
        step.p50_s / own.p50_s - 1.0 for text, step in known.items() if text.startswith("network between nodes at")
    ]
    said = [Assumption(text, tuple(network) if text.startswith("network: ") else ()) for text in stated.assumed]
    doubts = [Assumption(text, (exp(-sd) - 1.0, exp(sd) - 1.0)) for text, sd in stated.doubts]
    return tuple(sorted([*said, *doubts, *open_], key=lambda one: -max(map(abs, one.change), default=0.0)))

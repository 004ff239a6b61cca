"""A training log against what its own head predicts: what `prism-jax validate FILE` does with a log."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from ..core.errors import DataError, PrismError
from ..core.processes import Progress, silent
from ..core.report import RunRecord
from ..core.units import format_s
from ..core.use_case import OUTPUT, Argument, Message, Option, OptionGroup, use_case
from ..core.write_file import check_target, run_record, write_text
from ..launch.head import Head, runs_of
from ..launch.head_job import job_of_head, stated_job
from ..launch.read_heads import read_heads
from ..launch.stated import StatedJob, job_text
from ..recorded.formats.open_trace import detect, open_trace
from ..recorded.formats.text_logs import TEXT_LOG, read_text_log
from ..result.parameters import Overrides, Seed
from ..trace.step_log import MOST_POINTS, StepLog, step_points, without_warm_up
from .job_table import JOBS, LoggedRun, MeasuredRun, is_job_table, typical_step_s
from .log_report import SICK, LogRun, LogValidationReport, MeasuredSteps
from .log_run import Made, run_of
from .report import StepsValidationReport
from .validate import validate_steps

FIRST_STEPS = 3  # that allocators, autotuning and caches need, of a run of some length
SHARE_OF_FIRST = 4  # of a short run at most every fourth entry is left out


@dataclass(frozen=True)
class OfLog(OptionGroup):
    """Reading of a log.

    Attributes:
        device: GPU that it ran on, where the log does not say (`prism-jax show devices`).
        overrides: "section.field=value" texts that replace fields of the job.
        output: write the job of the (first) run, every field with the line of the log that it is from.
        skip: first steps of every run to leave out; by default three, fewer of a short run, and what is warm-up.
    """

    device: Annotated[str | None, Option("--device", "NAME")] = None
    overrides: Overrides = ()
    output: Annotated[str | Path | None, Option("--output -o", "FILE", key=None, heading=OUTPUT)] = None
    skip: Annotated[int | None, Option(metavar="N", least=0, most=10**9)] = None


def file_messages(report: LogValidationReport | StepsValidationReport) -> list[Message]:
    """Makes the exit code 1 where a run is outside of its interval."""
    failed = isinstance(report, LogValidationReport) and report.fails
    return [Message("", detail=True, failed=True)] if failed else []


@use_case(then=(file_messages,), counts=True)
def validate_file(
    file: Annotated[str | Path, Argument(metavar="FILE", columns=JOBS)],
    *,
    of_log: OfLog = OfLog(),
    seed: Seed = 0,
    progress: Progress = silent,
) -> LogValidationReport | StepsValidationReport:
    """Compare a training log with what its own head predicts, or a table of measured jobs with their predictions.

    Args:
        file: log (docs/launch.md) or table of jobs (docs/job_table.md), told apart by content; also as .gz.
        of_log: options for reading a log.
        seed: same seed, same answer.
        progress: told what is being done.

    Raises:
        DataError: the file cannot be read, is neither, or no job can be made of it.

    Example:
        >>> validate_file("train.log", device="h100-sxm").card().verdict  # doctest: +SKIP
    """
    if is_job_table(Path(file)):
        return validate_steps(file, seed=seed, progress=progress)
    return validate_log(file, of_log=of_log, seed=seed, progress=progress)


@use_case(counts=True)
def validate_log(
    file: Annotated[str | Path, Argument(metavar="FILE")],
    *,
    of_log: OfLog = OfLog(),
    seed: Seed = 0,
    progress: Progress = silent,
) -> LogValidationReport:
    """Read the job from the head of a training log, predict its step, and compare it with the steps below.

    Args:
        file: a training log whose head says what ran (Megatron-LM and its forks, Megatron-DeepSpeed, ...); also as .gz.
        of_log: options for reading it.
        seed: same seed, same answer.
        progress: told what is being done.

    Raises:
        DataError: the file cannot be read, holds no head, or no job can be made of any run.

    Example:
        >>> validate_log("train.log", device="h100-sxm").runs[0].verdict  # doctest: +SKIP
    """
    path, output = Path(file), of_log.output
    if output is not None:
        check_target(output)
    asked = _Asked(of_log.device, tuple(of_log.overrides), of_log.skip, seed)
    found = _all_runs(path, asked, progress)
    runs = [one.run for one in found]
    if output is not None:
        _write(output, [one.made for one in found])
    if not any(run.predicted for run in runs):
        _refuse(str(file), runs)
    record = RunRecord(**run_record({"file": file, **of_log.inputs()}, seed))
    most = MOST_POINTS // max(1, sum(one.steps is not None for one in found))
    points = (None if one.steps is None else step_points(one.steps.step, one.steps.step_s, most) for one in found)
    return LogValidationReport(tuple(runs), record, tuple(points))


def measured_runs(file: str | Path, of_log: OfLog, seed: int, called: str) -> tuple[LoggedRun, ...]:
    """The runs of a log as measured runs of the jobs that its head states; those that are sick are left out, and said.

    Args:
        called: what reports call the log.

    Raises:
        DataError: the file cannot be read, no job can be made of any run, or all of them are sick.
    """
    found = _all_runs(Path(file), _Asked(of_log.device, tuple(of_log.overrides), of_log.skip, seed), silent)
    if not any(one.run.predicted for one in found):
        _refuse(str(file), [one.run for one in found])
    name, runs, sick = Path(file).name, [], []
    for number, (run, (_, head, _), steps) in enumerate(found, start=1):
        if head is None or steps is None or run.verdict == SICK:
            sick.append(
                f"{name}, run {number} of {len(found)}: {run.verdict}, left out: {run.reason or run.predicted_words}"
            )
            continue
        seconds = run.compared_s or typical_step_s(steps)
        what = f"{called} is {name}, run {number} of {len(found)}: typical step {format_s(seconds)} of {len(steps):,} entries"
        runs.append(
            LoggedRun(MeasuredRun(f"{called} run {number}", head.job, seconds), (what, f"assumed: {run.assumed_words}"))
        )
    if not runs:
        verdicts = {one.run.verdict for one in found}
        what = (
            "A calibration would take the fault of a machine for its speed."
            if SICK in verdicts
            else "Nothing is measured."
        )
        raise DataError(f"{'; '.join(sick).rstrip('.')}. {what}")
    return (runs[0]._replace(notes=(*runs[0].notes, *sick)), *runs[1:])


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
    return tuple(one.run for one in _all_runs(path, _Asked(device, slower=slower), silent))


class _Found(NamedTuple):
    """A run, what its head was made, and its steps once it has settled; None: there are none."""

    run: LogRun
    made: Made
    steps: StepLog | None


def _all_runs(path: Path, asked: _Asked, progress: Progress) -> list[_Found]:
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
            head.timers = {name: array("d", [asked.slower * one for one in some]) for name, some in head.timers.items()}
        steps = measured if isinstance(measured, PrismError) else _figures(*measured)
        settled_steps = None if isinstance(measured, PrismError) else measured[0]
        runs.append(_Found(run_of(head, one, steps, asked.seed), one, settled_steps))
    if asked.skip is not None and all(one.steps is None for one in runs):
        raise DataError(runs[0].run.reason)  # who names the steps to leave out wants others measured
    return [one for one in runs if one.steps is not None] or runs  # a start without a step is no run


def open_steps(path: Path) -> str:
    """Sentence on the steps of a log without a head."""
    try:
        found = open_trace(path)
    except PrismError as error:
        return str(error)
    if not isinstance(found, StepLog):
        return "It is a trace: see `prism-jax trace`."
    return f"Its steps take {np.median(found.step_s):.4g} s (median of {len(found)}); a job file and `trace info` serve there."


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
    """Job that the head states, whatever device somebody named."""
    try:
        return stated_job(head)
    except PrismError:
        return None


def _refuse(file: str, runs: Sequence[LogRun]) -> None:
    """Says what was measured, if anything was, and why there is nothing to compare it with."""
    first = next((run for run in runs if run.measured is not None), runs[0])
    measured = f". Measured: {first.measured_words}" if first.measured is not None else ""
    raise DataError(f"{file}: {first.reason.rstrip('.') if measured else first.reason}{measured}")


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

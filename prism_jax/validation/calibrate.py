"""Calibrating the cost model by measured runs, and which runs to measure first; what `prism-jax calibrate` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from .._inference_loader import inference
from ..core.errors import DataError
from ..core.executor import Workers
from ..core.processes import Progress, part, silent
from ..core.report import RunRecord
from ..core.use_case import OUTPUT, Argument, Message, Option, use_case
from ..core.write_file import check_target, run_record
from ..recorded.trace_facts import LogReading, Skip
from ..result.parameters import Overrides, Seed
from ..tables.parquet_text import read_table_text
from .calibration_report import SiteReport, SuggestionReport
from .job_table import JOBS, JobLog as JobLog, LoggedRun, read_job_logs
from .validate_log import OfLog, measured_runs

RUNS = "a table of jobs in CSV or parquet"


@dataclass(frozen=True)
class SiteParts:
    """Result of a calibration and its file.

    Attributes:
        fit: what `prism_jax.calibrate` returns.
        kept: where it was written; None if it was not.
    """

    fit: Any
    kept: Path | None


def job_logs_of(option: str, texts: Sequence[str]) -> list[JobLog]:
    """Jobs and logs of JOB=LOG texts, or of LOG alone, whose head then states the job.

    Raises:
        DataError: one is neither.
    """
    found = []
    for text in texts:
        job, equals, log = text.partition("=")
        if not equals and Path(text).suffix not in (".yaml", ".yml", ".toml", ""):
            job, log = "", text
        elif not (equals and job.strip() and log.strip()):
            raise DataError(
                f"{option} {text}: write JOB=LOG, such as --log job.yaml=train.log, or LOG alone, with an ending such as .log, "
                "where the log has a head that says what ran"
            )
        found.append(JobLog(job.strip(), log.strip()))
    return found


@dataclass(frozen=True)
class Logs(LogReading):
    """Training logs of jobs.

    Attributes:
        logs: a job file and its training log (formats: `prism-jax show traces`), or a log that has a head; may be repeated.
        device: GPU of the logs that have a head and do not say it.
        overrides: "section.field=value" texts that replace fields of the jobs that heads state.
    """

    logs: Annotated[Sequence[JobLog], Option("--log", "[JOB=]LOG", parse=job_logs_of, is_repeated=True)] = ()
    skip: Skip = None
    device: Annotated[str | None, Option("--device", "NAME")] = None
    overrides: Overrides = ()

    def runs(self, seed: int) -> tuple[LoggedRun, ...]:
        """The measured runs of all logs.

        Raises:
            DataError: a job or a log cannot be read; names it.
        """
        self._check()
        own = tuple(one for one in self.logs if one.job)
        of_log = OfLog(self.device, self.overrides, skip=self.skip)
        logs = [one.log for one in self.logs if not one.job]
        headed = [run for at, log in enumerate(logs, start=1) for run in measured_runs(log, of_log, seed, f"log {at}")]
        return (*read_job_logs(own, self.skip, self.stated), *headed)

    def _check(self) -> None:
        """Refuses options that would change nothing.

        Raises:
            DataError: there are some.
        """
        headed = [one.log for one in self.logs if not one.job]
        of_heads = [name for name, value in (("--device", self.device), ("--set", self.overrides)) if value]
        if of_heads and not headed:
            raise DataError(
                f"{' and '.join(of_heads)}: for jobs that the heads of logs state, and no log stands alone here. Write --log LOG "
                "without a job, or change the job file or the table."
            )
        if self.stated and len(headed) == len(self.logs):
            raise DataError(
                f"{' and '.join(map(_option, self.stated))}: for logs of job files; where a log stands alone, "
                "its steps are read as its trainer writes them. Write --log JOB=LOG, or remove it."
            )


def _option(name: str) -> str:
    return "--map" if name == "columns" else f"--{name.replace('_', '-')}"


Runs = Annotated[
    str | Path | None,
    Argument(
        metavar="RUNS",
        columns=JOBS,
        help="Table of measured runs, CSV or parquet (docs/job_table.md): fields of jobs, or a column job; and step_time_s.",
    ),
]
Framework = Annotated[
    str, Option("--framework", "NAME", help="Training framework of the runs that do not specify one.")
]
Only = Annotated[
    str, Option("--only", "VERSION", help="Use only the runs of this version or method (columns of the table).")
]
Out = Annotated[
    str | Path | None,
    Option("--output -o", "FILE", heading=OUTPUT, help="Save the calibration (.npz); `predict --fit` uses it."),
]


def calibration_messages(report: SiteReport | SuggestionReport) -> Message | None:
    """Message on where the calibration was written."""
    if isinstance(report, SuggestionReport) or report.parts.kept is None:
        return None
    return Message(f"wrote {report.parts.kept}")


@use_case(then=(calibration_messages,))
def calibrate_site(
    runs: Runs = None,
    *,
    logged: Logs = Logs(),
    framework: Framework = "",
    only: Only = "",
    out: Out = None,
    seed: Seed = 0,
    workers: Workers = Workers(),
    progress: Progress = silent,
) -> SiteReport:
    """Calibrate the cost model with a few measured runs, and show how the error falls with their number.

    Args:
        runs: a table of jobs (CSV or parquet; docs/job_table.md) with a column step_time_s; None: logs alone.
        logged: jobs and their training logs, in any format that `trace info` reads.
        framework: training software of all runs, where they do not say.
        only: version or method whose runs are used, where the table has several.
        out: file for the calibration (.npz), for `fits`.
        seed: same seed, same answer.
        workers: processes that share the calibrations with some of the runs.
        progress: told what is being done.

    Raises:
        DataError: the runs cannot be read, or are of several device generations or frameworks; or `out` cannot be written.
        FitError: the calibration did not converge on them.

    Example:
        >>> calibrate_site("runs.csv", out="my_cluster.npz").error.after.median_ape  # doctest: +SKIP
    """
    if out is not None:
        check_target(out)
    if runs is None and not logged.logs:
        raise DataError("no measured runs. Name a table of them, or logs of jobs with --log JOB=LOG.")
    if runs is not None:
        read_table_text(Path(runs), RUNS)  # here, so that a file that is no table is refused before JAX is loaded
    read = logged.runs(seed)
    module = inference()
    import jax  # here, so that mistakes above do not wait for it

    progress(0.0, f"reading {runs}" if runs is not None else "reading logs")
    fitted = module.calibrate_runs(
        () if runs is None else str(runs),
        more=tuple(one.run for one in read),
        key=jax.random.key(seed),
        framework=framework,
        only_version=only,
        progress=part(progress, "calibrating"),
        record=run_record(_inputs(runs, logged, framework), seed),
        workers=workers,
    )
    if out is not None:
        fitted.save(str(out))
    notes = tuple(note for one in read for note in one.notes)
    report = fitted.report(notes or None)
    return report.made_of(SiteParts(fitted, None if out is None else Path(out)))


def _inputs(runs: str | Path | None, logged: Logs, framework: str) -> dict[str, Any]:
    found: dict[str, Any] = {"runs": runs, "framework": framework}
    if logged.logs:
        logs = [f"{one.job}={one.log}" if one.job else one.log for one in logged.logs]
        found |= {"logs": logs, "skip": logged.skip, "unit": logged.unit, **logged.stated}
        found |= {"device": logged.device} if logged.device else {}
        found |= {"set": list(logged.overrides)} if logged.overrides else {}
    return found


def suggest_runs(runs: str | Path, n: int, asked: Sequence[str] = (), only: str = "") -> SuggestionReport:
    """Suggest which jobs of a table to measure first: those whose times narrow the intervals of the others most.

    Args:
        runs: a table of jobs (CSV or parquet; docs/job_table.md); measured times are not needed.
        n: how many to suggest.
        asked: rows whose intervals are to be narrow; all if empty.
        only: version or method whose rows are looked at, where the table has several.

    Raises:
        DataError: the table cannot be read, is malformed, or has no such row or version.

    Example:
        >>> [job.id for job in suggest_runs("jobs.csv", 3).suggested]  # doctest: +SKIP
    """
    read_table_text(Path(runs), RUNS)
    inference()
    found, log_sd = import_module("inference.cost_model.suggest").suggest_runs(str(runs), n, asked, only)
    inputs = {"runs": runs, "suggest": n} | ({"for": list(asked)} if asked else {}) | ({"only": only} if only else {})
    record = RunRecord(**run_record(inputs, 0))
    return SuggestionReport(tuple(found), sum(one.stands_for for one in found), record, log_sd)


@use_case(then=(calibration_messages,))
def calibrate(
    runs: Runs = None,
    *,
    logged: Logs = Logs(),
    out: Out = None,
    framework: Framework = "",
    only: Only = "",
    suggest: Annotated[int | None, Option("--suggest", "N", least=1, most=100)] = None,
    asked: Annotated[Sequence[str], Option("--for", "ROW", is_repeated=True)] = (),
    seed: Seed = 0,
    progress: Progress = silent,
) -> SiteReport | SuggestionReport:
    """Calibrate the cost model, or suggest what to measure for that.

    Args:
        runs, logged, out, framework, only, seed, progress: as in `calibrate_site`.
        suggest: only list the N jobs of the table to measure first; needs no measured times.
        asked: row of the table whose interval is to be narrow, for --suggest; may be repeated; default: all rows.
    """
    if suggest is None:
        if asked:
            raise DataError("--for: names rows for --suggest. Add --suggest 3, or remove it.")
        return calibrate_site(
            runs, logged=logged, framework=framework, only=only, out=out, seed=seed, progress=progress
        )
    if runs is None:
        raise DataError("--suggest: name the table of jobs: prism-jax calibrate jobs.csv --suggest 3")
    if out is not None or framework or logged != Logs():
        raise DataError(
            "--suggest: can be combined with --for, --only and --json, since nothing is fitted. Remove the other options."
        )
    return suggest_runs(runs, suggest, asked, only)

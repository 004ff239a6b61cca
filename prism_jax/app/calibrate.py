"""Calibrating the cost model by measured runs, and which runs to measure first; what `prism-jax calibrate` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .._core.files import check_target
from .._inference_loader import inference
from ..errors import DataError
from ..io.tables.job_logs import JobLog as JobLog, read_job_logs
from ..io.tables.packed import read_packed_text
from ..io.write import run_record
from ..progress import Progress, silent
from ..report.codec import from_plain
from ..report.types.record import RunRecord
from ..report.types.site import SiteReport, SuggestionReport
from .progress import part

RUNS = "a table of jobs in CSV"


@dataclass(frozen=True)
class SiteRunResult:
    """A calibration with what its report is made of.

    Attributes:
        fit: what `prism_jax.calibrate` returns.
        kept: where it was written; None if it was not.
    """

    report: SiteReport
    fit: Any
    kept: Path | None


def calibrate_site(runs: str | Path | None = None, **options: Any) -> SiteReport:
    """The shipped calibration updated by measured runs of one cluster; arguments as those of `run_calibration`.

    Example:
        >>> calibrate_site("runs.csv", out="my_cluster.npz").error.after.median_ape  # doctest: +SKIP
    """
    return run_calibration(runs, **options).report


def run_calibration(
    runs: str | Path | None = None,
    *,
    logs: Sequence[JobLog] = (),
    skip: int | None = None,
    unit: str | None = None,
    framework: str = "",
    out: str | Path | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> SiteRunResult:
    """Calibrates the cost model with a few measured runs.

    Args:
        runs: a table of jobs (CSV; docs/job_table.md) with a column step_time_s; None: logs alone.
        logs: jobs and their training logs, in any format that `trace info` reads.
        skip: first steps of every log to leave out; None: those that are warm-up.
        unit: of step times in logs whose name does not say it: s, ms, us or ns.
        framework: training software of all runs, where they do not say.
        out: where to keep the calibration (.npz), for `fits`.
        seed: same seed, same answer.
        progress: told what is being done.

    Raises:
        DataError: the runs cannot be read, or are of several device generations or frameworks; or `out` cannot be written.
        FitError: the calibration did not converge on them.
    """
    if out is not None:
        check_target(out)
    if runs is None and not logs:
        raise DataError("no measured runs. Name a table of them, or logs of jobs with --log JOB=LOG.")
    if runs is not None:
        read_packed_text(Path(runs), RUNS)  # here, so that a file that is no table is refused before JAX is loaded
    logged = read_job_logs(logs, skip, unit)
    module = inference()
    import jax  # here, so that mistakes above do not wait for it

    progress(0.0, f"reading {runs}" if runs is not None else "reading logs")
    fitted = module.calibrate_runs(
        () if runs is None else str(runs),
        more=tuple(one.run for one in logged),
        key=jax.random.key(seed),
        framework=framework,
        progress=part(progress, "calibrating"),
        record=run_record(_inputs(runs, logs, skip, unit, framework), seed),
    )
    if out is not None:
        fitted.save(str(out))
    notes = tuple(note for one in logged for note in one.notes)
    return SiteRunResult(fitted.report(notes or None), fitted, None if out is None else Path(out))


def _inputs(
    runs: str | Path | None, logs: Sequence[JobLog], skip: int | None, unit: str | None, framework: str
) -> dict[str, Any]:
    found: dict[str, Any] = {"runs": runs, "framework": framework}
    if logs:
        found |= {"logs": [f"{one.job}={one.log}" for one in logs], "skip": skip, "unit": unit}
    return found


def suggest_runs(runs: str | Path, n: int) -> SuggestionReport:
    """Which jobs of a table to measure first: those that stand for all others in what their steps are made of.

    Args:
        runs: a table of jobs (CSV; docs/job_table.md); measured times are not needed.
        n: how many to suggest.

    Raises:
        DataError: the table cannot be read, or is malformed.

    Example:
        >>> [job.id for job in suggest_runs("jobs.csv", 3).suggested]  # doctest: +SKIP
    """
    read_packed_text(Path(runs), RUNS)
    inference()
    found = import_module("inference.cost_model.site.suggest").suggest_runs(str(runs), n)
    record = from_plain(RunRecord, run_record({"runs": runs, "suggest": n}, 0))
    return SuggestionReport(tuple(found), sum(one.stands_for for one in found), record)

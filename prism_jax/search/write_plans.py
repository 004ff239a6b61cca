"""Writes the plans that a search found as jobs: the best one, or some of them with what their frameworks take."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .._version import __version__
from ..core.units import format_s
from ..core.use_case import Message
from ..result.parameters import Output, SaveDir
from .report import StudyReport

if TYPE_CHECKING:
    from .study import Candidate

MOST_SAVED = 3  # plans that --save-dir writes


def write_best_job(report: StudyReport, output: Output = None) -> Message | None:
    """Writes the job with the best plan, as YAML that every command takes.

    Args:
        report: of `search_plans`.
        output: write the job with the best plan to FILE, as YAML.

    Raises:
        DataError: the job was not read from a file, or the file cannot be written.
    """
    if output is None:
        return None
    best = report.parts.found.best
    times = f"p50 {format_s(best.p50_s, 5)}, p95 {format_s(best.p95_s, 5)}"
    return _writes(report, best, f"The best of {_plans(report)}: {times}")(output)


def save_best_jobs(report: StudyReport, save_dir: SaveDir = None) -> tuple[Message, ...]:
    """Writes the report and the job with the best plan into a folder, with the arguments of its framework; and the next plans
    in folders of their own, `plan_2` and so on.

    Args:
        report: of `search_plans`.
        save_dir: write the best job, the report and the arguments of the job's framework to DIR, and the next plans below it.

    Raises:
        DataError: the job was not read from a file, or a file cannot be written.
    """
    if save_dir is None:
        return ()
    from ..launch.export_job import save_job

    told: list[Message] = []
    for number, one in enumerate(report.parts.found.top(MOST_SAVED), start=1):
        folder = Path(save_dir) if number == 1 else Path(save_dir) / f"plan_{number}"
        write = _writes(report, one, f"Plan {number} of {_plans(report)}: p95 {format_s(one.p95_s, 5)}")
        told += save_job(folder, write, report if number == 1 else None)
    return tuple(told)


def _plans(report: StudyReport) -> str:
    return f"{report.n_plans:,} plans of {report.job.name} by {report.objective}"


def _writes(report: StudyReport, found: Candidate, comment: str) -> Callable[[str | Path], Message]:
    """Makes what writes the job with a plan to a file, under a comment."""
    from .study import without_meaning, written_plan  # need JAX

    return partial(
        report.parts.write,
        chosen=written_plan(found.plan),
        dropped=without_meaning(found.plan),
        comment=f"{comment} (prism-jax {__version__})",
    )

"""The job of a saved report: where its file is, whether that has changed since, and its plans as job files and as arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from starlette.requests import Request

from .._version import __version__
from ..core.errors import DataError, PrismError
from ..core.report import Report
from ..job.load_job import job_of, read_job_file
from ..job.write_job import job_with_plan, stated_text
from ..launch.export_job import Exported, Exporter, exported, exporter_of
from ..search.figures import CandidateFacts
from ..search.report import StudyReport
from ..tables.document import Document
from ..tables.streams import example_files
from ..tables.yaml_toml import read_yaml
from .results import inputs_of
from .site import Site


def report_in(site: Site, name: str) -> Report:
    """The report in a file, kept until it changes; errors as `Site.existing` and `Results.opened`."""
    site.existing(name)
    return site.results.kept("report", [name], lambda: site.results.opened(name))


DAMAGE = (
    *(TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError),
    *(AssertionError, StopIteration, RuntimeError),
)


SOURCES = ("job", "jobs", "file", "files")  # inputs that name files which a report is of
F = TypeVar("F", bound=Callable[..., Any])


def of_reports(handler: F) -> F:
    """Makes a handler tell of a report whose values are not what they must be, which only shows when it is laid out.

    Raises:
        DataError: in place of an error of such a value.
    """

    @wraps(handler)
    def told(request: Request, *rest: Any) -> Any:
        try:
            return handler(request, *rest)
        except DAMAGE as error:
            what = " or ".join(request.query_params.getlist("file")) or "this file"
            why = str(error) or type(error).__name__
            raise DataError(f"{what}: a damaged report: {why}. Make it again.") from error

    return cast(F, told)


def record_of(report: Report) -> Mapping[str, Any]:
    """Versions, inputs and command of the run that made a report, as its JSON has them."""
    data = report.to_dict()
    record = data.get("record")
    return record if isinstance(record, dict) else data


@dataclass(frozen=True)
class ReportJob:
    """The job that a report is of.

    Attributes:
        site: of the folder that the report is in.
        name: a file below DIR or a shipped job, as commands in DIR take it; empty where neither is there.
        stated: the whole job as the report keeps it; empty where it keeps none.
        overrides: "section.field=value" texts of the command.
    """

    site: Site
    name: str
    stated: str
    overrides: tuple[str, ...]

    @property
    def source(self) -> Path | str:
        """The file or the name that `load_job` reads."""
        path = self.site.folder / self.name
        return path if path.is_file() else self.name

    def document(self, changes: Sequence[str] = ()) -> Document:
        """The job as a document; files that it names are named from its own folder.

        Args:
            changes: "section.field=value" texts of another plan.

        Raises:
            ConfigError: the job is wrong.
            DataError: the report keeps no job, and the file that it names is not here.
        """
        if self.stated and not changes:
            found = read_yaml(self.stated, "job of the report")
            return replace(found, name=str(self.site.folder / (self.name or "job.yaml")))
        return read_job_file(self._found, [*self.overrides, *changes])

    def text(self, changes: Sequence[str] = ()) -> str:
        """YAML of the job, or of the job with another plan, as a file in DIR; errors as `document`."""
        if self.stated and not changes:
            return self.stated
        job_of(self.document(changes))  # what is no job is refused in its own words
        about = f"The job of a saved report (prism-jax {__version__})"
        return job_with_plan(
            self._found, [*self.overrides, *changes], chosen={}, dropped=(), comment=about, folder=self.site.folder
        )

    def arguments(self, changes: Sequence[str] = ()) -> tuple[Exporter, Exported]:
        """The job, or the job with another plan, as arguments of the framework that it names.

        Raises:
            PrismError: as `document`; or the framework or model is none that arguments are written for.
        """
        job = job_of(self.document(changes))
        exporter = exporter_of(job)
        if exporter is None:
            raise DataError(
                f"{job.name}: arguments are written for jobs that name their framework, and this names none"
            )
        return exporter, exported(job, exporter)

    @property
    def has_changed(self) -> bool:
        """Whether the file now states another job than the report was made of; false where nobody can tell."""
        if not self.stated or not self.name:
            return False
        try:
            return stated_text(self.source, self.overrides) != self.stated
        except PrismError:
            return True  # it states no job any more

    @property
    def _found(self) -> Path | str:
        if not self.name:
            raise DataError(
                "The job of this report is not in this folder. Put its file here under the name in the command."
            )
        return self.source


def job_of_report(site: Site, record: Mapping[str, Any]) -> ReportJob | None:
    """The job that a record names or holds; None where it is of none, or of several."""
    inputs, stated = inputs_of(record), record.get("job_file")
    named, overrides = inputs.get("job"), inputs.get("set")
    kept = stated if isinstance(stated, str) else ""
    if not kept and not isinstance(named, str):
        return None
    texts = tuple(map(str, overrides)) if isinstance(overrides, list) else ()
    return ReportJob(site, found_job(site, named) if isinstance(named, str) else "", kept, texts)


def later_sources(site: Site, name: str, record: Mapping[str, Any]) -> Iterator[str]:
    """Files below DIR that a report was made of, as far as its record names them, and that were written after it."""
    named = map(inputs_of(record).get, SOURCES)
    texts = (one for own in named for one in (own if isinstance(own, list) else [own]) if isinstance(one, str))
    made_ns = site.existing(name).stat().st_mtime_ns
    for text in dict.fromkeys(texts):
        path = site.folder / found_job(site, text)
        if path.is_file() and path.stat().st_mtime_ns > made_ns:
            yield site.name_of(path)


def found_job(site: Site, named: str) -> str:
    """How commands in DIR name a job that was named so; empty where it is neither below DIR nor shipped."""
    try:
        path = Path(named)
        below = path.relative_to(site.folder) if path.is_absolute() else path
        return site.name_of(site.existing(str(below)))
    except (PrismError, ValueError, OSError):
        return named if named in example_files() else ""


def chosen_plan(site: Site, name: str, plan: str) -> tuple[ReportJob, Sequence[str]]:
    """The job of a report, and the fields that make it have a plan of a search.

    Args:
        plan: its number, from 1; empty: the job as it is.

    Raises:
        DataError: there is no such plan, or the report is of no job.
    """
    report = report_in(site, name)
    job, plans = job_of_report(site, record_of(report)), plans_of(report)
    if job is None:
        raise DataError(f"{name}: this report is of no job, or of several")
    if not plan:
        return job, ()
    number = int(plan) if plan.isdecimal() and len(plan) < 5 else 0
    if not 1 <= number <= len(plans):
        known = f"plan {plan[:20]!r}: {name} has plans 1 to {len(plans)}"
        raise DataError(known if plans else f"{name}: it has no plans")
    return job, plans[number - 1].changes


def plans_of(report: Report) -> Sequence[CandidateFacts]:
    """Plans that a search has found, the best of each kind first; none of other reports."""
    return report.unlike if isinstance(report, StudyReport) else ()


def as_document(text: str) -> Mapping[str, Any]:
    """Sections of a job that a report keeps; none where it is damaged."""
    try:
        return read_yaml(text, "job of the report").data
    except PrismError:
        return {}

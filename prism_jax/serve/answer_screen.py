"""A saved report as a screen: its own page, what can be done next, and whether it still holds."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import htpy as h
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .._version import __version__
from ..core.errors import DataError, PrismError
from ..core.page_html import Sheet, sheet_html
from ..core.report import Report
from .files import FORMS, OF_A_JOB, download, free
from .layout import action, as_shown, choice, copied, document, form, hidden, left_out, link, notice, picture, trusted
from .report_job import ReportJob, chosen_plan, job_of_report, later_sources, of_reports, plans_of, record_of, report_in
from .site import Fields, Site, address, asked, field, html, kept, posted, redirect, site_of

FOLLOWING = {"sweep": "Sweep a field", "search": "Search for a better plan", "run": "When is a run done"}
MOST_OTHERS = 100  # reports that may be chosen to compare with
OUTPUTS = ("-o", "--output", "--save-dir", "--html", "--plot")  # that name a file, which a run here has no use for


@of_reports
def show_answer(request: Request) -> Response:
    """The screen.

    Raises:
        DataError: no report, or damaged.
    """
    site, name = site_of(request), asked(request, "file")
    report = report_in(site, name)
    title, head, body = site.results.kept("answer", [name], lambda: _parts(name, report_in(site, name)))
    record = record_of(report)
    job = job_of_report(site, record)
    states, actions = _states(site, name, record, job), _actions(site, name, report.kind, record, job)
    return html(document(title, states, head, actions, _plans(site, name, report, job), body))


def _parts(name: str, report: Report) -> tuple[str, h.Node, h.Node]:
    """Title, card and the rest of a report, written once, as that is what takes time."""
    page = report.page()
    card = page.card and as_shown(page.card)
    sheet = Sheet(report.kind, replace(page, card=card), None, report.to_dict())
    title = card.title if card else report.kind
    drawn = picture(address("/picture", file=name), f"Picture of {title}") if report.picture else None
    head, *body = sheet_html(sheet, drawn)
    return title, trusted(str(h.fragment[head])), trusted(str(h.fragment[body]))


def _states(site: Site, name: str, record: Mapping[str, Any], job: ReportJob | None) -> Iterator[h.Node]:
    """Why the report may not hold any more, with a button that makes it again."""
    again = action("Run its command again", "/again", file=name) if words_of(record) else None
    if job is not None and job.stated:
        if site.results.kept("changed", _files_of(name, job), lambda: job.has_changed):
            yield notice(f"{job.name} has changed since this report was made.", "unsure", again)
    else:
        for source in later_sources(site, name, record):
            text = f"{source} was written after this report, which may be of another state of it."
            yield notice(text, "unsure", again)
    versions = record.get("versions")
    wrote = versions.get("prism-jax") if isinstance(versions, dict) else None
    if isinstance(wrote, str) and wrote != __version__:
        yield notice(f"Made by prism-jax {wrote}. This is {__version__}, which may answer otherwise.", "unsure", again)


def _files_of(name: str, job: ReportJob) -> Sequence[str]:
    return [name, *([job.name] if isinstance(job.source, Path) else [])]


def _actions(site: Site, name: str, kind: str, record: Mapping[str, Any], job: ReportJob | None) -> h.Element:
    pin, pinned = ("Unpin", "no") if name in site.results.pinned() else ("Pin", "yes")
    command = shlex.join(_typed(record))  # what a shell would do besides is quoted
    downloads = (
        h.a(".button", href=address("/download", **{"file": name, "as": form}), download=True)[words]
        for form, words in FORMS.items()
        if job is not None or form not in OF_A_JOB
    )
    return h.section(aria_label="Actions")[
        h.div(".actions")[_following(name, job), action(pin, "/pin", file=name, pinned=pinned)],
        _others(site, name, kind),
        h.div(".actions")[h.span["Download"], downloads],
        h.details[h.summary["The command that repeats it"], copied(command, "command")] if command else None,
    ]


def _following(name: str, job: ReportJob | None) -> Iterator[h.Node]:
    """Links to commands on the same job; a job that is no file here is written as one first."""
    if job is None:
        return
    if not job.name:
        if job.stated:
            yield action("Write its job as a file", "/use", file=name)
        return
    for command, text in FOLLOWING.items():
        query = [("command", command), ("job", job.name), *(("set", one) for one in job.overrides)]
        yield link(text, f"/start?{urlencode(query)}")


def _others(site: Site, name: str, kind: str) -> h.Node:
    """A choice of reports of this kind to compare with."""
    found = [one for one in site.results.reports() if one.kind == kind and one.file.name != name]
    if not found:
        return None
    others = found[:MOST_OTHERS]
    more = f"The latest {len(others)} of {len(found):,} are listed. Choose others in the folder."
    options = {one.file.name: f"{one.file.name}{f' ({one.job})' if one.job else ''}, {one.file.when}" for one in others}
    return [
        h.form(".actions", action="/compare", method="get")[
            hidden({"file": name}),
            choice("Compare with", "file", options, place="other"),
            h.button(type="submit")["Compare"],
        ],
        left_out(more if len(found) > len(others) else "", site.results.beyond),
    ]


def _plans(site: Site, name: str, report: Report, job: ReportJob | None) -> h.Node:
    """Buttons that write a plan of a search as a job or as arguments; the arguments of the best are there at once."""
    plans = plans_of(report)
    if not plans or job is None:
        return None
    options = {str(number): f"{number}: {one.plan.in_short}" for number, one in enumerate(plans, 1)}
    return h.section[
        h.h2["Use a plan"],
        form(
            "/use",
            hidden({"file": name}),
            choice("Plan", "plan", options),
            h.div(".actions")[
                h.button(type="submit")["Write the job with this plan"],
                h.button(type="submit", formaction="/arguments", formmethod="get")["Show its arguments"],
            ],
        ),
        site.results.kept("arguments", _files_of(name, job), lambda: _arguments(job, plans[0].changes, h.h3)),
    ]


def _arguments(job: ReportJob, changes: Sequence[str], title: h.Element) -> h.Node:
    """Arguments of the framework of a job with a plan, each file with a button that copies it; else why there are none."""
    try:
        exporter, made = job.arguments(changes)
    except PrismError as error:
        return trusted(str(h.p[f"No arguments of a framework: {error}"]))
    lost = ", ".join(one.path for one in made.unexpressed)
    files = ([title[f"{exporter.title}: {name}"], copied(text, name)] for name, text in made.files.items())
    about = f"Not expressible in {exporter.title}: {lost}." if lost else ""
    return trusted(str(h.fragment[files, h.p[about] if about else None]))


@of_reports
def show_arguments(request: Request) -> Response:
    """A plan of a search, or the job of another report, as arguments of its framework.

    Raises:
        DataError: there is no such plan, or the report is of no job.
    """
    site, name = site_of(request), asked(request, "file")
    job, changes = chosen_plan(site, name, request.query_params.get("plan", ""))
    title = f"Arguments of {name}"
    back = h.div(".actions")[link("Back to the report", address("/answer", file=name))]
    return html(document(title, h.h1[title], back, _arguments(job, changes, h.h2)))


@of_reports
def use_job(request: Request, fields: Fields) -> Response:
    """Writes the job of a report, or the one with a plan that a search found, into DIR, and shows it.

    Raises:
        DataError: as `show_arguments`, or the job is not here.
    """
    site, name, plan = site_of(request), field(fields, "file"), field(fields, "plan", "")
    job, changes = chosen_plan(site, name, plan)
    stem = Path(job.name or name).stem + (f"-plan-{plan}" if plan else "")
    target = free(site, f"{stem}.yaml")
    kept(target, job.text(changes).encode())
    return redirect(address("/job", file=site.name_of(target)))


@of_reports
def run_again(request: Request, fields: Fields) -> Response:
    """Runs the command of a report again, and shows that run.

    Raises:
        DataError: the report does not say its command, or it is refused.
    """
    site, name = site_of(request), field(fields, "file")
    words = words_of(record_of(report_in(site, name)))
    if not words:
        raise DataError(f"{name}: this report does not say by which command it was made")
    return redirect(address("/run", name=site.runs.submit(words).name))


def _typed(record: Mapping[str, Any]) -> list[str]:
    """The words of a command of prism-jax; none where it is not known, or is another."""
    command = record.get("command")
    try:
        words = shlex.split(command) if isinstance(command, str) and command.isprintable() else []
    except ValueError:
        return []
    return words if words[:1] == ["prism-jax"] and len(words) > 1 else []


def words_of(record: Mapping[str, Any]) -> list[str]:
    """The words of a command behind `prism-jax`, without where and how it printed; none where it is not known."""
    found: list[str] = []
    rest = iter(_typed(record)[1:])
    for word in rest:
        if word in OUTPUTS:
            next(rest, None)
        elif word != "--json" and not word.startswith(tuple(f"{one}=" for one in OUTPUTS)):
            found.append(word)
    return found


ROUTES = (
    Route("/answer", show_answer),
    Route("/arguments", show_arguments),
    Route("/download", download),
    Route("/use", posted(use_job), methods=["POST"]),
    Route("/again", posted(run_again), methods=["POST"]),
)

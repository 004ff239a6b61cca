"""A run: its state, how far it is, its rows as they come, and what can be done with it; and the list of all runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import htpy as h
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..core.errors import PrismError
from ..core.page import Tone
from ..core.page_html import table_html
from ..core.readable import counted, duration
from .layout import action, copied, document, failure, heading, link, notice
from .partial_rows import partial_rows
from .site import Fields, Site, address, asked, field, html, posted, redirect, site_of
from .start_screen import command_line, command_of
from .worker import WORK

if TYPE_CHECKING:
    from .runs import CommandRun

GOING = ("waiting", "running")
SAID: dict[str, tuple[str, Tone]] = {
    "waiting": ("Waiting", "plain"),
    "running": ("Running", "plain"),
    "done": ("Done", "good"),
    "failed": ("Failed", "bad"),
    "cancelled": ("Cancelled", "unsure"),
    "interrupted": ("Interrupted", "unsure"),
}  # state -> in words, and its tone
MOST_ENDED = 200  # of the list
STOPPING = "Stopping. What is done so far is being saved."
EVERY, ROWS_EVERY = "every 1s", "every 4s"


def show_run(request: Request) -> Response:
    """The screen of one run."""
    site = site_of(request)
    run = site.runs.run(asked(request, "name"))
    title = run_title(run)
    return html(
        document(
            title,
            heading(title, h.a(href="/runs")["All runs"]),
            _state(run),
            _command(site, run),
            _part(site, run),
            h.div(".actions")[_actions(run)],
            _found(site, run),
            _terminal(site, run),
        )
    )


def _command(site: Site, run: CommandRun) -> h.Node:
    """The command; one that the page would not run is not there to copy."""
    if not run.words:
        return None
    try:
        site.runs.shell_words(run.name)
    except PrismError:
        return h.pre(tabindex="0", aria_label="command")[command_line(run.words)]
    return copied(command_line(run.words), "command")


def run_title(run: CommandRun) -> str:
    """Command and its subject: "predict llama2_7b_fsdp_64"."""
    words = list(run.words)
    n_word = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    return " ".join(words[: min(n_word, 4)]) or run.name


def show_rows(request: Request) -> Response:
    """The rows that a run has so far, for htmx; nothing where they are those that the page shows."""
    site = site_of(request)
    run = site.runs.run(asked(request, "name"))
    if request.query_params.get("was") == _saved(site, run):
        return Response(status_code=204)
    return html(_found(site, run))


def _found(site: Site, run: CommandRun) -> h.Node:
    """The answer as far as it is there; of a run that goes on it is renewed."""
    if run.state == "done":
        return None
    renewed: dict[str, str] = {"id": "found"}
    if run.state in GOING:
        rows = address("/run/rows", name=run.name, was=_saved(site, run))
        renewed |= {"hx-get": rows, "hx-trigger": ROWS_EVERY, "hx-swap": "outerHTML"}
    return h.div(renewed)[_rows(site, run)]


def _saved(site: Site, run: CommandRun) -> str:
    """When the journal of a run was saved, as a text to compare; empty: there is none."""
    try:
        return str(site.path(_journal(run)).stat().st_mtime_ns)
    except (PrismError, OSError):
        return ""


def _journal(run: CommandRun) -> str:
    return run.journal or f"{run.name}{WORK}"


def _rows(site: Site, run: CommandRun) -> h.Node:
    command = command_of(list(run.words))
    if command is None:
        return None
    try:
        found = partial_rows(command, run.words, site.path(_journal(run)))
    except PrismError:  # a journal that leads out of the folder
        return None
    if found is None:
        return None
    tables = ([h.h3[one.title], table_html(one, f"rows-{number}")] for number, one in enumerate(found.tables))
    return h.section[h.h2["So far"], h.p[found.text], tables]


def _terminal(site: Site, run: CommandRun) -> h.Node:
    """The command with which one goes on in a terminal."""
    try:
        line = site.runs.shell_words(run.name)
    except PrismError:
        return None
    return h.details[
        h.summary["Go on in a terminal"],
        h.p(".hint")["In the folder that is served; it takes up the work that is done."],
        copied(line, "terminal command"),
    ]


def show_state(request: Request) -> Response:
    """The part of the screen that is renewed; another state than the page shows is a new page."""
    site = site_of(request)
    run = site.runs.run(asked(request, "name"))
    answer = html(_part(site, run))
    if f"{run.state} {run.is_stopping}" != request.query_params.get("was", ""):
        if run.state == "done":
            answer.headers["HX-Redirect"] = address("/answer", file=run.report)
        else:
            answer.headers["HX-Refresh"] = "true"
    return answer


def _state(run: CommandRun) -> h.Element:
    """The state in words; it changes with the page alone, so that screen readers tell it once."""
    said, tone = SAID[run.state]
    if run.is_stopping:
        said = STOPPING
    if run.state == "failed":
        return h.section(aria_labelledby="state")[h.h2("#state.bad")[said], failure(run.error.splitlines())]
    return h.section(aria_labelledby="state")[
        h.h2("#state", class_=tone)[said],
        notice(run.error, "plain" if run.state == "done" else "unsure") if run.error else None,
    ]


def _part(site: Site, run: CommandRun) -> h.Element:
    """Place in the queue or progress, with what there is of the answer."""
    renewed: dict[str, str | None] = {"id": "progress"}
    if run.state in GOING:
        was = f"{run.state} {run.is_stopping}"
        part = address("/run/state", name=run.name, was=was)
        renewed |= {"hx-get": part, "hx-trigger": EVERY, "hx-swap": "outerHTML"}
    if run.state == "waiting":
        return h.div(renewed)[_queue(site, run)]
    return h.div(renewed)[_progress(run) if run.state == "running" else None]


def _queue(site: Site, run: CommandRun) -> h.Node:
    """Place among those that wait, and what runs now."""
    others = site.runs.runs()
    before = [one for one in others if one.state == "waiting" and one.turn < run.turn]
    running = [one for one in others if one.state == "running"]
    place = f"{counted(len(before), 'run')} before this one." if before else "It is the next one."
    items = [
        h.li[h.a(href=address("/run", name=one.name))[run_title(one)], f", {one.state}"] for one in (*running, *before)
    ]
    return [h.p[place], h.ul[items] if items else None]


def _progress(run: CommandRun) -> h.Node:
    left = "" if run.seconds_left is None else f", about {_rounded(run.seconds_left)} left"
    return [
        h.label(for_="bar")[run.what or "starting"],
        h.progress(id="bar", max="1", value=f"{run.done:.4f}")[f"{run.done:.0%}"],
        h.p[f"{run.done:.0%} done{left}"],
    ]


def _rounded(seconds: float) -> str:
    """Time left, no finer than it is known: whole seconds, tens of them, half minutes."""
    step = 1.0 if seconds < 20.0 else 10.0 if seconds < 120.0 else 30.0
    return duration(max(step * round(seconds / step), 1.0))


def _actions(run: CommandRun) -> Sequence[h.Node]:
    if run.state in GOING:
        return () if run.is_stopping else (action("Cancel", "/run/cancel", name=run.name),)
    again = link("Change and start again", address("/start", again=run.name))
    if run.state == "done":
        return link("See the answer", address("/answer", file=run.report)), again
    return action("Resume", "/run/resume", name=run.name), again


def cancel(request: Request, fields: Fields) -> Response:
    """Takes a run out of the queue, or stops it."""
    name = field(fields, "name")
    site_of(request).runs.cancel(name)
    return redirect(address("/run", name=name))


def resume(request: Request, fields: Fields) -> Response:
    """Puts a run that did not end well at the end of the queue."""
    name = field(fields, "name")
    site_of(request).runs.resume(name)
    return redirect(address("/run", name=name))


def show_runs(request: Request) -> Response:
    """All runs: those that go on first, then the latest."""
    runs = site_of(request).runs.runs()
    going = [run for run in runs if run.state in GOING]
    ended = [run for run in reversed(runs) if run.state not in GOING]
    n_more = len(ended) - MOST_ENDED
    parts = [
        _listed("Running and waiting", going) if going else None,
        _listed("Ended", ended[:MOST_ENDED]) if ended else None,
        h.p[f"and {n_more:,} earlier ones, whose files are in the folder"] if n_more > 0 else None,
        None if runs else notice("Nothing was run here yet."),
        h.div(".actions")[link("Run a command", "/start")],
    ]
    return html(document("Runs", heading("Runs"), parts, here="/runs"))


def _listed(title: str, runs: Sequence[CommandRun]) -> h.Element:
    rows = (
        h.tr[
            h.td[h.a(href=address("/run", name=run.name))[run.name]],
            h.td(class_=SAID[run.state][1])[SAID[run.state][0]],
            h.td(".when")[f"{run.done:.0%}" if run.state == "running" else run.ended[:16].replace("T", " ")],
            h.td(".words")[h.code[command_line(run.words)]],
        ]
        for run in runs
    )
    head = h.tr[(h.th(scope="col")[name] for name in ("Run", "State", "Done or ended (UTC)", "Command"))]
    return h.section[
        h.h2[title],
        h.div(".wide", tabindex="0", role="region", aria_label=title)[h.table[h.thead[head], h.tbody[rows]]],
    ]


ROUTES = (
    Route("/run", show_run),
    Route("/run/state", show_state),
    Route("/run/rows", show_rows),
    Route("/run/cancel", posted(cancel), methods=["POST"]),
    Route("/run/resume", posted(resume), methods=["POST"]),
    Route("/runs", show_runs),
)

"""A recording: whether a node is slow, which, since when, what that costs, and what can be done with the recording."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path

import htpy as h
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..core.errors import DataError, PrismError
from ..core.page import Block, Page, Table
from ..core.page_html import block_html, card_section, table_html
from ..core.units import format_s, seconds_of
from ..recorded.report import TraceFacts, recording_blocks, recording_title
from ..recorded.trace_facts import trace_facts
from ..trace.step_log import StepLog, without_warm_up
from ..trace.trace import Trace
from ..watch.rank_map import OWN, PhaseSteps, RankMap, rank_map
from ..watch.report import WatchReport
from ..watch.watch_steps import RESTART_COST_S, watch_steps, watched_recording
from .files import PACKED, screen_of, too_large
from .heat_map import heat_map
from .layout import action, as_shown, document, failure, heading, link, notice, picture
from .results import is_report
from .site import Site, address, asked, html, site_of
from .start_screen import command_line
from .words import is_inside

PROFILES = (*PACKED, ".pb", ".zip")  # of which a folder may hold one for each rank
MOST_FILES = 4096  # of a folder
WATCHED = ".watch.json"  # ending of the report that is kept next to the recording
HELD = 2  # recordings that are kept in memory


@dataclass(frozen=True)
class SeenRecording:
    """Steps and ranks of a recording.

    Attributes:
        facts: of the steps.
        report: slow phases; None: they cannot be looked for.
        problem: why.
        ranks: None: it has none.
    """

    facts: TraceFacts
    report: WatchReport | None
    problem: str
    ranks: RankMap | None


def show_recording(request: Request) -> Response:
    """The screen.

    Raises:
        PrismError: there is no such recording, or it cannot be read.
    """
    site, name = site_of(request), asked(request, "file")
    path = site.path(name)
    if not path.exists():
        raise DataError(f"file {name}: there is none of this name. It may have been moved or removed.")
    cost, remaining = request.query_params.get("restart-cost", ""), request.query_params.get("remaining", "")
    state = _state(path, site.folder)
    if why := too_large([(file, size) for file, _, size in state]):
        told = notice(f"{why} Watch its steps in a run.")
        return html(document(name, heading(name), told, _actions(site, name, path)))
    try:
        seen = _seen(path, name, state, cost.strip(), remaining.strip(), request.query_params.get("part"))
    except PrismError as error:
        summary = link("Summarise it in a run", address("/start", command="trace info", job=name))
        others = h.div(".actions")[_folder_of(site, path), summary, link("Back to the folder", "/")]
        return html(document(name, heading(name), failure(site.lines_of(error)), others), 400)
    shown = None if seen.report is None else _picture(site, path, name, state, cost or remaining, seen.report)
    return html(
        document(
            name,
            card_section(as_shown(seen.report.card())) if seen.report else h.h1[recording_title(seen.facts)],
            _ranks(seen, name),
            shown,
            _phases(seen, name, cost, remaining),
            [block_html(one, 2) for one in _blocks(seen)],
            _steps(seen),
            _actions(site, name, path),
        )
    )


def _blocks(seen: SeenRecording) -> Sequence[Block]:
    """Everything that is told of the steps."""
    return Page(None, seen.report.blocks() if seen.report else recording_blocks(seen.facts)).blocks


State = tuple[tuple[str, int, int], ...]  # name, time of change and size of each file


def _state(path: Path, folder: Path) -> State:
    """The files of a recording as the disk has them, so that what was read of them is read again when they change.

    Raises:
        DataError: one leads out of the folder that is served.
    """
    files = sorted(islice(path.rglob("*"), MOST_FILES)) if path.is_dir() else [path]
    if any(not is_inside(file, folder) for file in files):
        raise DataError(f"{path.name}: a link in it leads out of the folder that is served. Put the files into it.")
    found = [(file.name, file.stat()) for file in files if file.is_file()]
    return tuple((name, one.st_mtime_ns, one.st_size) for name, one in found)


@lru_cache(maxsize=HELD)
def _opened(path: Path, name: str, state: State) -> Trace | StepLog:
    return replace(watched_recording(path), source=name)


@lru_cache(maxsize=32)
def _seen(path: Path, name: str, state: State, cost: str, remaining: str, part: str | None) -> SeenRecording:
    """Everything that the screen shows of a recording.

    Raises:
        PrismError: it cannot be read, or what was asked is out of range.
    """
    cost_s = seconds_of("restart cost", cost) if cost else RESTART_COST_S
    if remaining and not (remaining.isascii() and remaining.isdecimal() and len(remaining) < 12):
        raise DataError(f"steps to come: {remaining[:40]!r}, but it must be a whole number")
    n_left = int(remaining) if remaining else None
    recording = _opened(path, name, state)
    kept, n_left_out = without_warm_up(recording)
    report, problem = None, ""
    try:
        report = watch_steps(recording, restart_cost_s=cost_s, remaining=n_left)
        options = {"--restart-cost": cost, "--remaining": remaining}
        words = ["watch", name, *(word for option, value in options.items() if value for word in (option, value))]
        report = report.changed(record=replace(report.record, command=command_line(words)))
    except DataError as error:
        if cost or remaining:
            raise
        problem = str(error)
    last = report.phases[-1] if report and report.phases else None
    phase = None if last is None else PhaseSteps(last.onset_step, last.end_step)
    return SeenRecording(trace_facts(kept, n_left_out), report, problem, rank_map(kept, part, phase))


def _picture(site: Site, path: Path, name: str, state: State, is_asked: str, report: WatchReport) -> h.Node:
    """The steps with their phases as the report draws them; the report is kept next to the recording for it."""
    place = site.path(f"{name.rstrip('/')}{WATCHED}")
    if not is_asked and not _is_kept(place, max((changed for _, changed, _ in state), default=0)):
        if place.exists() and not is_report(place):
            return notice(f"{place.name} is another file, so the picture of the steps cannot be kept there.")
        with suppress(OSError):
            report.save(place)
    if not place.is_file():
        return None
    return picture(address("/picture", file=site.name_of(place)), "Steps in seconds, the usual level and slow phases")


def _is_kept(path: Path, changed_ns: int) -> bool:
    return path.is_file() and path.stat().st_mtime_ns > changed_ns and is_report(path)


def _ranks(seen: SeenRecording, name: str) -> h.Element:
    found = seen.ranks
    if found is None:
        return h.section[
            h.h2["Is it a node?"],
            h.p[
                "The recording has no ranks, so it does not tell. A table with a row for each step and rank does, and so do "
                "profiles of several ranks in one folder."
            ],
        ]
    phases = [PhaseSteps(one.onset_step, one.end_step) for one in (seen.report.phases if seen.report else ())]
    return h.section[
        h.h2["Is it a node?"],
        h.p("#slow-rank", class_=f"verdict {'bad' if found.slow else 'plain' if found.peers == OWN else 'good'}")[
            found.verdict
        ],
        _quantities(found, name),
        heat_map(found, phases),
    ]


def _quantities(found: RankMap, name: str) -> h.Node:
    """Links to the other columns by which ranks can be compared."""
    if len(found.quantities) < 2:
        return None

    def to(part: str) -> h.Element:
        here = "true" if part == found.quantity else None
        return h.a(href=address("/recording", file=name, part=part), aria_current=here)[part or "step"]

    return h.nav(aria_label="Compared by")[h.ul(".row")[(h.li[to(part)] for part in found.quantities)]]


def _phases(seen: SeenRecording, name: str, cost: str, remaining: str) -> h.Element:
    """Form for the cost of a restart and the steps to come; why slow phases are not looked for, where they cannot be."""
    if seen.report is None:
        return h.section[h.h2["Slow phases"], notice(seen.problem, "unsure")]
    return h.section[
        h.h2["What it costs"],
        h.form(action="/recording", method="get")[
            h.input(type="hidden", name="file", value=name),
            h.div(".fields")[
                _asked(
                    "restart-cost",
                    "Cost of a restart",
                    cost,
                    "10min",
                    "From the last step before it to the first after it.",
                ),
                _asked("remaining", "Steps to come", remaining, "", "How long they take is told, with an interval."),
            ],
            h.div(".actions")[h.button(type="submit")["Compute again"]],
        ],
    ]


def _asked(name: str, label: str, value: str, usual: str, about: str) -> h.Element:
    return h.div(".field")[
        h.label(for_=name)[label],
        h.input(
            id=name,
            name=name,
            type="text",
            value=value or None,
            placeholder=usual or None,
            aria_describedby=f"{name}-about",
        ),
        h.p(".hint", id=f"{name}-about")[about],
    ]


def _steps(seen: SeenRecording) -> h.Node:
    """Numbers of the picture."""
    points = seen.report.points if seen.report else None
    if points is None:
        return None
    rows = list(zip(points.step, points.step_s, points.stands_for, strict=True))
    columns = {
        "step": lambda row: f"{row[0]:,}",
        "seconds": lambda row: format_s(row[1], 4),
        "stands for": lambda row: "" if row[2] == 1 else f"{row[2]:,} steps",
    }
    return h.details[h.summary["Steps in numbers"], table_html(Table.of("Steps", rows, columns))]


def _actions(site: Site, name: str, path: Path) -> h.Element:
    jobs = [file.name for file in site.results.jobs()][:1]
    has_head = path.is_file() and screen_of(path) == "/job"
    log = name if has_head or not jobs else f"{jobs[0]}={name}"
    return h.section[
        h.h2["Go on"],
        h.div(".actions")[
            action("Predict the next steps", "/runs", command="trace predict", job=name),
            action("Watch in a run", "/runs", command="watch", job=name),
            link("Ask what if", address("/start", command="trace what-if", job=name)),
            link("Calibrate a job with it", address("/start", command="calibrate", log=log)),
            link("Make a job of it", address("/job", file=name)) if has_head else None,
            _folder_of(site, path),
        ],
    ]


def _folder_of(site: Site, path: Path) -> h.Node:
    """A link to the folder of profiles that a file is one of."""
    folder = path.parent
    if path.is_dir() or folder == site.folder:
        return None
    alike = [one for one in _siblings(folder) if one.suffix == path.suffix and not one.name.endswith(WATCHED)]
    if len(alike) < 2 or path.suffix not in PROFILES:
        return None
    return link(f"All {len(alike):,} of {folder.name}", address("/recording", file=site.name_of(folder)))


def _siblings(folder: Path) -> Sequence[Path]:
    return [one for one in islice(folder.iterdir(), MOST_FILES) if one.is_file()]


ROUTES = (Route("/recording", show_recording),)

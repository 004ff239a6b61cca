"""The first screen: saved reports with their figures, a filter, pins, a place to drop a file, and what runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import htpy as h
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..core.units import format_bytes, format_s
from .files import open_file, send_picture, take_in
from .layout import action, document, heading, left_out, link, notice
from .results import SavedFile, SavedReport
from .site import Fields, Site, address, field, html, posted, redirect, site_of

PAGE_ROWS = 50
MOST_LISTED = 20  # jobs, and other files
FIRST = "llama2_7b_fsdp_64"  # the example that an empty folder offers: the smallest that ships


def show_folder(request: Request) -> Response:
    """The screen."""
    site = site_of(request)
    reports = site.results.reports()
    title = f"Results in {site.folder.name or site.folder}"
    listed = _listed(site, reports) if reports else _empty()
    told = (_unnamed(site.results.n_unnamed()), left_out(site.results.beyond))
    return html(
        document("Results", heading(title), *told, _drop(), _runs(site), listed, _inputs(site, reports), here="/")
    )


def show_rows(request: Request) -> Response:
    """The rows that a filter leaves, for htmx."""
    site = site_of(request)
    words, start = request.query_params.get("filter", ""), request.query_params.get("start", "0")
    n_before = int(start) if start.isdecimal() and len(start) < 8 else 0
    return html(_rows(site, _filtered(site.results.reports(), words), words, n_before))


def pin(request: Request, fields: Fields) -> Response:
    """Pins a report, or takes the pin away."""
    site, name = site_of(request), field(fields, "file")
    site.existing(name)
    site.results.pin(name, field(fields, "pinned") == "yes")
    if request.headers.get("hx-request") != "true":
        return redirect(address("/answer", file=name))
    return html(_rows(site, site.results.reports(), "", 0))


def _drop() -> h.Element:
    about = "A report, job file (YAML, TOML), launch script, configuration, training log, profile or trace."
    return h.section(".drop", aria_labelledby="drop-label")[
        h.label("#drop-label", for_="drop-file")["Add files: choose them here or drop them on this frame"],
        h.input("#drop-file", type="file", multiple=True),
        h.p(".hint")[about],
        h.p(role="status"),
    ]


def _runs(site: Site) -> h.Node:
    """Lists what waits and runs, with links to it."""
    going = [run for run in site.runs.runs() if run.state in ("waiting", "running")]
    if not going:
        return None
    items = (
        h.li[h.a(href=address("/run", name=run.name))[run.name], f": {run.state}, {run.done:.0%} done"] for run in going
    )
    return h.section[h.h2["Running and waiting"], h.ul[items]]


def _empty() -> h.Element:
    return h.section[
        notice("No reports are here yet."),
        h.p["Predict an example, or add a file above. Reports that commands write into this folder appear here."],
        h.div(".actions")[
            action(f"Predict {FIRST}", "/runs", command="predict", job=FIRST), link("Write a job", "/job")
        ],
    ]


def _listed(site: Site, reports: Sequence[SavedReport]) -> h.Element:
    return h.section[
        h.h2[f"{len(reports):,} report{'s' * (len(reports) > 1)}"],
        h.label(for_="filter")["Filter by job, kind, command or file"],
        h.input(
            {"hx-get": "/rows", "hx-trigger": "input changed delay:300ms", **TO_ROWS},
            id="filter",
            name="filter",
            type="search",
            autocomplete="off",
        ),
        h.form(action="/compare", method="get")[
            _rows(site, reports, "", 0), h.div(".actions")[h.button(type="submit")["Compare the chosen reports"]]
        ],
    ]


def _filtered(reports: Iterable[SavedReport], text: str) -> list[SavedReport]:
    words = text.lower().split()
    return [
        one
        for one in reports
        if all(word in f"{one.job} {one.kind} {one.command} {one.file.name}".lower() for word in words)
    ]


FIGURES = ("GPUs", "p50 (90 % interval)", "p95", "MFU", "Memory per GPU")
COLUMNS = ("", "Job", "Report", *FIGURES, "When (UTC)", "Made by", "")
TO_ROWS = {"hx-target": "#rows", "hx-swap": "outerHTML"}  # where htmx puts an answer


def _rows(site: Site, reports: Sequence[SavedReport], words: str, start: int) -> h.Element:
    pinned = set(site.results.pinned())
    ordered = sorted(reports, key=lambda one: one.file.name not in pinned)
    shown = ordered[start : start + PAGE_ROWS]
    left = len(ordered) - start - len(shown)
    following = address("/rows", filter=words, start=str(start + PAGE_ROWS))
    return h.div("#rows")[
        h.div(".wide", tabindex="0", role="region", aria_label="Reports")[
            h.table[
                h.thead[h.tr[(h.th(scope="col")[name or h.span(".unseen")["choose or pin"]] for name in COLUMNS)]],
                h.tbody[(_row(one, one.file.name in pinned) for one in shown)],
            ]
        ],
        h.p(role="status")[f"{start + len(shown):,} of {len(ordered):,} shown" if ordered else "None fits the filter."],
        left_out(site.results.beyond) if words else None,
        h.button({"hx-get": following, **TO_ROWS}, type="button")[f"Next {min(left, PAGE_ROWS)}"] if left > 0 else None,
    ]


def _row(one: SavedReport, is_pinned: bool) -> h.Element:
    name = one.file.name
    box = h.input(type="checkbox", name="file", value=name, aria_label=f"choose {name}")
    title = h.a(href=address("/answer", file=name))[one.job or name]
    pins = h.button(
        {"hx-post": "/pin", "hx-vals": json.dumps({"file": name, "pinned": "no" if is_pinned else "yes"}), **TO_ROWS},
        id=f"pin {name}",  # where htmx leaves the focus
        type="button",
        aria_label=f"{'unpin' if is_pinned else 'pin'} {name}",
    )["Unpin" if is_pinned else "Pin"]
    if one.problem:
        return h.tr(".bad")[h.td, h.td[name], h.td(colspan=str(len(COLUMNS) - 3))[one.problem], h.td]
    return h.tr[
        h.td[box],
        h.td[title, h.div(".hint")[name] if one.job else None],
        h.td[one.kind],
        (h.td(".number")[text] for text in _figures(one)),
        h.td(".when")[one.file.when],
        h.td(".words")[h.code[one.command or "Python"]],
        h.td[pins],
    ]


def _figures(one: SavedReport) -> tuple[str, ...]:
    """GPUs, p50 with its interval, p95, MFU, memory; empty where a report has none."""
    n_devices, mfu = one.number("job", "n_devices"), one.number("mfu")
    p50, p95 = one.number("step_time_s", "p50"), one.number("step_time_s", "p95")
    low, high = one.number("model_band_s", "p5"), one.number("model_band_s", "p95")
    memory = one.number("memory_bytes_per_gpu", "total")
    interval = "" if low is None or high is None else f" ({format_s(low, 2)} to {format_s(high, 2)})"
    return (
        "" if n_devices is None else f"{n_devices:,.0f}",
        "" if p50 is None else format_s(p50, 3) + interval,
        "" if p95 is None else format_s(p95, 3),
        "" if mfu is None else f"{mfu:.1%}",
        "" if memory is None else format_bytes(memory, 3) + ("" if one.data.get("fits", True) else ", does not fit"),
    )


def _unnamed(n: int) -> h.Node:
    if not n:
        return None
    what = "1 file has a name" if n == 1 else f"{n:,} files have names"
    rest = "with letters that cannot be typed, such as line ends. Rename them to see them here."
    return notice(f"{what} {rest}", "unsure")


def _inputs(site: Site, reports: Sequence[SavedReport]) -> list[h.Node]:
    """Jobs, and files that a job can be made of or that recorded steps are in."""
    jobs, others = site.results.inputs(reports)
    return [_latest("Job files", "/job", jobs), _latest("Logs, scripts, tables and profiles", "/open", others)]


def _latest(title: str, to: str, files: Sequence[SavedFile]) -> h.Node:
    if not files:
        return None
    shown = files[:MOST_LISTED]
    items = (h.li[h.a(href=address(to, file=file.name))[file.name], f" {file.when}"] for file in shown)
    n_more = len(files) - len(shown)
    more = h.p(".hint")[f"The latest {len(shown)}; {n_more:,} more are in the folder."] if n_more else None
    return h.section[h.h2[title], h.ul[items], more]


ROUTES = (
    Route("/", show_folder),
    Route("/rows", show_rows),
    Route("/pin", posted(pin), methods=["POST"]),
    Route("/open", open_file),
    Route("/files", take_in, methods=["PUT"]),
    Route("/picture", send_picture),
)

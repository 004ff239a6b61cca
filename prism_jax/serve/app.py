"""The application: all screens, one answer for every error, and the files that the browser loads."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ..core.errors import PrismError
from ..core.page_html import STYLE
from ..core.write_file import FAULTS
from .guard import Guard, Keys, RefusedError, bug
from .layout import document, failure, heading, link
from .site import Site, html, lines_of

STATIC = Path(__file__).with_name("static")
SCREENS = (  # modules of this folder, each with ROUTES
    "folder_screen",
    "job_screen",
    "start_screen",
    "run_screen",
    "answer_screen",
    "recording_screen",
    "compare_screen",
)


def make_app(site: Site, keys: Keys) -> Guard:
    """The ASGI application for a folder."""
    app = Starlette(
        routes=[*_routes()],
        exception_handlers={
            PrismError: _wrong_input,
            OSError: _fault,
            HTTPException: _unknown,
            RefusedError: _refused,
            ClientDisconnect: lambda request, error: Response(status_code=400),  # nobody waits for the answer
            Exception: _bug,
        },
    )
    app.state.site = site
    return Guard(app, keys)


def _routes() -> Iterable[Route | Mount]:
    for name in SCREENS:
        yield from import_module(f".{name}", __package__).ROUTES
    yield Route("/static/report.css", _style)
    yield Mount("/static", StaticFiles(directory=STATIC))


def _style(_request: Request) -> Response:
    """The style of reports, as in their HTML files."""
    return Response(STYLE, media_type="text/css")


def _wrong_input(request: Request, error: Exception) -> Response:
    """An error in its own words, with status 400; a part of a page where htmx asked for one."""
    assert isinstance(error, PrismError)
    return _failed(request, lines_of(error), 400)


def _fault(request: Request, error: Exception) -> Response:
    """A full disk and the like; a name that the system does not take is wrong input."""
    assert isinstance(error, OSError)
    folder = request.app.state.site.folder
    if not folder.is_dir():
        gone = f"{folder}: the folder that is served is gone. Put it back, or end prism-jax serve (Ctrl-C) and name another."
        return _failed(request, [gone], 400)
    place = f"{error.filename}: " if error.filename else ""
    return _failed(request, [f"{place}{error.strerror or error}"], 507 if error.errno in FAULTS else 400)


def _failed(request: Request, lines: list[str], status: int) -> Response:
    shown = failure(lines)
    if request.headers.get("hx-request") == "true":
        return html(shown, status)
    if request.method == "PUT":
        return PlainTextResponse("\n".join(lines), status)
    return html(document("Not done", heading("Not done"), shown, link("Back to the folder", "/")), status)


def _unknown(request: Request, error: Exception) -> Response:
    """No such screen, or one that is not asked in this way."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    what = "This address has no screen." if status == 404 else f"This address is not asked by {request.method}."
    return _failed(request, [what], status)


def _bug(request: Request, error: Exception) -> Response:
    """An error that no input should cause; the terminal says it, too."""
    return _failed(request, [bug(error)], 500)


def _refused(_request: Request, error: Exception) -> Response:
    """A body beyond its bound."""
    assert isinstance(error, RefusedError)
    return PlainTextResponse(error.why, error.status)

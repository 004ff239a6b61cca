"""The folder that is served, its runs, and how requests are read and answered: shared by all screens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import htpy as h
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ..core.errors import ConfigError, DataError, PrismError
from ..core.write_file import write_bytes
from .guard import RefusedError

if TYPE_CHECKING:
    from .results import Results
    from .runs import Runs

MOST_FORM, MOST_FIELDS = 2**20, 1000  # bytes and fields of a form
MOST_NAME = 200


@dataclass(frozen=True)
class Site:
    """The folder that is served.

    Attributes:
        folder: its absolute path.
        results: what is in it.
        runs: what runs or waits in it.
    """

    folder: Path
    results: Results
    runs: Runs

    def path(self, name: str) -> Path:
        """The file or folder below DIR that a request names.

        Raises:
            DataError: no name, one that leads out of DIR, also by a link, or that of a hidden file.
        """
        parts = Path(name).parts
        if not name or "\0" in name or len(name) > 4 * MOST_NAME or Path(name).is_absolute():
            raise DataError(f"file {name[:MOST_NAME]!r}: no name of a file in this folder")
        if not name.isprintable():
            raise DataError(f"file {name!r}: its name has letters that cannot be typed. Rename it.")
        if any(part == ".." or part.startswith(".") for part in parts):
            raise DataError(f"file {name}: it is not in the folder that is served, or hidden")
        found = self.folder / name
        try:
            inside = found.resolve().is_relative_to(self.folder.resolve())
        except (OSError, RuntimeError):
            inside = False
        if not inside:
            raise DataError(f"file {name}: it leads out of the folder that is served")
        return found

    def existing(self, name: str) -> Path:
        """As `path`, of a file that is there.

        Raises:
            DataError: as `path`, or there is none.
        """
        found = self.path(name)
        if not found.is_file():
            raise DataError(f"file {name}: there is none of this name. It may have been moved or removed.")
        return found

    def name_of(self, path: Path) -> str:
        """How requests name a file below DIR."""
        return path.relative_to(self.folder).as_posix()

    def lines_of(self, error: PrismError) -> list[str]:
        """An error in its own words, a line for each mistake; files below DIR are named as requests do."""
        return [line.replace(f"{self.folder}/", "") for line in lines_of(error)]


def lines_of(error: PrismError) -> list[str]:
    """An error in its own words, a line for each mistake."""
    return str(error).splitlines() if isinstance(error, ConfigError) else [str(error)]


def numbered(name: str) -> Iterator[str]:
    """A name of a file, and then the same with numbers before its endings: steps.csv.gz, steps-2.csv.gz, ..."""
    path = Path(name)
    stem, dot, ending = path.name.partition(".")
    return (name if n == 1 else path.with_name(f"{stem}-{n}{dot}{ending}").as_posix() for n in count(1))


def site_of(request: Request) -> Site:
    """The site that a request is for."""
    return request.app.state.site


def asked(request: Request, name: str) -> str:
    """The value of a query of the address.

    Raises:
        DataError: it is missing.
    """
    value = request.query_params.get(name)
    if value is None:
        raise DataError(f"the address has no {name}=")
    return value


def address(path: str, **query: str) -> str:
    """An address of this site: "/answer?file=a.json"."""
    return f"{path}?{urlencode(query)}" if query else path


Fields = Mapping[str, list[str]]


def posted(handler: Callable[[Request, Fields], Response]) -> Callable[[Request], Any]:
    """An endpoint for forms: reads the fields within bounds, and calls `handler` on a thread.

    Raises:
        RefusedError: the form is too large or is none.
    """

    @wraps(handler)
    async def endpoint(request: Request) -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_FORM:
                raise RefusedError(413, "This form is larger than forms may be (1 MiB).")
        try:
            pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
        except ValueError:
            raise RefusedError(400, "The body is no form.") from None
        fields: dict[str, list[str]] = {}
        for name, value in pairs:
            fields.setdefault(name, []).append(value)
        return await run_in_threadpool(handler, request, fields)

    return endpoint


def field(fields: Fields, name: str, default: str | None = None) -> str:
    """The last value of a field.

    Raises:
        DataError: it is missing and has no default.
    """
    if values := fields.get(name):
        return values[-1]
    if default is None:
        raise DataError(f"the form has no field {name}")
    return default


def html(node: h.Node, status: int = 200) -> HTMLResponse:
    """An answer of HTML: a page, or a part that htmx puts into one."""
    return HTMLResponse(str(h.fragment[node]).encode("utf-8", "backslashreplace"), status)  # halves of surrogate pairs


def redirect(to: str) -> RedirectResponse:
    """Sends the browser to another address of this site after a post."""
    return RedirectResponse(to, 303)


def kept(path: Path, data: bytes) -> None:
    """Writes a file below DIR, whole or not at all, with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, data)

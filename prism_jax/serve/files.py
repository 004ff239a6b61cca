"""Files that come in and go out: those that are dropped on the page, pictures, and downloads of reports."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from ..core.errors import DataError, PrismError
from ..core.read_file import GZIP
from ..core.units import format_bytes
from ..core.write_file import atomic_path
from ..launch.config_files import NoHeadError
from ..launch.launch_files import heads_of_file, is_script
from .report_job import chosen_plan, of_reports, report_in
from .results import OWN, is_report
from .site import MOST_NAME, Site, address, asked, kept, numbered, site_of
from .words import is_inside

PLAIN_NAME = re.compile(r"[^A-Za-z0-9_.+-]+")  # what is not kept of the name of a file that comes in
FORMS = {"json": "JSON", "html": "HTML", "yaml": "Job (YAML)", "arguments": "Arguments of the framework"}
OF_A_JOB = ("yaml", "arguments")
TYPES = {".json": "application/json", ".html": "text/html", ".yaml": "application/yaml", ".zip": "application/zip"}
SVG = "image/svg+xml"
FIRST_BYTES = 4096
LARGE = 20 * 2**20  # bytes of a log or recording that is not read while somebody waits
PACKED, LARGE_PACKED = (".gz", ".parquet", ".json", ".tar", ".db", ".sqlite", ".nsys-rep"), 4 * 2**20
TABLES = (".csv", ".tsv", ".parquet", ".jsonl")  # of steps, which have no head
JOBS = (".yaml", ".yml", ".toml")  # of jobs, or of configurations of trainers
DRAWING = Lock()  # settings of matplotlib are those of the process
COMING: set[Path] = set()  # files that are being written, whose names are taken
OF_PICTURES = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}


async def take_in(request: Request) -> Response:
    """Writes the body as it comes to a new file in DIR, and answers with the address of the screen that shows it.

    Raises:
        DataError: the name is none of a file.
    """
    site = site_of(request)
    target = free(site, asked(request, "name"))
    COMING.add(target)
    try:
        with atomic_path(target) as temporary, temporary.open("wb") as opened:
            async for chunk in request.stream():
                opened.write(chunk)
    finally:
        COMING.discard(target)
    return PlainTextResponse(address("/open", file=site.name_of(target)), 201)


def free(site: Site, name: str) -> Path:
    """A path in DIR for a file that comes in: its own name, or with a number if that is taken."""
    plain = PLAIN_NAME.sub("_", Path(name.replace("\\", "/")).name).strip("._")[-MOST_NAME:]
    if not plain:
        raise DataError(f"file {name[:MOST_NAME]!r}: no name of a file")
    return next(path for path in map(site.path, numbered(plain)) if not path.exists() and path not in COMING)


def open_file(request: Request) -> Response:
    """Sends the browser to the screen for a file: a report, a job or what one can be made of, a recording."""
    site = site_of(request)
    name = asked(request, "file")
    return RedirectResponse(address(screen_of(site.existing(name)), file=name), 303)


def too_large(files: Sequence[tuple[str, int]]) -> str:
    """Why files are not read while somebody waits; empty if they are.

    Args:
        files: their names, and sizes in bytes.
    """
    total, packed = sum(size for _, size in files), sum(size for name, size in files if name.endswith(PACKED))
    if total <= LARGE and packed <= LARGE_PACKED:
        return ""
    return f"{format_bytes(total)}: too large to be read while you wait."


def screen_of(path: Path) -> str:
    """Address of the screen that shows a file of this content."""
    if is_report(path):
        return "/answer"
    if path.suffix in JOBS:
        return "/job"
    with path.open("rb") as opened:
        start = opened.read(FIRST_BYTES)
    if (
        too_large([(path.name, path.stat().st_size)])
        or b"\0" in start
        or start.startswith(GZIP)
        or path.suffix in TABLES
    ):
        return "/recording"
    try:
        return "/job" if heads_of_file(path) else "/recording"
    except NoHeadError:
        return "/recording"
    except PrismError:  # of a script or a configuration: the screen of jobs shows what is missing
        return "/job" if is_script(path) else "/recording"


@of_reports
def send_picture(request: Request) -> Response:
    """The picture of a saved report as SVG, drawn once and kept next to the lock of DIR.

    Raises:
        DataError: the file is no report, or reports of its kind have no picture.
    """
    site, name = site_of(request), asked(request, "file")
    found = site.existing(name).stat()
    digest = hashlib.blake2b(f"{name} {found.st_mtime_ns} {found.st_size}".encode(), digest_size=12).hexdigest()
    drawn = site.folder / OWN / "pictures" / f"{digest}.svg"
    if not is_inside(drawn, site.folder):
        raise DataError(f"{OWN}: a link in it leads out of the folder that is served. Remove {OWN}/pictures.")
    if not drawn.is_file():
        from ..core.picture import figure_bytes  # matplotlib is heavy

        with DRAWING:
            if not drawn.is_file():
                kept(drawn, figure_bytes(site.results.opened(name).figure(), "svg"))
    return Response(drawn.read_bytes(), headers=OF_PICTURES, media_type=SVG)


@of_reports
def download(request: Request) -> Response:
    """One of `FORMS` of a report; of a search, `plan=` is the number of the plan of its job.

    Raises:
        DataError: there is no such form, or the report has none of it.
    """
    site, name, form = site_of(request), asked(request, "file"), asked(request, "as")
    path = site.existing(name)
    if form == "json":
        report_in(site, name)  # what is no report is refused in its own words
        return _sent(f"{path.stem}.json", path.read_bytes())
    if form == "html":
        with DRAWING:
            return _sent(f"{path.stem}.html", site.results.opened(name).to_html().encode())
    if form not in OF_A_JOB:
        raise DataError(f"as={form[:20]}: a report is downloaded as {', '.join(FORMS)}")
    job, changes = chosen_plan(site, name, request.query_params.get("plan", ""))
    if form == "yaml":
        return _sent(f"{path.stem}.yaml", job.text(changes).encode())
    _, made = job.arguments(changes)
    return _packed(path.stem, made.files)


def _packed(stem: str, files: Mapping[str, str]) -> Response:
    """A file as it is, several in one archive."""
    if len(files) == 1:
        [(name, text)] = files.items()
        return _sent(name, text.encode())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return _sent(f"{stem}-arguments.zip", packed.getvalue())


def _sent(name: str, content: bytes) -> Response:
    """A file that the browser saves and does not show."""
    plain = "".join(one if (one.isalnum() and one.isascii()) or one in "._-" else "_" for one in name)
    headers = {"content-disposition": f'attachment; filename="{plain}"'}
    return Response(content, headers=headers, media_type=TYPES.get(Path(name).suffix, "text/plain; charset=utf-8"))

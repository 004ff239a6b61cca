"""Reports as files to take away: JSON, HTML, their job as YAML, and as the arguments of its framework."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..core.errors import DataError
from .report_job import chosen_plan, of_reports, report_in
from .site import asked, site_of

FORMS = {"json": "JSON", "html": "HTML", "yaml": "Job (YAML)", "arguments": "Arguments of the framework"}
OF_A_JOB = ("yaml", "arguments")
TYPES = {".json": "application/json", ".html": "text/html", ".yaml": "application/yaml", ".zip": "application/zip"}


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


ROUTES = (Route("/download", download),)

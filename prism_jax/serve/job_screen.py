"""The screen of a job: its YAML with marks at wrong lines, what `check` says of it as one types, and what to do with it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from threading import Lock

import htpy as h
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..core.errors import ConfigError, DataError
from ..core.read_file import read_text
from ..core.write_file import write_text
from ..job.edit_job import with_field
from ..job.load_job import MAX_BYTES
from .job_begin import NEW, REMEDY, copy_example, job_path, new_page, write_new
from .job_form import SET, form_part
from .job_text import CheckedText, check_part, checked
from .layout import document, heading, hidden, link, notice
from .site import Fields, Site, address, field, html, posted, redirect, site_of

SAVING = Lock()  # between looking at a file and replacing it
THEN = {"": "Save", "predict": "Save and predict", "search": "Save and search plans", "sweep": "Save and sweep"}


def show_job(request: Request) -> Response:
    """The screen: of a file, or of a new job."""
    site = site_of(request)
    name = request.query_params.get("file")
    if name is None:
        return html(new_page())
    text = read_text(site.existing(name), MAX_BYTES, REMEDY)
    told = notice(f"Saved {name}.", "good") if request.query_params.get("saved") == "yes" else None
    return html(_page(site, name, text, digest_of(text), told))


def digest_of(text: str) -> str:
    """A short digest, which tells whether a file is still as it was read."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _page(site: Site, name: str, text: str, digest: str, *told: h.Node) -> h.Element:
    """The screen of a text; `digest` is that of the file it was read from, empty: of none."""
    return document(name, heading(name), told, editor(checked(site, name, plain(text)), name, digest))


def plain(text: str) -> str:
    """The text with line ends as files have them: forms send others."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def editor(found: CheckedText, name: str, digest: str, told: str = "") -> h.Element:
    """The text of a job next to its form, what it says, and what to do with it.

    Args:
        name, digest: file that the text is of, and the digest of what was read from it; empty: the file is new.
        told: why a change of a field was not made.
    """
    return h.div("#editor.two")[
        h.form("#job", action="/job/save", method="post")[
            hidden({"file": name, "digest": digest}),
            h.label(for_="text")["Job file (TOML)" if name.endswith(".toml") else "Job file (YAML)"],
            h.textarea(
                {
                    "hx-post": "/job/check",
                    "hx-trigger": "input changed delay:400ms",
                    "hx-target": "#check",
                    "hx-swap": "outerHTML",
                    "hx-sync": "#job:replace",
                    "hx-include": "#job",
                },
                id="text",
                name="text",
                spellcheck="false",
                autocomplete="off",
                aria_describedby="text-hint verdict",
                rows="24",
            )["\n", found.text],
            h.p("#text-hint.hint")[
                "It is checked as you type, without a simulation. Nothing is saved until you save it."
            ],
            check_part(found),
            h.label(for_="as")["Save under this name"],
            h.input("#as", name="as", value=name, required=True, autocomplete="off"),
            h.div(".actions")[
                (h.button(type="submit", name="then", value=then)[words] for then, words in THEN.items())
            ],
        ],
        form_part(found, told),
    ]


def check_text(request: Request, fields: Fields) -> Response:
    """Answers with what a text says and with its form, as parts for htmx."""
    name = field(fields, "file", NEW)
    found = checked(site_of(request), name, plain(field(fields, "text")))
    return html([check_part(found), form_part(found, comes_along=True)])


def set_field(request: Request, fields: Fields) -> Response:
    """Sets a field of the form in the text, or takes it out where nothing was chosen, as a part for htmx.

    Raises:
        DataError: no field is named.
    """
    site, text, name = site_of(request), plain(field(fields, "text")), field(fields, "file", NEW)
    named = next((one for one in fields if one.startswith(SET)), None)
    if named is None:
        raise DataError("the form names no field")
    path, value = named.removeprefix(SET), field(fields, named).strip()
    told = ""
    try:
        text = with_field(text, name, tuple(path.split(".")), value or None)
    except ConfigError as error:
        told = f"{path} was not changed: {error.mistakes[0].text}"
    return html(editor(checked(site, name, text), name, field(fields, "digest", ""), told))


def save(request: Request, fields: Fields) -> Response:
    """Writes the text to its file, if that is as it was read or is new, and goes on to what was asked for.

    Raises:
        DataError: the name is none of a job file, or the file cannot be written.
    """
    site, text, name = site_of(request), plain(field(fields, "text")), field(fields, "file", NEW)
    target, then = field(fields, "as", name), field(fields, "then", "")
    path = job_path(site, target)
    digest = field(fields, "digest", "") if target == name else ""
    with SAVING:
        if is_other(path, digest):
            return html(_page(site, name, text, field(fields, "digest", ""), _conflict(target, digest)), 409)
        write_text(path, text)
    found = checked(site, target, text)
    if then and found.mistakes:
        told = notice(f"Saved {target}. It has mistakes, so nothing was started.", "bad")
        return html(_page(site, target, text, digest_of(text), told), 400)
    if then == "predict":
        return redirect(address("/run", name=site.runs.submit(["predict", target]).name))
    if then in THEN and then:
        return redirect(address("/start", command=then, job=target))
    return redirect(address("/job", file=target, saved="yes"))


def is_other(path: Path, digest: str) -> bool:
    """Whether a file holds something else than what was read; an empty digest: whether it is there at all."""
    if not path.exists():
        return False
    return not digest or digest != digest_of(read_text(path, MAX_BYTES, REMEDY))


def _conflict(target: str, digest: str) -> h.Element:
    """A file that would have been lost, with ways out."""
    what = "was changed by someone else since it was read here" if digest else "is there already"
    return notice(
        f"Not saved: {target} {what}. Your text is below. Save it under another name, or open the file as it is now.",
        "bad",
        link("Open the file as it is", address("/job", file=target)),
    )


ROUTES = (
    Route("/job", show_job),
    Route("/job/check", posted(check_text), methods=["POST"]),
    Route("/job/set", posted(set_field), methods=["POST"]),
    Route("/job/new", posted(write_new), methods=["POST"]),
    Route("/job/copy", posted(copy_example), methods=["POST"]),
    Route("/job/save", posted(save), methods=["POST"]),
)

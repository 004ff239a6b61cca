"""The screen of a job: its YAML with marks at wrong lines, what `check` says of it as one types, and what to do with it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from threading import Lock

import htpy as h
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..core.errors import ConfigError, DataError
from ..core.read_file import read_text
from ..core.write_file import write_text
from ..framework.frameworks import FRAMEWORKS
from ..job.edit_job import with_field
from ..job.load_job import MAX_BYTES
from ..launch.launch_files import states_job
from ..prediction.new_job import CLUSTER, MODEL, N_DEVICES, new_job
from ..system.catalog import cluster_names
from ..tables.streams import example_files
from ..tables.yaml_toml import read_toml, read_yaml
from ..workload.catalog import workload_names
from .import_part import import_page
from .job_form import SET, THEN, digest_of, editor, form_part, plain
from .job_text import MOST_DEVICES, check_part, checked, gpus_of
from .layout import choice, document, form, heading, link, notice
from .site import Fields, Site, address, field, html, posted, redirect, site_of

ENDINGS = (".yaml", ".yml", ".toml")
NEW = "job.yaml"
REMEDY = "A job is a page of YAML or TOML."
NO_FRAMEWORK = "not stated: the average of all"
SAVING = Lock()  # between looking at a file and replacing it


def show_job(request: Request) -> Response:
    """The screen: of a file, or of a new job."""
    site = site_of(request)
    name = request.query_params.get("file")
    if name is None:
        return html(new_page())
    if request.query_params.get("as") != "job" and not _is_job(site.existing(name)):
        return html(import_page(request, name))
    text = read_text(site.existing(name), MAX_BYTES, REMEDY)
    told = notice(f"Saved {name}.", "good") if request.query_params.get("saved") == "yes" else None
    return html(_page(site, name, text, digest_of(text), told))


def _is_job(path: Path) -> bool:
    """Whether a file is a job file, or one that cannot be read yet, and not what a job can be made of."""
    if path.suffix not in ENDINGS:
        return False
    try:
        text = read_text(path, MAX_BYTES, REMEDY)
        found = read_toml(text, path.name) if path.suffix == ".toml" else read_yaml(text, path.name)
        return not found.data.keys().isdisjoint(("plan", "cluster")) or not states_job(path)
    except ConfigError:
        return True


def _page(site: Site, name: str, text: str, digest: str, *told: h.Node) -> h.Element:
    """The screen of a text; `digest` is that of the file it was read from, empty: of none."""
    return document(name, heading(name), told, editor(checked(site, name, plain(text)), name, digest))


def new_page() -> h.Element:
    """The screen for a job that is not there yet."""
    return document(
        "New job",
        heading("New job"),
        h.p["A job is a model, a cluster, and the plan by which the model is trained there. It is one text file."],
        h.section[
            h.h2["From a model and a cluster"],
            form(
                "/job/new",
                choice("Model", "model", _named(workload_names()), MODEL),
                choice("Cluster", "cluster", _named(cluster_names()), CLUSTER),
                h.label(for_="gpus")["GPUs"],
                h.input("#gpus", name="gpus", type="number", min="1", max=str(MOST_DEVICES), value=str(N_DEVICES)),
                choice("Framework", "framework", {"": NO_FRAMEWORK, **_named(FRAMEWORKS.names)}),
                _name("new-as", "File", NEW),
                h.p(".hint")["The plan is the first that fits into memory. It is a start, not a recommendation."],
                button="Write the job file",
            ),
        ],
        h.section[
            h.h2["From a job that ships"],
            form(
                "/job/copy",
                choice("Job", "example", _named(sorted(example_files()))),
                _name("copy-as", "File of the copy", ""),
                h.p("#copy-as-hint.hint")["Left empty, the file has the name of the job."],
                button="Copy it into this folder",
            ),
        ],
        h.section[
            h.h2["From a launch script, a configuration or a training log"],
            h.p["Add the file in the ", h.a(href="/")["folder"], ": it is read there, and asks for what is missing."],
        ],
        here="/job",
    )


def _named(values: Iterable[str]) -> dict[str, str]:
    """Options that are written as they are."""
    return {one: one for one in values}


def _name(key: str, label: str, value: str) -> list[h.Node]:
    described = f"{key}-hint" if not value else None
    return [
        h.label(for_=key)[label],
        h.input(id=key, name="as", value=value, required=bool(value), autocomplete="off", aria_describedby=described),
    ]


def write_new(request: Request, fields: Fields) -> Response:
    """Writes a new job file, and shows it.

    Raises:
        DataError: the name is none, or taken; the number of GPUs is none.
        SpecError: an unknown model, cluster or framework, or no plan is possible.
    """
    site, name, gpus = site_of(request), field(fields, "as", NEW), field(fields, "gpus", str(N_DEVICES))
    path = _free(site, name)
    n_gpus = gpus_of(gpus)
    model, cluster = field(fields, "model", MODEL), field(fields, "cluster", CLUSTER)
    if Path(model).suffix == ".json":
        known = "choose a model that ships. A config.json is named in the file: hf_config."
        raise DataError(f"model {model[:200]}: {known}")
    text, _ = new_job(Path(name), model, cluster, n_gpus, field(fields, "framework", "") or None)
    _write_new(path, name, text)
    return redirect(address("/job", file=name, saved="yes"))


def copy_example(request: Request, fields: Fields) -> Response:
    """Copies a job that ships into the folder, and shows it.

    Raises:
        DataError: there is no such job, or the name is none or taken.
    """
    site, example, shipped = site_of(request), field(fields, "example"), example_files()
    if example not in shipped:
        raise DataError(f"job {example[:200]!r}: no job of this name ships")
    name = field(fields, "as", "") or shipped[example].name
    path = _free(site, name)
    _write_new(path, name, read_text(shipped[example], MAX_BYTES, REMEDY))
    return redirect(address("/job", file=name, saved="yes"))


def _free(site: Site, name: str) -> Path:
    path = job_path(site, name)
    _check_free(path, name)
    return path


def _check_free(path: Path, name: str) -> None:
    if path.exists():
        raise DataError(f"file {name}: is there already. Name another file.")


def _write_new(path: Path, name: str, text: str) -> None:
    """Writes a file that another request may have written in the meantime; one of both is refused."""
    with SAVING:
        _check_free(path, name)
        write_text(path, text)


def job_path(site: Site, name: str) -> Path:
    """The file below DIR that a job is to be saved in.

    Raises:
        DataError: the name is none of a job file below DIR.
    """
    path = site.path(name)
    if path.suffix not in ENDINGS:
        raise DataError(f"file {name}: a job file ends in {', '.join(ENDINGS)}")
    return path


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
        if is_other(path, digest) and is_other(path, digest_of(text)):  # the second click of two finds its own text
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

"""Where a job begins: a new commented file for a model and a cluster, or a copy of a job that ships."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import htpy as h
from starlette.requests import Request
from starlette.responses import Response

from ..core.errors import DataError
from ..core.read_file import read_text
from ..core.write_file import write_text
from ..framework.frameworks import FRAMEWORKS
from ..job.load_job import MAX_BYTES
from ..prediction.new_job import CLUSTER, MODEL, N_DEVICES, new_job
from ..system.catalog import cluster_names
from ..tables.streams import example_files
from ..workload.catalog import workload_names
from .layout import document, form, heading
from .site import Fields, Site, address, field, redirect, site_of

ENDINGS = (".yaml", ".yml", ".toml")
NEW = "job.yaml"
REMEDY = "A job is a page of YAML or TOML."
MOST_DEVICES = 2**20
NO_FRAMEWORK = "not stated: the average of all"


def job_path(site: Site, name: str) -> Path:
    """The file below DIR that a job is to be saved in.

    Raises:
        DataError: the name is none of a job file below DIR.
    """
    path = site.path(name)
    if path.suffix not in ENDINGS:
        raise DataError(f"file {name}: a job file ends in {', '.join(ENDINGS)}")
    return path


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
                _choice("model", "Model", workload_names(), MODEL),
                _choice("cluster", "Cluster", cluster_names(), CLUSTER),
                h.label(for_="gpus")["GPUs"],
                h.input("#gpus", name="gpus", type="number", min="1", max=str(MOST_DEVICES), value=str(N_DEVICES)),
                _choice("framework", "Framework", FRAMEWORKS.names, "", NO_FRAMEWORK),
                _name("new-as", "File", NEW),
                h.p(".hint")["The plan is the first that fits into memory. It is a start, not a recommendation."],
                button="Write the job file",
            ),
        ],
        h.section[
            h.h2["From a job that ships"],
            form(
                "/job/copy",
                _choice("example", "Job", sorted(example_files()), ""),
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


def _choice(name: str, label: str, values: Iterable[str], chosen: str, empty: str = "") -> list[h.Node]:
    options = [h.option(value="", selected=not chosen)[empty]] if empty else []
    options += [h.option(value=one, selected=one == chosen)[one] for one in values]
    return [h.label(for_=name)[label], h.select(id=name, name=name)[options]]


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
    if not (gpus.isascii() and gpus.isdecimal() and len(gpus) < 9 and 1 <= int(gpus) <= MOST_DEVICES):
        raise DataError(f"GPUs {gpus[:20]!r}: it must be a whole number from 1 to {MOST_DEVICES:,}")
    model, cluster = field(fields, "model", MODEL), field(fields, "cluster", CLUSTER)
    if Path(model).suffix == ".json":
        raise DataError(
            f"model {model[:200]}: choose a model that ships. A config.json is named in the file: hf_config."
        )
    text, _ = new_job(Path(name), model, cluster, int(gpus), field(fields, "framework", "") or None)
    write_text(path, text)
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
    write_text(path, read_text(shipped[example], MAX_BYTES, REMEDY))
    return redirect(address("/job", file=name, saved="yes"))


def _free(site: Site, name: str) -> Path:
    path = job_path(site, name)
    if path.exists():
        raise DataError(f"file {name}: is there already. Name another file.")
    return path

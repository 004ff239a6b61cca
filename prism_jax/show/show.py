"""The command `prism-jax show KIND [NAME]`: tables of what is shipped, and everything known of one entry with its source.

With `--yaml`, an entry as a section of a job file, to be copied and changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from ..core.errors import DataError, SpecError
from ..core.page import Facts, Table
from ..core.registry import did_you_mean
from ..core.use_case import OUTPUT, Argument, Message, Option, use_case
from ..core.write_file import check_target, write_text
from .catalogues import CATALOGUES, show_catalogue, show_entry
from .report import catalogue_table, entry_facts


def _model(name: str) -> dict[str, Any]:
    from ..job.write_job import model_fields  # here and below, so that a catalogue costs what it shows
    from ..workload.catalog import workload

    return {"model": model_fields(workload(name))}


def _cluster(name: str) -> dict[str, Any]:
    from ..job.write_job import cluster_fields
    from ..system.catalog import cluster

    return {"cluster": cluster_fields(cluster(name, 1))}


def _device(name: str) -> dict[str, Any]:
    from ..job.write_job import device_fields
    from ..system.catalog import device

    return {"cluster": {"device": device_fields(device(name))}}


def _variability(name: str) -> dict[str, Any]:
    from ..job.write_job import variability_fields
    from ..variability.config import preset

    return {"variability": variability_fields(preset(name))}


SECTIONS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "models": _model,
    "devices": _device,
    "clusters": _cluster,
    "variability": _variability,
}
FILES = "examples"  # which are job files already


def job_section(catalogue: str, name: str) -> str:
    """YAML that `load_job` reads as part of a job file, and that describes exactly the thing of that name.

    Args:
        catalogue: models, devices, clusters, variability, or examples, which are whole files.
        name: of the entry.

    Raises:
        SpecError: there is no such entry, or its kind is no section of a job file.

    Example:
        >>> print(job_section("clusters", "dgx-h100"))  # doctest: +SKIP
    """
    if catalogue == FILES:
        return str(show_entry(catalogue, name).entry["text"])
    if catalogue not in SECTIONS:
        known = (*SECTIONS, FILES)
        if catalogue in CATALOGUES:
            raise SpecError(f"--yaml: {catalogue} are no section of a job file; {', '.join(known)} are")
        raise SpecError(f"unknown kind {catalogue!r}{did_you_mean(catalogue, known)}")
    from ..job.write_job import section_text

    return section_text(SECTIONS[catalogue](name), f"{name}, as `prism-jax show {catalogue} {name} --yaml` prints it")


def section_messages(_: object, kind: str, name: str | None = None, yaml: bool = False) -> Message | None:
    """Message on how to get an entry as a part of a job file."""
    if name is None or yaml or kind not in SECTIONS:
        return None
    return Message(f"as a part of a job file: prism-jax show {kind} {name} --yaml")


def check_page(option: str, path: str) -> None:
    """Refuses a file whose name does not end in .html, before anything is printed."""
    if not path.endswith((".html", ".htm")):
        raise DataError(f"{option}: {path}: the name must end in .html")
    check_target(path)


def write_page(
    _: object,
    kind: str,
    name: str | None = None,
    html: Annotated[str | None, Option("--html", "FILE", heading=OUTPUT, check=check_page)] = None,
) -> Message | None:
    """Writes the catalogue or the entry as one HTML file.

    Args:
        kind, name: as in `show`.
        html: write the list or the entry as one HTML file.
    """
    if html is None:
        return None
    report = show_catalogue(kind) if name is None else show_entry(kind, name)
    write_text(html, report.to_html())
    return Message(f"wrote {html}")


@use_case(then=(section_messages, write_page))
def show(
    kind: Annotated[str, Argument(metavar="KIND", help=f"One of {', '.join(CATALOGUES)}.")],
    name: Annotated[str | None, Argument(metavar="NAME")] = None,
    *,
    yaml: bool = False,
    json: Annotated[bool, Option("--json", heading=OUTPUT)] = False,
) -> Table | Facts | str | dict[str, Any] | list[Any]:
    """List the shipped models, devices, clusters, schedules, frameworks, jobs and more.

    Args:
        kind: kind of entries to list.
        name: show everything about one entry.
        yaml: print one entry of models, devices, clusters, variability or examples as a part of a job file, to be copied.
        json: print one JSON value instead of text.

    Raises:
        DataError, SpecError: there is no such kind or entry, or options contradict each other.
    """
    if yaml:
        if name is None:
            raise DataError(f"--yaml: prints one entry. Name it: prism-jax show {kind} NAME --yaml")
        if json:
            raise DataError("--yaml: cannot be combined with --json. Keep one.")
        return job_section(kind, name)
    if name is not None:
        entry = show_entry(kind, name)
        return entry.to_dict()["entry"] if json else replace(entry_facts(entry), has_paragraphs=True)
    found = show_catalogue(kind)
    return found.to_dict()["entries"] if json else catalogue_table(found)

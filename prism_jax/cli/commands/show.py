"""`prism-jax show KIND [NAME]`: tables of what is shipped, and everything known of one entry with its source."""

from __future__ import annotations

from typing import Annotated

import typer

from ... import app
from ...app.catalogue import CATALOGUES
from ...app.catalogue.job_section import SECTIONS
from ...errors import DataError
from ...report.text.catalogue import table
from ...report.text.entry import facts
from ..options import Json
from ..output import print_facts, print_json, print_lines, print_table
from ..verbosity import say

KINDS = tuple(CATALOGUES)
Yaml = Annotated[
    bool,
    typer.Option(
        "--yaml",
        help="Print one entry of models, devices, clusters, variability or examples as a part of a job file, to be copied.",
    ),
]


def show(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"One of {', '.join(KINDS)}.")],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show everything about one entry.")] = None,
    yaml: Yaml = False,
    json: Json = False,
) -> None:
    """List the shipped models, devices, clusters, schedules, frameworks, jobs and more."""
    if yaml:
        _print_section(kind, name, json)
        return
    if name is not None:
        entry = app.show_entry(kind, name)
        print_json(entry.to_dict()["entry"]) if json else print_facts(facts(entry), has_paragraphs=True)
        if kind in SECTIONS:
            say(f"as a part of a job file: prism-jax show {kind} {name} --yaml")
        return
    found = app.show_catalogue(kind)
    print_json(found.to_dict()["entries"]) if json else print_table(table(found))


def _print_section(kind: str, name: str | None, json: bool) -> None:
    if name is None:
        raise DataError(f"--yaml: prints one entry. Name it: prism-jax show {kind} NAME --yaml")
    if json:
        raise DataError("--yaml: cannot be combined with --json. Keep one.")
    print_lines(app.job_section(kind, name).rstrip("\n").split("\n"))

"""`prism-jax show KIND [NAME]`: tables of what is shipped, and everything known of one entry with its source."""

from __future__ import annotations

from typing import Annotated

import typer

from ...errors import SpecError
from ...hints import did_you_mean
from .. import catalogue as shelves
from ..options import Json
from ..output import print_facts, print_json, print_table
from ..verbosity import talks


def register(app: typer.Typer) -> None:
    """Adds the command to `app`."""
    app.command("show")(talks(show))


def show(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"One of {', '.join(shelves.SHELVES)}.")],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Everything about one of them.")] = None,
    json: Json = False,
) -> None:
    """List the shipped models, devices, clusters, schedules, frameworks, objectives, variabilities or example jobs."""
    if kind not in shelves.SHELVES:
        hint = did_you_mean(kind, shelves.SHELVES, f"; there are {', '.join(shelves.SHELVES)}")
        raise SpecError(f"unknown kind {kind!r}{hint}")
    shelf = shelves.SHELVES[kind]()
    if name is not None:
        entry = shelf.entry(name)
        print_json(entry) if json else print_facts(str(entry["name"]), shelves.readable(entry))
    elif json:
        print_json([shelf.entry(each) for each in shelf.names])
    else:
        print_table("", shelf.columns, [shelf.row(each) for each in shelf.names])

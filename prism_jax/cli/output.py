"""Data to stdout: tables for people, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from .streams import json_for_stdout

UNLIMITED = 4000  # columns, where nobody looks: a pipe or a file gets whole lines


def console() -> Console:
    """Console on stdout; wraps lines on a terminal only."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else UNLIMITED, highlight=False, markup=False)


def print_json(value: object) -> None:
    """One JSON value."""
    from ..io.write import to_json  # here, so that --help does not pay for numpy

    print(json_for_stdout(to_json(value)))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows under `columns`; columns that hold numbers are aligned right."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        cells = [row[index] for row in rows if row[index]]
        numeric = bool(cells) and all(cell[0].isdigit() or cell[0] in "-+" for cell in cells)
        table.add_column(column, justify="right" if numeric and index else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def print_facts(title: str, facts: Mapping[str, Any]) -> None:
    """Names and values of one thing."""
    table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, str(value))
    console().print(table)

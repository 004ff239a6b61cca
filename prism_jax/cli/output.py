"""Data to stdout: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ..report.table import Facts, Table as TextTable
from .streams import json_for_stdout

UNLIMITED = 4000  # columns, where nobody looks: a pipe or a file gets whole lines


def console() -> Console:
    """Console on stdout; wraps lines on a terminal only."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else UNLIMITED, highlight=False, markup=False)


def print_json(value: object) -> None:
    """One JSON value, of plain types."""
    print(json_for_stdout(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)))


def print_table(found: TextTable) -> None:
    """Rows under headings; columns that hold numbers are aligned right."""
    table = Table(title=found.title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(found.columns):
        table.add_column(column, justify="right" if found.is_numeric(index) else "left", overflow="fold")
    for row in found.rows:
        table.add_row(*row)
    console().print(table)


def print_facts(found: Facts) -> None:
    """Names and values of one thing."""
    table = Table(title=found.title, title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in found.facts.items():
        table.add_row(name, value)
    console().print(table)

"""Data to stdout: lines and tables for people, JSON for programs.

Nothing else in `shell` prints, but for `verbosity.say`: what is printed may hold names and notes from files, and is spelt out
here where it would steer the terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ..printable import printable, printable_lines
from ..report.table import Facts, Table as TextTable
from .streams import json_for_stdout

HELP_WIDTH = 100
UNLIMITED = 4000  # columns, where nobody looks: a pipe or a file gets whole lines


def console() -> Console:
    """Console on stdout; wraps lines on a terminal only."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else UNLIMITED, highlight=False, markup=False)


def help_console() -> Console:
    """Console for help, whose lines are for people wherever they go."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else HELP_WIDTH)


def print_lines(lines: Iterable[str]) -> None:
    """Plain text, line by line."""
    print("\n".join(printable(line) for line in lines))


def print_json(value: object) -> None:
    """One JSON value, of plain types."""
    print(json_for_stdout(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)))


def print_table(found: TextTable) -> None:
    """Rows under headings; columns that hold numbers are aligned right."""
    table = Table(title=printable(found.title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(found.columns):
        table.add_column(printable(column), justify="right" if found.is_numeric(index) else "left", overflow="fold")
    for row in found.rows:
        table.add_row(*map(printable, row))
    console().print(table)


def print_facts(found: Facts) -> None:
    """Names and values of one thing."""
    spelt = printable_lines if found.has_paragraphs else printable
    table = Table(title=printable(found.title), title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in found.facts.items():
        table.add_row(printable(name), spelt(value))
    console().print(table)

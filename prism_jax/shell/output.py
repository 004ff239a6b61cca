"""Data to stdout: lines and tables for people, JSON for programs.

Nothing else in `shell` prints, but for `verbosity.say`: what is printed may hold names and notes from files, and is spelt out
here where it would steer the terminal.

Pictures as files: asked for by the ending of their name, written whole or not at all.

What is going on, on a terminal only: nothing is printed to a file or a pipe.

What a command leaves: its report on stdout, its picture and files even if the reader of stdout has left, and an exit code.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from ..core.errors import DataError, printable, printable_lines
from ..core.processes import Progress, silent, start_jax
from ..core.report import Report
from ..core.text_table import Facts, Table
from ..core.use_case import Message
from ..core.write_file import atomic_path, check_target
from .streams import FAILED, OK, VERBOSITY, json_for_stdout, say

HELP_WIDTH = 80
UNLIMITED = 4000  # columns, where nobody looks: a pipe or a file gets whole lines


def console() -> Console:
    """Console on stdout; wraps lines on a terminal only."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else UNLIMITED, highlight=False, markup=False)


def help_console() -> Console:
    """Console for help, whose lines are for people wherever they go."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else HELP_WIDTH)


def print_lines(lines: Iterable[str]) -> None:
    """Plain text, line by line."""
    print("\n".join(printable(line) for line in lines))


def print_json(value: object) -> None:
    """One JSON value, of plain types."""
    print(json_for_stdout(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)))


def print_table(found: Table) -> None:
    """Rows under headings; columns that hold numbers are aligned right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable

    table = RichTable(title=printable(found.title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(found.columns):
        table.add_column(printable(column), justify="right" if found.is_numeric(index) else "left", overflow="fold")
    for row in found.rows:
        table.add_row(*map(printable, row))
    console().print(table)


def print_facts(found: Facts) -> None:
    """Names and values of one thing."""
    spelt = printable_lines if found.has_paragraphs else printable
    from rich.table import Table as RichTable

    table = RichTable(title=printable(found.title), title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in found.facts.items():
        table.add_row(printable(name), spelt(value))
    console().print(table)


ENDINGS = ("png", "pdf", "svg")


def check_picture(path: str) -> None:
    """Whether a picture could be written at `path`: to be asked before minutes of work, not after.

    Raises:
        DataError: another ending, no such folder, or a folder in its place.
    """
    if _ending(path) not in ENDINGS:
        raise DataError(f"--plot: {path}: the name must end in .{', .'.join(ENDINGS[:-1])} or .{ENDINGS[-1]}")
    check_target(path)


def write_picture(path: str, figure: Any) -> None:
    """Writes a figure in the format of the ending of `path`."""
    from ..core.picture import figure_bytes  # matplotlib is heavy

    with atomic_path(path) as temporary:
        temporary.write_bytes(figure_bytes(figure, _ending(path)))


def _ending(path: str) -> str:
    return path.rsplit(".", 1)[-1].lower() if "." in path else ""


@contextmanager
def working(text: str = "loading JAX") -> Iterator[Progress]:
    """Gets JAX ready, and shows a line with a spinner on stderr; yields a function that changes the line."""
    start_jax()
    if VERBOSITY.quiet or not sys.stderr.isatty():
        yield silent
        return
    with Console(stderr=True).status(text) as status:
        yield lambda done, what="", /: status.update(_shown(f"{what or text}, {done:.0%}" if done else what or text))


@contextmanager
def counting(text: str = "loading JAX") -> Iterator[Progress]:
    """Gets JAX ready, and shows a bar on stderr; yields a function that moves the bar."""
    start_jax()
    if VERBOSITY.quiet or not sys.stderr.isatty():
        yield silent
        return
    from rich.progress import Progress as RichProgress

    with RichProgress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=1.0)
        yield lambda done, what="", /: bar.update(task, completed=done, description=_shown(what or text))


def _shown(text: str) -> str:
    """`text` as rich shows it as it is."""
    from rich.markup import escape

    return escape(printable(text))


def emit(
    answer: Any, as_json: bool, plot: str | None, text: Callable[[], Any], then: Iterable[Callable[[], Any]]
) -> int:
    """Prints what a use case answered, draws it, does what else is to be done, and returns the exit code.

    A reader that has seen enough (`| head -1`) does not cost the user the files.

    Args:
        answer: a report, or what is printed.
        as_json: whether to print JSON instead of text.
        plot: file of the picture, if one is wanted.
        text: makes what is printed without --json.
        then: write other files, or tell something; each may return a `Told`, or several.
    """
    code, reader_left = OK, None
    try:
        if as_json:
            print_json(answer.to_dict() if isinstance(answer, Report) else answer)
        else:
            show(text())
        sys.stdout.flush()
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        reader_left = error
    if plot is not None:
        write_picture(plot, answer.figure())
        say(f"wrote {plot}")
    for act in then:
        told = act()
        for one in [told] if isinstance(told, Message) else told or ():
            say(one.text, always=one.always, detail=one.detail)
            code = FAILED if one.failed else code
    if reader_left:
        raise reader_left
    return code


def show(what: Any) -> None:
    """Prints lines, a table, facts, or several of these."""
    match what:
        case None:
            pass
        case Facts():
            print_facts(what)
        case Table():
            print_table(what)
        case str():
            print_lines(what.rstrip("\n").split("\n"))
        case [str(), *_]:
            print_lines(what)
        case _:
            for one in what:
                show(one)

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
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from ..core.errors import DataError, printable
from ..core.page import Facts, Group, Page, Table
from ..core.page_text import block_lines, page_lines
from ..core.processes import Progress, silent, start_jax
from ..core.report import Report
from ..core.use_case import Message
from ..core.write_file import check_target, write_bytes, write_text
from .streams import FAILED, OK, VERBOSITY, json_for_stdout, say

HELP_WIDTH = 80


def help_console() -> Console:
    """Console for help, whose lines are for people wherever they go."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else HELP_WIDTH)


def print_lines(lines: Iterable[str]) -> None:
    """Plain text, line by line."""
    print("\n".join(printable(line) for line in lines))


def print_json(value: object) -> None:
    """One JSON value, of plain types."""
    print(json_for_stdout(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)))


def width() -> int | None:
    """Columns that a person sees; None for a pipe or a file, unless COLUMNS says how wide it is read."""
    if os.environ.get("COLUMNS", "").isdigit():
        return max(40, int(os.environ["COLUMNS"]))
    return max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def print_page(page: Page) -> None:
    """A page, to the width of the terminal and with colours where there are some."""
    has_colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print("\n".join(page_lines(page, width(), colour=has_colour)))


def check_html(path: str) -> None:
    """Whether an HTML file could be written at `path`: to be asked before minutes of work, not after.

    Raises:
        DataError: another ending, no such folder, or a folder in its place.
    """
    if _ending(path) not in ("html", "htm"):
        raise DataError(f"--html: {path}: the name must end in .html")
    check_target(path)


def write_html(path: str, report: Report, *others: Report) -> None:
    """Writes the pages of reports as one HTML file, whole or not at all."""
    write_text(path, report.to_html(*others))


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

    write_bytes(path, figure_bytes(figure, _ending(path)))


def _ending(path: str) -> str:
    return path.rsplit(".", 1)[-1].lower() if "." in path else ""


@contextmanager
def working(text: str = "loading JAX") -> Iterator[Progress]:
    """Gets JAX ready, and shows a line with a spinner on stderr; yields a function that changes the line."""
    start_jax()
    if (quietly := _off_screen(text)) is not None:
        yield quietly
        return
    with Console(stderr=True).status(text) as status:
        yield lambda done, what="", /: status.update(_shown(f"{what or text}, {done:.0%}" if done else what or text))


@contextmanager
def counting(text: str = "loading JAX") -> Iterator[Progress]:
    """Gets JAX ready, and shows a bar on stderr; yields a function that moves the bar."""
    start_jax()
    if (quietly := _off_screen(text)) is not None:
        yield quietly
        return
    from rich.progress import Progress as RichProgress

    with RichProgress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=1.0)
        yield lambda done, what="", /: bar.update(task, completed=done, description=_shown(what or text))


def _off_screen(text: str) -> Progress | None:
    """Progress where nothing is shown on a terminal; None where it is."""
    if (told := VERBOSITY.progress) is not None:
        return lambda done, what="", /: told(done, what or text)
    return silent if VERBOSITY.quiet or not sys.stderr.isatty() else None


def _shown(text: str) -> str:
    """`text` as rich shows it as it is."""
    from rich.markup import escape

    return escape(printable(text))


def emit(
    answer: Any,
    as_json: bool,
    files: Mapping[str, str | None],
    text: Callable[[], Any],
    then: Iterable[Callable[[], Any]],
) -> int:
    """Prints what a use case answered, draws it, does what else is to be done, and returns the exit code.

    A reader that has seen enough (`| head -1`) does not cost the user the files.

    Args:
        answer: a report, or what is printed.
        as_json: whether to print JSON instead of text.
        files: "plot" and "html" -> files of the picture and of the page, where they are wanted.
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
    if plot := files.get("plot"):
        write_picture(plot, answer.figure())
        say(f"wrote {plot}")
    if (html := files.get("html")) and isinstance(answer, Report):  # `show` writes the page of its lists itself
        write_html(html, answer)
        say(f"wrote {html}")
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
        case Page():
            print_page(what)
        case Facts() | Table() | Group():
            print("\n".join(block_lines(what, width())))
        case str():
            print_lines(what.rstrip("\n").split("\n"))
        case [str(), *_]:
            print_lines(what)
        case _:
            for one in what:
                show(one)

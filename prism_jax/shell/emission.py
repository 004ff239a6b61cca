"""What a command leaves: its report on stdout, its picture and files even if the reader of stdout has left, and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from ..report.report import Report
from ..report.table import Facts, Table
from ..report.use_case import Told
from .exit_codes import FAILED, OK
from .output import print_facts, print_json, print_lines, print_table
from .pictures import write_picture
from .verbosity import say


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
        for one in [told] if isinstance(told, Told) else told or ():
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

"""What a command leaves: a report on stdout, and files even if the reader of stdout has left."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from ..report.report import Report
from .output import print_json, print_lines
from .pictures import write_picture
from .verbosity import say


def emit(
    report: Report,
    json: bool,
    *,
    text: Callable[[], None] | None = None,
    plot: str | None = None,
    figure: Callable[[], Any] | None = None,
    files: Callable[[], None] | None = None,
) -> None:
    """Prints a report, draws it, and does what else is to be done.

    A reader that has seen enough (`| head -1`) does not cost the user the files.

    Args:
        json: whether to print JSON instead of text.
        text: prints the text, where it is not that of `report.lines()`.
        plot: file of the picture, if one is wanted.
        figure: makes the picture.
        files: writes other files.
    """
    reader_left = None
    try:
        if json:
            print_json(report.to_dict())
        elif text is not None:
            text()
        else:
            print_lines(report.lines())
        sys.stdout.flush()
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        reader_left = error
    if plot is not None and figure is not None:
        write_picture(plot, figure())
        say(f"wrote {plot}")
    if files is not None:
        files()
    if reader_left:
        raise reader_left

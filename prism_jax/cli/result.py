"""What a command leaves: a result on stdout, and files even if the reader of stdout has left."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .output import print_json
from .pictures import write_picture
from .verbosity import say


def leave(
    result: dict[str, Any],
    lines: Callable[[], Sequence[str]],
    json: bool,
    plot: str | None,
    figure: Callable[[], Any],
    then: Callable[[], None] | None = None,
) -> None:
    """Prints a result, draws it, and does what else is to be done.

    A reader that has seen enough (`| head -1`) does not cost the user the files.

    Args:
        result: the object that `--json` prints.
        lines: makes the text for people.
        json: which of the two is wanted.
        plot: file of the picture, if one is wanted.
        figure: makes the picture.
        then: writes other files.
    """
    reader_left = None
    try:
        if json:
            print_json(result)
        else:
            print("\n".join(lines()))
        sys.stdout.flush()
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        reader_left = error
    if plot is not None:
        write_picture(plot, figure())
        say(f"wrote {plot}")
    if then is not None:
        then()
    if reader_left:
        raise reader_left

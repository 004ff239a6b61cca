"""What a trace command leaves: a result on stdout, a picture in a file even if the reader of stdout has left."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .output import print_json
from .pictures import write_picture
from .talk import say


def leave(
    result: dict[str, Any], lines: Callable[[], Sequence[str]], json: bool, plot: str | None, figure: Callable[[], Any]
) -> None:
    """Prints a result and then draws it.

    Args:
        result: the object that `--json` prints.
        lines: makes the text for people.
        json: which of the two is wanted.
        plot: file of the picture, if one is wanted.
        figure: makes the picture.
    """
    reader_left = None
    try:
        if json:
            print_json(result)
        else:
            print("\n".join(lines()))
        sys.stdout.flush()
    except BrokenPipeError as error:  # `| head -1` must not cost the user the picture
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        reader_left = error
    if plot is not None:
        write_picture(plot, figure())
        say(f"wrote {plot}")
    if reader_left:
        raise reader_left

"""What a command says, and how it exits, where a job does not fit into memory."""

from __future__ import annotations

import typer

from ..units import format_bytes
from .verbosity import say

DOES_NOT_FIT = 1


def exit_unless_it_fits(fits: bool, headroom_bytes: float, stage: int, ignore: bool) -> None:
    """Warns about a job that does not fit; ends the command with 1 unless that is to be ignored.

    Args:
        headroom_bytes: capacity left on the fullest stage.
        stage: that pipeline stage.
        ignore: whether `--ignore-memory` was given.
    """
    if fits:
        return
    remedy = "" if ignore else "; --ignore-memory accepts that"
    say(f"warning: does not fit: needs {format_bytes(-headroom_bytes)} more per device on stage {stage}{remedy}")
    if not ignore:
        raise typer.Exit(DOES_NOT_FIT)

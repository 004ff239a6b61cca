"""What a command says, and how it exits, where a job does not fit into memory."""

from __future__ import annotations

import typer

from ..units import format_bytes
from .exit_codes import FAILED
from .verbosity import say


def exit_unless_it_fits(fits: bool, headroom_bytes: float, stage: int | None, ignore: bool) -> None:
    """Warns about a job that does not fit; ends the command with 1 unless that is to be ignored.

    Args:
        headroom_bytes: capacity left on the fullest stage.
        stage: that pipeline stage; None: not known.
        ignore: whether `--ignore-memory` was given.
    """
    if fits:
        return
    where = "" if stage is None else f" on stage {stage}"
    remedy = "" if ignore else "; --ignore-memory accepts that"
    say(f"warning: does not fit: needs {format_bytes(-headroom_bytes)} more per device{where}{remedy}")
    if not ignore:
        raise typer.Exit(FAILED)

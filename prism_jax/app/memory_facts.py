"""What a command says of a job that does not fit into memory."""

from __future__ import annotations

from ..report.use_case import Told
from ..units import format_bytes

IGNORE_MEMORY = "Exit with 0 even if the job does not fit into memory."


def memory_verdict(fits: bool, headroom_bytes: float, stage: int | None, ignore: bool) -> Told | None:
    """The warning about a job that does not fit; the command fails then, unless that is to be ignored.

    Args:
        fits: whether it does.
        headroom_bytes: capacity left on the fullest stage.
        stage: that pipeline stage; None: not known.
        ignore: whether `--ignore-memory` was given.
    """
    if fits:
        return None
    where = "" if stage is None else f" on stage {stage}"
    remedy = "" if ignore else "; --ignore-memory accepts that"
    return Told(
        f"warning: does not fit: needs {format_bytes(-headroom_bytes)} more per device{where}{remedy}",
        failed=not ignore,
    )

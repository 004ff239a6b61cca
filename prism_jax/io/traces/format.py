"""`TraceFormat`: how the files of one format are recognised and read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from ...recorded.trace.op_table import JobShape, OpTable
from ...recorded.trace.step_log import StepLog

Recording: TypeAlias = OpTable | StepLog | tuple[OpTable, JobShape | None]


@dataclass(frozen=True)
class FileStart:
    """What a format is recognised by.

    Attributes:
        path: a regular file that may be read and is not empty.
        start: first bytes of the content, unpacked if it is gzip; at most 64 KiB.
    """

    path: Path
    start: bytes

    @cached_property
    def text(self) -> str:
        """The beginning as text, without a byte order mark and leading white space."""
        return self.start.decode("utf-8", "replace").lstrip("\ufeff \t\r\n\v\f")

    @property
    def name(self) -> str:
        """Name of the file in lower case, without `.gz`."""
        return self.path.name.lower().removesuffix(".gz")


@dataclass(frozen=True)
class TraceFormat:
    """One format of recorded jobs.

    Attributes:
        name: in `prism-jax show traces`.
        about: what such files are, for messages that list what is read: "MLPerf logs (:::MLLOG)".
        recognises: whether a file that begins so has this format; the content counts before the name. Formats are asked in turn,
            the one added last first, so a format claims only what it is sure of. May raise `DataError` for a file that no
            format reads.
        read: ops, or step times, of one job from its files (one file, unless there is `of_folder`). Beside the ops it may return
            the degrees that the files state. Raises `DataError` that names the place and the remedy.
        read_in_unit: the same for files that may leave the unit of step times open: files and seconds of the unit that a person
            states. None where there is nothing to state.
        of_folder: the files of one job among those in a folder; None where a job is one file.
    """

    name: str
    about: str
    recognises: Callable[[FileStart], bool]
    read: Callable[[Sequence[Path]], Recording]
    of_folder: Callable[[Sequence[Path]], Sequence[Path]] | None = None
    read_in_unit: Callable[[Sequence[Path], float], Recording] | None = None

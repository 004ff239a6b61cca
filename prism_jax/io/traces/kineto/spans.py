"""What is kept of one rank's profile: spans as columns, and what their names and arguments say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...._typing import Floats
from .file import Header
from .names import Annotation


class What(IntEnum):
    """Kinds of spans that are kept."""

    STEP = 0
    GPU_STEP = 1
    OP = 2
    GPU_OP = 3
    KERNEL = 4
    GPU_COMMUNICATION = 5
    LAUNCH = 6
    WAIT = 7
    COMMUNICATION = 8
    COMMUNICATION_CALL = 9


class Communication(NamedTuple):
    """What a communication kernel says of itself.

    Attributes:
        kind: e.g. "all_gather"; "send" and "recv" for point-to-point.
        group: name of the process group, "" if unknown.
        ranks: its ranks as written, perhaps abbreviated, "" if unknown.
        size: number of its ranks, 0 if unknown.
        peer: global rank of the other side of a send or receive, -1 if unknown.
    """

    kind: str
    group: str = ""
    ranks: str = ""
    size: int = 0
    peer: int = -1


@dataclass(frozen=True)
class Spans:
    """Columns; one entry per span, by start.

    Attributes:
        start_us, duration_us: on the rank's clock.
        code: step number, or index into `RankProfile.annotations` or `RankProfile.communications`; -1 for others.
        lane: thread or stream.
        link: number that a launch and its kernel, or an annotation and its GPU span, share; -1 for none.
    """

    start_us: Floats
    duration_us: Floats
    code: NDArray[np.int64]
    lane: NDArray[np.int64]
    link: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start_us)

    @property
    def end_us(self) -> Floats:
        """When each span ends."""
        return self.start_us + self.duration_us

    def pick(self, rows: NDArray) -> Spans:
        """Some of the spans (mask or indices)."""
        return Spans(*(getattr(self, name)[rows] for name in ("start_us", "duration_us", "code", "lane", "link")))


@dataclass(frozen=True)
class RankProfile:
    """One file.

    Attributes:
        path: the file.
        header: its plain header values, e.g. "distributedInfo.rank"; sizes of its process groups.
        spans: by kind.
        annotations: `Annotation` of every code of annotated ops.
        communications: `Communication` of every code of communication.
    """

    path: Path
    header: Header
    spans: dict[What, Spans]
    annotations: tuple[Annotation, ...]
    communications: tuple[Communication, ...]


Found = TypeVar("Found", Annotation, Communication)


def codes_of(found: tuple[Found, ...], of: Callable[[Found], int]) -> NDArray[np.int64]:
    """A number of every annotation or communication, to be indexed by code."""
    return np.array([of(value) for value in found], dtype=np.int64)

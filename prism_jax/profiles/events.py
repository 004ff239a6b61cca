"""Reads the spans of one rank's profile that matter here, as columns: steps, annotated ops, GPU kernels, launches, communication.

On request kernels keep their names, and the operators of the host are read too, with the shapes of their inputs. Times stay in
microseconds on the rank's own clock, as recorded.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.errors import DataError
from ..tables.document import short
from .file import SHAPES, kineto_events
from .names import STEP, Annotation, annotation, communication_kind, is_communication, kernel_class, step_number
from .rank_events import Event, ProfileHeader, RankEvents, Source


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
    OPERATOR_STEP = 10  # as old versions write steps
    OPERATOR = 11  # of the host; on request


class Communication(NamedTuple):
    """Kind, group and ranks that a communication kernel states.

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


class NamedWork(NamedTuple):
    """Name of a kernel or operator, and the shapes of its inputs as text ("" where they are not known)."""

    name: str
    shapes: str = ""


@dataclass(frozen=True)
class Spans:
    """Columns; one entry per span, by start.

    Attributes:
        start_us, duration_us: on the rank's clock.
        code: step number, or index into `RankProfile.annotations`, `communications` or `works`; -1 for others.
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
        """End of each span."""
        return self.start_us + self.duration_us

    def pick(self, rows: NDArray) -> Spans:
        """Selects some of the spans (mask or indices)."""
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
        works: `NamedWork` of every code of kernels and operators; only classes in the place of names unless those were asked for.
        is_whole: whether no steps are marked, so that the whole recording is one.
        part, n_parts: place of the rank among those of the file, and how many it holds.
    """

    path: Path
    header: ProfileHeader
    spans: dict[What, Spans]
    annotations: tuple[Annotation, ...]
    communications: tuple[Communication, ...]
    works: tuple[NamedWork, ...] = ()
    is_whole: bool = False
    part: int = 0
    n_parts: int = 1

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for people on how the file was read."""
        return (*self.header.notes, f"no {self.header.marks}: {WHOLE}") if self.is_whole else tuple(self.header.notes)


WHOLE = "the whole recording is taken as one step"
Found = TypeVar("Found", Annotation, Communication, NamedWork)


def codes_of(found: tuple[Found, ...], of: Callable[[Found], int]) -> NDArray[np.int64]:
    """A number of every annotation or communication, to be indexed by code."""
    return np.array([of(value) for value in found], dtype=np.int64)


MAX_SPANS = 8_000_000  # kept of one file: less than 1 GB, copies included
MAX_NAMES = 200_000  # different annotations or communicators in one file
MAX_NAME = 2_000  # characters of a name that is kept
MAX_WORK = 200  # of the name of a kernel or operator
MAX_NUMBER = 2**63
MAX_SIZE = 10_000_000  # ranks of a job


def read_profile(path: Path, works: bool = False) -> RankProfile:
    """Reads the events that are used from the file of the PyTorch profiler at `path`.

    Args:
        works: whether kernels keep their names and operators are read.

    Raises:
        DataError: as `kineto_file.events`; a time, stream or name of a used event is impossible: names the event and field.
    """
    return next(iter(read_profiles(path, works)))


def read_profiles(path: Path, works: bool = False, source: Source = kineto_events) -> Iterator[RankProfile]:
    """Reads the events that are used from the file at `path`, rank by rank.

    Args:
        works: whether kernels keep their names and operators are read.
        source: gives the events of the file.

    Raises:
        DataError: as `source`; a time, stream or name of a used event is impossible: names the event and field.
    """
    for rank in source(path):
        yield _kept(path, rank, works)


def _kept(path: Path, rank: RankEvents, works: bool) -> RankProfile:
    draft = _Draft(path, works)
    for number, event, args in rank.events:
        draft.last(event)
        keep = _KEEPERS.get(event.get("cat", ""))  # pyright: ignore[reportArgumentType]
        if keep is not None:
            keep(draft, number, event, args)
    spans = draft.spans()
    if len(spans[What.STEP]) == 0:
        spans[What.STEP] = spans[What.OPERATOR_STEP]
    is_whole = len(spans[What.STEP]) == 0 and draft.first_us < draft.last_us
    if is_whole:
        spans[What.STEP] = draft.whole()
    names = tuple(draft.annotations), tuple(draft.communications), tuple(draft.works)
    return RankProfile(path, rank.header, spans, *names, is_whole, rank.part, rank.n_parts)


class _Draft:
    """Columns while they grow."""

    def __init__(self, path: Path, with_works: bool = False) -> None:
        self.path, self.with_works = path, with_works
        self.what = array("b")
        self.times = array("d"), array("d")
        self.numbers = array("q"), array("q"), array("q")
        self.annotations: dict[Annotation, int] = {}
        self.communications: dict[Communication, int] = {}
        self.works: dict[NamedWork, int] = {}
        self.first_us, self.last_us = math.inf, -math.inf

    def last(self, event: Event) -> None:
        """Notes from when to when the recording lasts."""
        start, duration = as_float(event.get("ts")), as_float(event.get("dur"))
        if math.isfinite(start) and 0 <= duration < math.inf:
            self.first_us, self.last_us = min(self.first_us, start), max(self.last_us, start + duration)

    def whole(self) -> Spans:
        """The recording as one step."""
        zero = np.zeros(1, np.int64)
        duration_us = math.nextafter(self.last_us - self.first_us, math.inf)
        return Spans(np.array([self.first_us]), np.array([duration_us]), zero, zero, zero - 1)

    def add(self, what: What, number: int, event: Event, code: int, lane: Any, link: Any) -> None:
        start, duration = as_float(event.get("ts")), as_float(event.get("dur"))
        if not math.isfinite(start):
            self.refuse(number, "ts", event.get("ts"), "a finite number of microseconds")
        if not 0 <= duration < math.inf:
            self.refuse(number, "dur", event.get("dur"), "a finite number of microseconds, 0 or more")
        if len(self.what) >= MAX_SPANS:
            raise DataError(f"{self.path}: more than {MAX_SPANS:,} kernels, launches and ops. Record fewer steps.")
        self.what.append(what)
        self.times[0].append(start)
        self.times[1].append(duration)
        for column, value in zip(self.numbers, (code, lane, link), strict=True):
            column.append(value if type(value) is int and -MAX_NUMBER <= value < MAX_NUMBER else -1)

    def code(self, known: dict[Found, int], value: Found) -> int:
        if len(known) >= MAX_NAMES:
            raise DataError(f"{self.path}: more than {MAX_NAMES:,} different annotated ops, kernels or communicators")
        return known.setdefault(value, len(known))

    def work(self, event: Event, args: Event) -> int:
        """Code of a kernel or operator; where nobody asked for names, of its class."""
        if not self.with_works:
            return self.code(self.works, NamedWork(kernel_class(_text(event.get("name")))))
        return self.code(self.works, NamedWork(_text(event.get("name"))[:MAX_WORK], _text(args.get(SHAPES))))

    def named(self, number: int, name: str, meaning: Callable[[str], Any]) -> Any:
        try:
            return meaning(name)
        except ValueError as error:
            self.refuse(number, "name", name, str(error))

    def refuse(self, number: int, field: str, value: object, wanted: str) -> NoReturn:
        shown = str(value)[:40] if isinstance(value, (int, Decimal)) else short(value)
        raise DataError(f"{self.path}: event {number} {field}: {shown} is not {wanted}")

    def spans(self) -> dict[What, Spans]:
        what = np.frombuffer(self.what, dtype=np.int8)
        start, duration = (np.frombuffer(column, dtype=np.float64) for column in self.times)
        code, lane, link = (np.frombuffer(column, dtype=np.int64) for column in self.numbers)
        order = np.lexsort((lane, link, duration, start))  # so that the order of the file does not matter
        spans = Spans(start, duration, code, lane, link)
        return {kind: spans.pick(order[what[order] == kind]) for kind in What}


def _kernel(draft: _Draft, number: int, event: Event, args: Event, *, is_copy: bool = False) -> None:
    name = _text(event.get("name"))
    lane, link = args.get("stream", event.get("tid")), args.get("correlation")
    if is_copy or not is_communication(name):
        draft.add(What.KERNEL, number, event, draft.work(event, args), lane, link)
        return
    kind = communication_kind(_text(args.get("Collective name"))) or communication_kind(name) or "communication"
    peer = {"send": args.get("Dst Rank"), "recv": args.get("Src Rank")}.get(kind)
    found = Communication(
        kind,
        _text(args.get("Process Group Name")),
        _text(args.get("Process Group Ranks")),
        _count(args.get("Group size"), 0),
        _count(peer, -1),
    )
    draft.add(What.GPU_COMMUNICATION, number, event, draft.code(draft.communications, found), lane, link)


def _call(draft: _Draft, number: int, event: Event, args: Event) -> None:
    waits = "StreamWaitEvent" in _text(event.get("name"))
    draft.add(What.WAIT if waits else What.LAUNCH, number, event, -1, event.get("tid"), args.get("correlation"))


def _annotated(draft: _Draft, number: int, event: Event, args: Event, step: What, op: What) -> None:
    name = _text(event.get("name"))
    if name.startswith(STEP):
        draft.add(step, number, event, draft.named(number, name, step_number), event.get("tid"), -1)
    elif name.startswith("gloo:"):
        _host(draft, number, event, args)
    elif found := draft.named(number, name, annotation):
        link = args.get("External id", args.get("external id"))
        draft.add(op, number, event, draft.code(draft.annotations, found), event.get("tid"), link)


def _host(draft: _Draft, number: int, event: Event, args: Event) -> None:
    name = _text(event.get("name"))
    if name.startswith(STEP):
        draft.add(What.OPERATOR_STEP, number, event, draft.named(number, name, step_number), event.get("tid"), -1)
    if not name.startswith(("gloo:", "c10d::")):
        if draft.with_works and not name.startswith(STEP):
            draft.add(What.OPERATOR, number, event, draft.work(event, args), event.get("tid"), -1)
        return
    if kind := communication_kind(name.partition(":")[2]):
        code = draft.code(draft.communications, Communication(kind))
        what = What.COMMUNICATION if name.startswith("gloo:") else What.COMMUNICATION_CALL
        draft.add(what, number, event, code, event.get("tid"), -1)


def _recorded(draft: _Draft, number: int, event: Event, args: Event) -> None:
    """A collective that was written down without its kernel (flight recorder)."""
    name = _text(event.get("name"))
    kind = communication_kind(name.partition(":")[2].partition(" ")[0]) or "communication"
    group, ranks = _text(args.get("Process Group Name")), _text(args.get("Process Group Ranks"))
    found = Communication(kind, group, ranks, _count(args.get("Group size"), 0), _count(args.get("peer"), -1))
    draft.add(What.COMMUNICATION, number, event, draft.code(draft.communications, found), event.get("tid"), -1)


_KEEPERS: dict[str, Callable[[_Draft, int, Event, Event], None]] = {
    "kernel": _kernel,
    "Kernel": _kernel,
    **dict.fromkeys(("gpu_memcpy", "gpu_memset", "Memcpy", "Memset"), partial(_kernel, is_copy=True)),
    "cuda_runtime": _call,
    "cuda_driver": _call,
    "Runtime": _call,
    "user_annotation": partial(_annotated, step=What.STEP, op=What.OP),
    "gpu_user_annotation": partial(_annotated, step=What.GPU_STEP, op=What.GPU_OP),
    "cpu_op": _host,
    "Operator": _host,
    "recorded": _recorded,
}


def _text(value: object) -> str:
    return value[:MAX_NAME] if isinstance(value, str) else ""


def as_float(value: object) -> float:
    """A number of a JSON file; NaN for everything else."""
    try:
        return float(value) if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.inf


def _count(value: object, unknown: int) -> int:
    return value if type(value) is int and 0 <= value <= MAX_SIZE else unknown

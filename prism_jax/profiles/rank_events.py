"""Defines what every reader of profiles gives: the events of each rank in a file, in the form in which Kineto writes them.

An event is a flat dictionary: cat, name, ts and dur in microseconds, tid; and its args. Categories that are used:

| cat | what | args |
|---|---|---|
| kernel, gpu_memcpy, gpu_memset | work of a device; collectives by their names | stream, correlation |
| kernel of a collective | as above | Process Group Name, Process Group Ranks, Group size, Collective name |
| cuda_runtime, cuda_driver | the call that launched it, a wait of a stream | correlation |
| user_annotation | a step (ProfilerStep#N), an annotated op | |
| gpu_user_annotation | the same on the device | |
| cpu_op | operators and gloo's collectives | |
| recorded | a collective that was written down without its kernel | as those of a collective; peer |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

Event = dict[str, Any]


@dataclass
class ProfileHeader:
    """Values outside "traceEvents"; complete when the last event has been read.

    Attributes:
        values: plain values by their place, e.g. "baseTimeNanoseconds" or "distributedInfo.rank".
        group_size: ranks of every process group by its name.
        marks: how files of this kind mark steps, for messages.
        by_time: whether kernels without a recorded launch belong to the step in which they start.
        host_words: what collectives without kernels are read from.
        notes: what people should know about the file.
    """

    values: dict[str, Any] = field(default_factory=dict)
    group_size: dict[str, int] = field(default_factory=dict)
    marks: str = "ProfilerStep#N"
    by_time: bool = False
    host_words: str = "gloo's collectives"
    notes: list[str] = field(default_factory=list)


class RankEvents(NamedTuple):
    """Events of one rank, as every reader of profiles gives them: those of Kineto, times in microseconds.

    Attributes:
        header: complete when the last event has been read.
        events: number (from 1), content and args.
        part, n_parts: place of the rank among those of the file, and how many it holds.
    """

    header: ProfileHeader
    events: Iterator[tuple[int, Event, Event]]
    part: int = 0
    n_parts: int = 1


Source: TypeAlias = Callable[[Path], Iterable[RankEvents]]


def enumerate_events(steps: Iterable[Event], work: Iterable[tuple[Event, Event]]) -> Iterator[tuple[int, Event, Event]]:
    """Steps, then work, numbered from 1."""
    events = chain(((step, {}) for step in steps), work)
    yield from ((number, *event) for number, event in enumerate(events, 1))

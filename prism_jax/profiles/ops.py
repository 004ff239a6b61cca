"""Defines ops of one rank, as the three ways of reading a profile find them, with steps and numbering.

Communication ops have the same name in every step, and their group on every member.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats, Ints
from ..core.errors import DataError
from ..trace.rank_times import earlier
from ..trace.trace import NONE
from .events import Communication, RankProfile, Spans, What
from .names import END_TOGETHER

Rows = NDArray[np.int64]
NUMBERS = ("step", "micro_batch", "chunk", "start_us", "duration_us", "side", "size", "meets")
COLUMNS = (*NUMBERS, "op_type", "stream", "group")
SLACK_US = 1.0  # steps may overlap by this, from rounding


class Meets(IntEnum):
    """Ranks that meet in an op."""

    NOBODY = 0
    ALL = 1  # every rank with this group
    REPLICAS = 2  # those of the same tensor-parallel rank
    STAGES = 3  # those of the same tensor-parallel and data-parallel rank


@dataclass(frozen=True)
class RankOps:
    """Columns; one entry per op. Text columns are indices into the names of the same field plural.

    Attributes:
        step: step number.
        op_type, stream, group: -1 where an op has no group.
        micro_batch, chunk: `NONE` where the op belongs to none; `chunk` counts within the stage.
        start_us, duration_us: on the rank's clock.
        side: 0 for collectives and all else, 1 for a receive, -1 for a send.
        size: ranks of the group, 0 where unknown, -1 for work that meets nobody.
        meets: whose ops of the same group and step end together with it, so that clocks can be compared.
        notes: what people should know.
    """

    step: Rows
    op_type: Rows
    op_types: tuple[str, ...]
    stream: Rows
    streams: tuple[str, ...]
    group: Rows
    groups: tuple[str, ...]
    micro_batch: Rows
    chunk: Rows
    start_us: Floats
    duration_us: Floats
    side: Ints
    size: Ints
    meets: Ints
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.step)

    def pick(self, rows: NDArray) -> RankOps:
        """Selects some of the ops (mask or indices)."""
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        return replace(self, **columns)


@dataclass(frozen=True)
class NamedOps:
    """Columns of `RankOps` in which texts are texts; what is None is absent."""

    step: NDArray
    op_type: Sequence[str] | NDArray
    start_us: NDArray
    duration_us: NDArray
    stream: Sequence[str] | NDArray | None = None
    group: Sequence[str] | NDArray | None = None
    micro_batch: NDArray | None = None
    chunk: NDArray | None = None
    side: NDArray | None = None
    size: NDArray | None = None
    meets: NDArray | None = None

    def coded(self) -> RankOps:
        """Returns the ops with indices in the place of texts."""
        n = len(self.step)
        types, streams, groups = (_coded(texts, n) for texts in (self.op_type, self.stream, self.group))
        none, zero = np.full(n, NONE), np.zeros(n, dtype=np.int32)
        return RankOps(
            step=np.asarray(self.step, dtype=np.int64),
            op_type=types[0],
            op_types=types[1],
            stream=streams[0],
            streams=streams[1],
            group=np.where(np.array([*groups[1], ""])[groups[0]] == "", NONE, groups[0]),
            groups=groups[1],
            micro_batch=none if self.micro_batch is None else self.micro_batch,
            chunk=none if self.chunk is None else self.chunk,
            start_us=np.asarray(self.start_us, dtype=np.float64),
            duration_us=np.asarray(self.duration_us, dtype=np.float64),
            side=zero if self.side is None else self.side,
            size=none if self.size is None else self.size,
            meets=zero if self.meets is None else self.meets,
        )


def join(parts: Sequence[RankOps]) -> RankOps:
    """Ops of several sources as one, in their order, with common names; notes once each."""
    columns: dict[str, object] = {}
    for text, names in (("op_type", "op_types"), ("stream", "streams"), ("group", "groups")):
        known = sorted({name for part in parts for name in getattr(part, names)})
        place = {name: index for index, name in enumerate(known)}
        columns[names] = tuple(known)
        columns[text] = np.concatenate([_renamed(getattr(p, text), getattr(p, names), place) for p in parts])
    for name in NUMBERS:
        columns[name] = np.concatenate([getattr(part, name) for part in parts])
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    return RankOps(**columns, notes=notes)  # pyright: ignore[reportArgumentType]


def steps_of(profile: RankProfile) -> Spans:
    """The steps of a rank, their numbers as `code`.

    Raises:
        DataError: there are none, one number is there twice, or they overlap.
    """
    steps = profile.spans[What.STEP]
    if len(steps) == 0:
        raise DataError(
            f"{profile.path}: no ProfilerStep#N: steps cannot be told apart. Call profiler.step() after every step, and record "
            "with activities that include ProfilerActivity.CPU."
        )
    numbers, count = np.unique(steps.code, return_counts=True)
    if (count > 1).any():
        raise DataError(
            f"{profile.path}: ProfilerStep#{numbers[count > 1][0]} is there twice. Export one recording per file."
        )
    if (steps.start_us[1:] < steps.end_us[:-1] - SLACK_US).any():
        raise DataError(f"{profile.path}: steps overlap in time. Export one recording of one process per file.")
    return steps


def step_at(time_us: Floats, steps: Spans) -> Rows:
    """Number of the step in which a time lies, -1 for none. `steps` by start."""
    if len(steps) == 0:
        return np.full(len(time_us), -1)
    index = np.maximum(np.searchsorted(steps.start_us, time_us, side="right") - 1, 0)
    inside = (time_us >= steps.start_us[index]) & (time_us < steps.end_us[index])
    return np.where(inside, steps.code[index], -1)


def _coded(texts: Sequence[str] | NDArray | None, n: int) -> tuple[Rows, tuple[str, ...]]:
    if texts is None or n == 0:
        return np.zeros(n, dtype=np.int64), ("",)[:n]
    names, codes = np.unique(np.asarray(texts, dtype=str), return_inverse=True)
    return codes.astype(np.int64), tuple(names.tolist())


def _renamed(codes: Rows, names: tuple[str, ...], place: dict[str, int]) -> Rows:
    new = np.array([*(place[name] for name in names), NONE], dtype=np.int64)  # the last is found by -1
    return new[codes]


SIDES = {"send": -1, "recv": 1}


class Peers(NamedTuple):
    """The rank that was profiled, and the ranks of its job."""

    rank: int
    world_size: int


class _Channel(NamedTuple):
    """Communications of one kind among the same ranks, which follow each other in the program.

    Attributes:
        kind: e.g. "all_gather".
        where: who takes part ("0->1", or name and ranks of the process group), or the stream if the profile does not say.
        known: whether it says.
    """

    kind: str
    where: str
    known: bool


def communication_ops(
    profile: RankProfile, spans: Spans, step: Rows, launch_us: Floats, stream: NDArray[np.str_], peers: Peers
) -> RankOps:
    """One op per span.

    The type is the kind of communication, with the group added where a rank has several groups for one kind. The group is
    named by the kind, the group's name and ranks, and how many of the kind the group has had before in the step.

    Args:
        launch_us: order in which the program asked for them.
        stream: name of the stream of each.
    """
    found, at = _channels(profile, spans, stream, peers)
    number = earlier((step, at), launch_us)
    types = _types([channel for channel, _ in found])
    groups = [_group(found[c][0], n) for c, n in zip(at.tolist(), number.tolist(), strict=True)]
    together = [c.kind in END_TOGETHER or (c.kind in SIDES and c.known) for c, _ in found]
    return NamedOps(
        step=step,
        op_type=np.array(types, dtype=str)[at],
        stream=stream,
        group=groups,
        start_us=spans.start_us,
        duration_us=spans.duration_us,
        side=np.array([SIDES.get(channel.kind, 0) for channel, _ in found], dtype=np.int32)[at],
        size=np.array([size for _, size in found], dtype=np.int32)[at],
        meets=np.where(np.array(together, dtype=bool)[at], Meets.ALL, Meets.NOBODY),
    ).coded()


def _channels(
    profile: RankProfile, spans: Spans, stream: NDArray[np.str_], peers: Peers
) -> tuple[list[tuple[_Channel, int]], Rows]:
    """Channels with the size of their group, by name, and the channel of every span."""
    streams, stream_at = np.unique(stream, return_inverse=True)
    pairs, at = np.unique(np.stack([spans.code, stream_at]), axis=1, return_inverse=True)
    of_pair = [
        _channel(profile, profile.communications[code], str(streams[lane]), peers) for code, lane in pairs.T.tolist()
    ]
    found = sorted(dict(of_pair).items())  # a group that states its size once states it always
    place = {channel: index for index, (channel, _) in enumerate(found)}
    return found, np.array([place[channel] for channel, _ in of_pair], dtype=np.int64)[at.reshape(-1)]


def _channel(profile: RankProfile, what: Communication, stream: str, peers: Peers) -> tuple[_Channel, int]:
    if what.kind in SIDES:
        ends = (peers.rank, what.peer) if what.kind == "send" else (what.peer, peers.rank)
        return _Channel(what.kind, f"{ends[0]}->{ends[1]}" if what.peer >= 0 else stream, what.peer >= 0), 2
    size = what.size or profile.header.group_size.get(what.group, 0)
    if not what.group and not what.ranks:
        sizes = set(profile.header.group_size.values())
        only = len(profile.header.group_size) == 1
        return _Channel(what.kind, stream, False), size or (sizes.pop() if only else 0)
    return _Channel(what.kind, f"{what.group} {what.ranks}".strip(), True), size


def _types(channels: list[_Channel]) -> list[str]:
    """Op type of every channel."""
    kinds = [channel.kind for channel in channels]
    return [c.kind if kinds.count(c.kind) == 1 else f"{c.kind} {c.where}" for c in channels]


def _group(channel: _Channel, number: int) -> str:
    if channel.kind in SIDES:
        return f"{channel.where} {number}" if channel.known else ""
    return f"{channel.kind} {number} of {channel.where}"

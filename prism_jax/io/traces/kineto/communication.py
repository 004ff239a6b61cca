"""Communication ops of one rank, named so that the same op has the same name in every step and its group on every member."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...._typing import Floats
from .names import END_TOGETHER
from .ops import Meets, RankOps, Rows, numbered, rank_ops
from .spans import Communication, RankProfile, Spans

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
    number = numbered(step, at, by=launch_us)
    types = _types([channel for channel, _ in found])
    groups = [_group(found[c][0], n) for c, n in zip(at.tolist(), number.tolist(), strict=True)]
    together = [c.kind in END_TOGETHER or (c.kind in SIDES and c.known) for c, _ in found]
    return rank_ops(
        step=step,
        op_type=np.array(types, dtype=str)[at],
        stream=stream,
        group=groups,
        start_us=spans.start_us,
        duration_us=spans.duration_us,
        side=np.array([SIDES.get(channel.kind, 0) for channel, _ in found], dtype=np.int32)[at],
        size=np.array([size for _, size in found], dtype=np.int32)[at],
        meets=np.where(np.array(together, dtype=bool)[at], Meets.ALL, Meets.NOBODY),
    )


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

"""Operators, calls of the driver and what they start, of one rank of a PyTorch profile: what `prism_jax.host` runs again.

A call and the work that it starts share a correlation number. Work is on one of three streams: NCCL's kernels, the stream of the
device that computes most, and all others. A call of no operator is an operator of its own. Waits inside a call are left out: of
calls that wait, `WAIT_S` remains. Profiles do not say which stream a call waits for: it is that of the last work of its thread.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import DataError
from ..profiles.events import as_float
from ..profiles.file import events
from ..profiles.names import STEP, is_communication
from ..profiles.rank_events import ProfileHeader
from .program import COMPUTE, SIDE, Action, Call, Operator, TimedCall

WORK = ("kernel", "gpu_memcpy", "gpu_memset")
DRIVER = ("cuda_runtime", "cuda_driver")
WAIT_S = 3e-6  # a synchronisation with nothing to wait for
MAX_EVENTS = 2_000_000
MAX_CLOCK_NS = 2**63
_US = 1e-6
_NONE = -1


class ProfileEvent(NamedTuple):
    """Facts about one event of a profile; microseconds.

    Attributes:
        link, stream: correlation number and stream of the device; -1 where there is none.
    """

    name: str
    category: str
    start_us: float
    duration_us: float
    thread: str
    link: int
    stream: int = _NONE

    @property
    def end_us(self) -> float:
        """End of the event."""
        return self.start_us + self.duration_us


class RankCalls(NamedTuple):
    """The recorded steps of one rank, one after another.

    Attributes:
        start_s, end_s: of the host, on the rank's clock.
        done_s: when the work that it started is done, too.
        operators: that no other contains, by start.
        n_step: steps between `start_s` and `end_s`; 1 where none is annotated.
        clock_ns: of that clock's zero, on the clock of all ranks.
    """

    start_s: float
    end_s: float
    done_s: float
    operators: tuple[Operator, ...]
    n_step: int = 1
    clock_ns: int = 0


def read_rank_calls(path: Path) -> RankCalls:
    """The annotated steps of the profile at `path`; all of it where none is.

    Raises:
        DataError: as `kineto.file.events`; more than `MAX_EVENTS` events; no calls of the driver.
    """
    found: list[ProfileEvent] = []
    header = ProfileHeader()
    for _, event, args in events(path, header):
        if len(found) >= MAX_EVENTS:
            raise DataError(f"{path}: more than {MAX_EVENTS:,} events. Record fewer steps.")
        if (own := _event(event, args)) is not None:
            found.append(own)
    zero = header.values.get("baseTimeNanoseconds")
    return rank_calls(found, str(path))._replace(clock_ns=zero if type(zero) is int and abs(zero) < MAX_CLOCK_NS else 0)


def _event(event: Mapping[str, Any], args: Mapping[str, Any]) -> ProfileEvent | None:
    start, duration = as_float(event.get("ts")), as_float(event.get("dur"))
    category = event.get("cat", "")
    if not (math.isfinite(start) and 0.0 <= duration < math.inf) or not isinstance(category, str):
        return None
    link, stream = (one if type(one) is int else _NONE for one in (args.get("correlation"), args.get("stream")))
    return ProfileEvent(str(event.get("name", "")), category, start, duration, str(event.get("tid", "")), link, stream)


def rank_calls(found: Iterable[ProfileEvent], source: str) -> RankCalls:
    """Calls of a rank, as by `read_rank_calls`, from a list of events; `source` is what messages call them.

    Raises:
        DataError: no calls of the driver that start work.
    """
    events_ = sorted(found, key=lambda own: (own.start_us, -own.duration_us))
    work = {own.link: own for own in events_ if own.category in WORK and own.link >= 0}
    calls = [own for own in events_ if own.category in DRIVER]
    launches = [own for own in calls if own.link in work]
    if not launches:
        raise DataError(
            f"{source}: no calls of the CUDA driver that start work. Profile with CPU and CUDA activities, on a GPU."
        )
    start_us, end_us, n_step = _steps(events_, launches)
    inside = [own for own in calls if start_us <= own.start_us <= end_us]
    done_us = max(end_us, *(work[own.link].end_us for own in launches if start_us <= own.start_us <= end_us))
    ops = [own for own in events_ if own.category == "cpu_op" and start_us <= own.start_us <= end_us]
    operators = sorted(_operators(ops, inside, work), key=lambda own: own.start_s)
    return RankCalls(start_us * _US, end_us * _US, done_us * _US, tuple(operators), n_step)


def _steps(found: Sequence[ProfileEvent], launches: Sequence[ProfileEvent]) -> tuple[float, float, int]:
    """Start, end and number of the annotated steps that start work; of the host's events where none is annotated."""
    steps = [own for own in found if own.category == "user_annotation" and own.name.startswith(STEP)]
    starts = [call.start_us for call in launches]
    steps = [own for own in steps if bisect_left(starts, own.start_us) < bisect_left(starts, own.end_us)]
    if steps:
        return steps[0].start_us, max(own.end_us for own in steps), len(steps)
    host = [own for own in found if own.category == "cpu_op" or own.category in DRIVER]
    return host[0].start_us, max(own.end_us for own in host), 1


class _Streams:
    """Assigns work to the three streams, and knows the one that each thread used last."""

    def __init__(self, work: Mapping[int, ProfileEvent]) -> None:
        busy_us: defaultdict[int, float] = defaultdict(float)
        for own in work.values():
            if own.category == "kernel" and not is_communication(own.name):
                busy_us[own.stream] += own.duration_us
        self.main = max(busy_us, key=lambda stream: busy_us[stream], default=_NONE)
        self.last: dict[str, int] = {}

    def used(self, thread: str, work: ProfileEvent) -> int:
        """The stream of work that a thread starts; of a collective that of its input."""
        if not is_communication(work.name):
            self.last[thread] = COMPUTE if work.stream == self.main else SIDE
        return self.last.get(thread, COMPUTE)


def _operators(
    ops: list[ProfileEvent], calls: list[ProfileEvent], work: Mapping[int, ProfileEvent]
) -> Iterator[Operator]:
    """Operators that no other of their thread contains, with their calls; and calls outside of all."""
    outer: dict[str, list[ProfileEvent]] = {}
    for own in ops:
        mine = outer.setdefault(own.thread, [])
        if not mine or own.start_us >= mine[-1].end_us:
            mine.append(own)
    inside: dict[tuple[str, int], list[TimedCall]] = {}
    at = dict.fromkeys(outer, 0)
    streams = _Streams(work)
    for call in calls:
        timed, mine = _timed(call, work.get(call.link), streams), outer.get(call.thread, [])
        index = at.get(call.thread, 0)
        while index + 1 < len(mine) and mine[index + 1].start_us <= call.start_us:
            index += 1
        at[call.thread] = index
        if index < len(mine) and mine[index].start_us <= call.start_us <= mine[index].end_us:
            inside.setdefault((call.thread, index), []).append(timed)
        else:
            yield Operator(call.name, timed.start_s, timed.end_s, (timed,))
    for thread, mine in outer.items():
        for index, own in enumerate(mine):
            own_calls = _one_way(inside.get((thread, index), ()))
            yield Operator(own.name, own.start_us * _US, own.end_us * _US, own_calls)


def _one_way(calls: Sequence[TimedCall]) -> tuple[TimedCall, ...]:
    """Calls of an operator whose waits before a collective are that one's own: they do not hold up its input's stream."""
    last = max((at for at, timed in enumerate(calls) if timed.call.action == Action.COLLECTIVE), default=-1)
    return tuple(
        timed._replace(call=timed.call._replace(action=Action.NOTHING))
        if at < last and timed.call.action == Action.JOIN
        else timed
        for at, timed in enumerate(calls)
    )


def _timed(call: ProfileEvent, work: ProfileEvent | None, streams: _Streams) -> TimedCall:
    start_s, duration_s = call.start_us * _US, call.duration_us * _US
    found = _waiting(call, duration_s, streams) if work is None else _starting(call, duration_s, work, streams)
    return TimedCall(found, start_s, start_s + duration_s)


def _waiting(call: ProfileEvent, duration_s: float, streams: _Streams) -> Call:
    """A call that starts nothing."""
    stream = streams.last.get(call.thread)
    if "StreamWaitEvent" in call.name:
        return Call(Action.JOIN, COMPUTE if stream is None else stream, call_s=duration_s)
    if "Synchronize" not in call.name:
        return Call(Action.NOTHING, call_s=duration_s)
    if stream is None or "Device" in call.name:
        return Call(Action.WAIT_ALL, call_s=min(duration_s, WAIT_S))
    return Call(Action.WAIT, stream, call_s=min(duration_s, WAIT_S))


def _starting(call: ProfileEvent, duration_s: float, work: ProfileEvent, streams: _Streams) -> Call:
    stream, busy_s = streams.used(call.thread, work), work.duration_us * _US
    if is_communication(work.name):
        return Call(Action.COLLECTIVE, stream, call_s=duration_s, busy_s=busy_s)
    if work.category == "gpu_memcpy" and "Dto" in work.name and "DtoD" not in work.name:
        return Call(Action.COPY, stream, call_s=min(duration_s, WAIT_S), busy_s=busy_s)
    return Call(Action.KERNEL, stream, call_s=duration_s, busy_s=busy_s)

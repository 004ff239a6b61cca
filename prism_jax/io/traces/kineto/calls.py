"""Operators, calls of the driver and what they start, of one rank of a PyTorch profile: what `prism_jax.host` runs again.

A call and the work that it starts share a correlation number. Work is on one of two streams: that of NCCL's kernels, and all
others. A call of no operator is an operator of its own. Waits inside a call are left out: of calls that wait, `WAIT_S` remains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ....errors import DataError
from ....host.overheads import Operator, TimedCall
from ....host.program import COMMUNICATION, COMPUTE, Action, Call
from .events import as_float
from .file import Header, events
from .names import STEP, is_nccl

WORK = ("kernel", "gpu_memcpy", "gpu_memset")
DRIVER = ("cuda_runtime", "cuda_driver")
WAIT_S = 3e-6  # a synchronisation with nothing to wait for
MAX_EVENTS = 2_000_000
_US = 1e-6


class Event(NamedTuple):
    """What is used of one event of a profile; microseconds."""

    name: str
    category: str
    start_us: float
    duration_us: float
    thread: str
    link: int


class RankCalls(NamedTuple):
    """One rank's step.

    Attributes:
        start_s, end_s: of the step, on the rank's clock.
        operators: that no other contains, by start.
        clock_ns: of that clock's zero, on the clock of all ranks.
    """

    start_s: float
    end_s: float
    operators: tuple[Operator, ...]
    clock_ns: int = 0


def read_rank_calls(path: Path) -> RankCalls:
    """The first step of the profile at `path`.

    Raises:
        DataError: as `kineto.file.events`; more than `MAX_EVENTS` events; no calls of the driver.
    """
    found: list[Event] = []
    header = Header()
    for _, event, args in events(path, header):
        if len(found) >= MAX_EVENTS:
            raise DataError(f"{path}: more than {MAX_EVENTS:,} events. Record one step.")
        if (own := _event(event, args)) is not None:
            found.append(own)
    zero = header.values.get("baseTimeNanoseconds")
    return rank_calls(found, str(path))._replace(clock_ns=zero if type(zero) is int else 0)


def _event(event: Mapping[str, Any], args: Mapping[str, Any]) -> Event | None:
    start, duration = as_float(event.get("ts")), as_float(event.get("dur"))
    category = event.get("cat", "")
    if not (start == start and duration >= 0.0) or not isinstance(category, str):
        return None
    link = args.get("correlation", -1)
    name = str(event.get("name", ""))
    return Event(name, category, start, duration, str(event.get("tid", "")), link if type(link) is int else -1)


def rank_calls(found: Iterable[Event], source: str) -> RankCalls:
    """The first step of events that are at hand; `source` is what messages call them.

    Raises:
        DataError: no calls of the driver in it.
    """
    events_ = sorted(found, key=lambda own: (own.start_us, -own.duration_us))
    start_us, end_us = _first_step(events_)
    inside = [own for own in events_ if start_us <= own.start_us < end_us]
    work = {own.link: own for own in events_ if own.category in WORK and own.link >= 0}
    calls = [own for own in inside if own.category in DRIVER]
    if not calls:
        raise DataError(f"{source}: no calls of the CUDA driver. Profile with CPU and CUDA activities, on a GPU.")
    operators = _operators([own for own in inside if own.category == "cpu_op"], calls, work)
    return RankCalls(start_us * _US, end_us * _US, tuple(sorted(operators, key=lambda own: own.start_s)))


def _first_step(found: Iterable[Event]) -> tuple[float, float]:
    """Start and end of the first annotated step; everything where none is."""
    for own in found:
        if own.category == "user_annotation" and own.name.startswith(STEP):
            return own.start_us, own.start_us + own.duration_us
    return float("-inf"), float("inf")


def _operators(ops: list[Event], calls: list[Event], work: Mapping[int, Event]) -> Iterator[Operator]:
    """Operators that no other of their thread contains, with their calls; and calls outside of all."""
    outer: dict[str, list[Event]] = {}
    for own in ops:
        mine = outer.setdefault(own.thread, [])
        if not mine or own.start_us >= mine[-1].start_us + mine[-1].duration_us:
            mine.append(own)
    inside: dict[tuple[str, int], list[TimedCall]] = {}
    at = dict.fromkeys(outer, 0)
    for call in calls:
        timed, mine = _timed(call, work.get(call.link)), outer.get(call.thread, [])
        index = at.get(call.thread, 0)
        while index + 1 < len(mine) and mine[index + 1].start_us <= call.start_us:
            index += 1
        at[call.thread] = index
        if (
            index < len(mine)
            and mine[index].start_us <= call.start_us <= mine[index].start_us + mine[index].duration_us
        ):
            inside.setdefault((call.thread, index), []).append(timed)
        else:
            yield Operator(call.name, timed.start_s, timed.end_s, (timed,))
    for thread, mine in outer.items():
        for index, own in enumerate(mine):
            own_calls = tuple(inside.get((thread, index), ()))
            yield Operator(own.name, own.start_us * _US, (own.start_us + own.duration_us) * _US, own_calls)


def _timed(call: Event, work: Event | None) -> TimedCall:
    start_s, duration_s = call.start_us * _US, call.duration_us * _US
    return TimedCall(_call(call.name, duration_s, work), start_s, start_s + duration_s)


def _call(name: str, duration_s: float, work: Event | None) -> Call:
    if work is None:
        if "Synchronize" in name:
            return Call(Action.WAIT, call_s=min(duration_s, WAIT_S))
        return Call(Action.JOIN if "StreamWaitEvent" in name else Action.NOTHING, call_s=duration_s)
    busy_s = work.duration_us * _US
    if is_nccl(work.name):
        return Call(Action.COLLECTIVE, COMMUNICATION, call_s=duration_s, busy_s=busy_s)
    if work.category == "gpu_memcpy" and "Dto" in work.name and "DtoD" not in work.name:
        return Call(Action.COPY, COMPUTE, call_s=min(duration_s, WAIT_S), busy_s=busy_s)
    return Call(Action.KERNEL, COMPUTE, call_s=duration_s, busy_s=busy_s)

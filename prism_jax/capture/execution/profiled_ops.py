"""Operators of a profile (Kineto), each with the kernels that it started itself, and how long they ran.

A kernel belongs to the innermost operator that was running on the thread of its launch when it was launched. External ids are
only a second choice: older versions of the profiler write the correlation number there.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...core.errors import DataError
from ...profiles.names import is_communication
from ...tables.json_items import JsonItems

MAX_EVENTS = 4_000_000  # operators, launches and kernels of one profile
WORK = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
LAUNCHES = ("cuda_runtime", "cuda_driver", "Runtime")
OPERATORS = ("cpu_op", "user_annotation", "Operator")
NONE = -1
_US = 1e-6


class ProfiledKernel(NamedTuple):
    """Kernel that ran on the device.

    Attributes:
        op: index of the operator that started it; -1 where it is not known.
        is_communication: of NCCL or RCCL, which waits for peers.
    """

    name: str
    seconds: float
    op: int
    is_communication: bool


class ProfiledOp(NamedTuple):
    """An operator or annotation of the host.

    Attributes:
        rf_id: number of the call, as in an execution trace of the same run; -1 where the profile does not say.
        dims, types, concrete: of its inputs: sizes, types, and what is no tensor as text; empty where they were not recorded.
    """

    name: str
    thread: str
    start_us: float
    end_us: float
    rf_id: int
    dims: tuple[Any, ...] = ()
    types: tuple[str, ...] = ()
    concrete: tuple[str, ...] = ()


@dataclass(frozen=True)
class Profile:
    """Parts of a profile that are used.

    Attributes:
        name: of the file, in messages.
        pid: process that was recorded; None where the profile does not say.
        world: ranks of the job; 0 where the profile does not say.
        device: name of the GPU; empty where the profile does not say.
        ops: by thread, in their order.
        parents: [op] index of the operator that called it, -1 for none.
    """

    name: str
    pid: int | None
    world: int
    device: str
    ops: tuple[ProfiledOp, ...]
    parents: tuple[int, ...]
    kernels: tuple[ProfiledKernel, ...] = field(repr=False)

    @property
    def seconds(self) -> float:
        """Seconds of all kernels."""
        return math.fsum(one.seconds for one in self.kernels)


class _Work(NamedTuple):
    name: str
    seconds: float
    link: int
    external: int


def read_profile_ops(name: str, pieces: Iterator[bytes]) -> Profile:
    """The operators and kernels of a profile.

    Args:
        name: of the file, in messages.
        pieces: its content, unpacked.

    Raises:
        DataError: not JSON, cut off, no profile; a time that is none: names the event.
    """
    items = JsonItems(name, pieces, "traceEvents", "event")
    ops: list[ProfiledOp] = []
    external: dict[int, int] = {}
    launches: dict[int, tuple[str, float]] = {}
    work: list[_Work] = []
    pids: defaultdict[int, int] = defaultdict(int)
    for event in items:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        category, args, place = event.get("cat"), event.get("args"), f"{name}: event {items.number}"
        args = args if isinstance(args, dict) else {}
        outer = _whole(args.get("External id", args.get("external id")))
        if category in OPERATORS:
            ops.append(_op(event, args, place))
            external[outer] = len(ops) - 1
            pids[_whole(event.get("pid"))] += 1
        elif category in LAUNCHES:
            launches[_whole(args.get("correlation"))] = str(event.get("tid")), _time(event, "ts", place)
        elif category in WORK:
            seconds, link = _time(event, "dur", place) * _US, _whole(args.get("correlation"))
            work.append(_Work(str(event.get("name"))[:500], seconds, link, outer))
        if len(ops) + len(work) + len(launches) > MAX_EVENTS:
            raise DataError(f"{name}: more than {MAX_EVENTS:,} operators and kernels. Record fewer steps.")
    if not items.has_list:
        raise DataError(f'{name}: no "traceEvents": not a profile of PyTorch')
    order = sorted(range(len(ops)), key=lambda at: (ops[at].thread, ops[at].start_us, -ops[at].end_us))
    places = {old: new for new, old in enumerate(order)}
    sorted_ops = tuple(ops[at] for at in order)
    parents = _parents(sorted_ops)
    found = _Finder(sorted_ops, parents)
    kernels = tuple(_kernel(one, launches, found, external, places) for one in work)
    pid = max(pids, key=lambda one: pids[one], default=NONE)
    return Profile(name, None if pid == NONE else pid, *_about(items.beside), sorted_ops, parents, kernels)


def _about(beside: Mapping[str, Any]) -> tuple[int, str]:
    """Ranks of the job and the name of the device."""
    said, devices = beside.get("distributedInfo"), beside.get("deviceProperties")
    world = said.get("world_size") if isinstance(said, dict) else None
    first = devices[0] if isinstance(devices, list) and devices else None
    device = first.get("name") if isinstance(first, dict) else None
    return world if type(world) is int and 0 < world < 2**31 else 0, device[:100] if isinstance(device, str) else ""


def _op(event: Mapping[str, Any], args: Mapping[str, Any], place: str) -> ProfiledOp:
    start = _time(event, "ts", place)
    end = start + _time(event, "dur", place)
    dims, types, concrete = (args.get(field) for field in ("Input Dims", "Input type", "Concrete Inputs"))
    return ProfiledOp(
        str(event.get("name"))[:1000],
        str(event.get("tid"))[:100],
        start,
        end,
        _whole(args.get("Record function id")),
        _frozen(dims) if isinstance(dims, list) else (),
        _texts(types),
        _texts(concrete),
    )


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(one)[:100] for one in value) if isinstance(value, list) else ()


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value


def _whole(value: Any) -> int:
    return value if type(value) is int else NONE


def _time(event: Mapping[str, Any], name: str, place: str) -> float:
    value = event.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        least = 0.0 if name == "dur" else -math.inf
        if math.isfinite(value) and least <= value < 1e18:
            return float(value)
    raise DataError(f"{place} {name}: {str(value)[:40]} is not a finite number of microseconds")


def _parents(ops: Sequence[ProfiledOp]) -> tuple[int, ...]:
    """Index of the operator around each operator, [op]; operators are by thread and start."""
    found: list[int] = []
    open_: list[int] = []
    for at, op in enumerate(ops):
        while open_ and (ops[open_[-1]].thread != op.thread or ops[open_[-1]].end_us <= op.start_us):
            open_.pop()
        found.append(open_[-1] if open_ else NONE)
        open_.append(at)
    return tuple(found)


class _Finder:
    """Finds the innermost operator that runs on a thread at a time."""

    def __init__(self, ops: Sequence[ProfiledOp], parents: Sequence[int]) -> None:
        self._ops, self._parents = ops, parents
        self._first: dict[str, int] = {}
        self._starts: defaultdict[str, list[float]] = defaultdict(list)
        for at, op in enumerate(ops):
            self._first.setdefault(op.thread, at)
            self._starts[op.thread].append(op.start_us)

    def at(self, thread: str, time_us: float) -> int:
        """Returns the index of the innermost operator that runs at a time; -1 where none runs."""
        if thread not in self._first:
            return NONE
        at = self._first[thread] + bisect_right(self._starts[thread], time_us) - 1
        if at < self._first[thread]:
            return NONE
        while at != NONE and self._ops[at].end_us < time_us:
            at = self._parents[at]
        return at


def _kernel(
    one: _Work,
    launches: Mapping[int, tuple[str, float]],
    found: _Finder,
    external: Mapping[int, int],
    place: Mapping[int, int],
) -> ProfiledKernel:
    launch = launches.get(one.link)
    op = NONE if launch is None else found.at(*launch)
    if op == NONE and one.external not in (one.link, NONE) and one.external in external:
        op = place[external[one.external]]
    return ProfiledKernel(one.name, one.seconds, op, is_communication(one.name))

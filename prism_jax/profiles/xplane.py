"""Reads XPlane files, which JAX's profiler writes, as the events of every device.

A file holds planes: one per device with a line per stream, and one of the host with a line per thread. Every plane has its own
tables of names. Kernels are the events of a GPU's lines "Stream #...", on a TPU those of the line "XLA Ops", on a CPU the
operations of XLA on the threads of the host; of operations that contain each other the innermost. The launch of a kernel has the
same correlation_id. Steps are events with step_num (`jax.profiler.StepTraceAnnotation`), else those of a device's line "Steps".

The messages are read by hand instead of by `jax.profiler.ProfileData`, whose memory a hostile file decides (an event of two bytes
becomes 100), and so that `trace info` needs no JAX; a test compares the two.

Source: xplane.proto of OpenXLA.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..core.errors import DataError
from ..core.read_file import read_bytes
from .protobuf import BYTES, VARINT, fields, signed, varint
from .rank_events import Event, ProfileHeader, RankEvents, enumerate_events
from .step_marks import MARKS, StepMarks, step_event

MAX_BYTES = 2**29
MAX_NAMES = 500_000  # of one plane
MAX_NAME = 400
MAX_LINES = 100_000
MAX_KEPT = 8_000_000  # events of all devices
REMEDY = "Record fewer steps."
_DEVICE = re.compile(r"/device:(GPU|TPU):(\d{1,6})")
_STATS = ("correlation_id", "step_num", "hlo_op", "device_ordinal")
_NOISE = ("$", "ThreadpoolListener", "end: ", "Rendezvous")  # begin names of events of the host that are not looked at
_PS_PER_US, _NS_PER_US = 1e-6, 1e-3


class XEvent(NamedTuple):
    """An event; microseconds from the origin of the file. `stats` has those of `_STATS` that it states."""

    name: str
    start_us: float
    duration_us: float
    stats: dict[str, int]

    @property
    def end_us(self) -> float:
        """End of the event."""
        return self.start_us + self.duration_us


@dataclass
class _Plane:
    """A plane whose events have not been read."""

    name: str = ""
    lines: list[tuple[int, int]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    stats: dict[int, str] = field(default_factory=dict)


@dataclass
class _Device:
    """Kernels by lane."""

    kernels: dict[int, list[XEvent]] = field(default_factory=lambda: defaultdict(list))
    steps: list[XEvent] = field(default_factory=list)


def xplane_events(path: Path) -> Iterable[RankEvents]:
    """The devices of a file, each as a rank.

    Raises:
        DataError: cannot be read, no such file, cut off, too large, or without kernels.
    """
    data = read_bytes(path, MAX_BYTES, REMEDY, unpack=True)
    try:
        found = _Reading(path, data)
    except (ValueError, IndexError) as error:
        raise DataError(f"{path}: not a whole XPlane file: {error}. Copy or record it again.") from None
    return found.ranks()


class _Reading:
    """The file, reduced to what is used of it."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data = path, data
        self.devices: dict[int, _Device] = defaultdict(_Device)
        self.marks = StepMarks(str(path))
        self.launches: list[tuple[int, XEvent]] = []
        self.n_kept = 0
        planes = [
            self._plane(at, to) for number, kind, at, to in fields(data, 0, len(data)) if (number, kind) == (1, BYTES)
        ]
        devices = [(int(match[2]), one) for one in planes if (match := _DEVICE.fullmatch(one.name))]
        self.origin_ns: int | None = None
        for ordinal, plane in devices:
            self._device(self.devices[ordinal], plane)
        for ordinal in [ordinal for ordinal, one in self.devices.items() if not one.kernels]:
            del self.devices[ordinal]
        self.by_time = not self.devices
        for plane in planes:
            if plane.name.startswith("/host:CPU"):
                self._host(plane, with_work=self.by_time)

    def _plane(self, start: int, end: int) -> _Plane:
        plane = _Plane()
        for number, kind, at, to in fields(self.data, start, end):
            if kind != BYTES:
                continue
            if number == 2:
                plane.name = self._text(at, to)
            elif number == 3:
                plane.lines.append((at, to))
            elif number in (4, 5):
                self._name(plane.names if number == 4 else plane.stats, at, to)
            if len(plane.lines) > MAX_LINES or len(plane.names) + len(plane.stats) > MAX_NAMES:
                raise ValueError(f"more than {MAX_LINES:,} lines or {MAX_NAMES:,} names in a plane")
        return plane

    def _name(self, names: dict[int, str], start: int, end: int) -> None:
        key, name, shown = 0, "", ""
        for number, kind, at, to in fields(self.data, start, end):
            if (number, kind) == (1, VARINT):
                key = at
            elif (number, kind) == (2, BYTES):
                for inner, inner_kind, text, text_end in fields(self.data, at, to):
                    if (inner, inner_kind) == (2, BYTES):
                        name = self._text(text, text_end)
                    elif (inner, inner_kind) == (4, BYTES) and name.startswith(
                        "%"
                    ):  # of TPUs; elsewhere names are short
                        shown = self._text(text, text_end)
        names[key] = shown or name

    def _text(self, start: int, end: int) -> str:
        return self.data[start : min(end, start + MAX_NAME)].decode("utf-8", "replace")

    def _device(self, device: _Device, plane: _Plane) -> None:
        for at, (start, end) in enumerate(plane.lines):
            name, events = self._line(plane, start, end, ())
            if name.startswith("Stream #"):
                device.kernels[at].extend(self._kept(events))
            elif name == "XLA Ops":
                device.kernels[at].extend(_innermost(self._kept(events)))
            elif name == "Steps":
                device.steps.extend(self._kept(events))
        device.kernels = {lane: found for lane, found in device.kernels.items() if found}

    def _host(self, plane: _Plane, *, with_work: bool) -> None:
        for lane, (start, end) in enumerate(plane.lines):
            work: dict[int, list[XEvent]] = defaultdict(list)
            for one in self._line(plane, start, end, _NOISE)[1]:
                if "step_num" in one.stats:
                    self.marks.add(
                        f"{one.name}#step_num={max(one.stats['step_num'], 0)}", one.start_us, one.duration_us
                    )
                elif with_work and "hlo_op" in one.stats:
                    work[max(one.stats.get("device_ordinal", 0), 0)] += self._kept((one,))
                elif not with_work and "correlation_id" in one.stats:
                    self.launches += ((lane, kept) for kept in self._kept((one,)))
            for ordinal, found in work.items():
                self.devices[ordinal].kernels[0] += _innermost(found)

    def _kept(self, events: Iterable[XEvent]) -> Iterator[XEvent]:
        for one in events:
            self.n_kept += 1
            if self.n_kept > MAX_KEPT:
                raise DataError(f"{self.path}: more than {MAX_KEPT:,} kernels and launches. {REMEDY}")
            yield one

    def _line(self, plane: _Plane, start: int, end: int, without: tuple[str, ...]) -> tuple[str, Iterator[XEvent]]:
        name, origin_ns = "", 0
        for number, kind, at, to in fields(self.data, start, end):
            if kind == BYTES and (number == 2 or (number == 11 and not name)):
                name = self._text(at, to)
            elif (number, kind) == (3, VARINT):
                origin_ns = signed(at)
        if self.origin_ns is None:
            self.origin_ns = origin_ns
        return name, self._events(plane, start, end, (origin_ns - self.origin_ns) * _NS_PER_US, without)

    def _events(
        self, plane: _Plane, start: int, end: int, origin_us: float, without: tuple[str, ...]
    ) -> Iterator[XEvent]:
        wanted = {key: name for key, name in plane.stats.items() if name in _STATS}
        for number, kind, at, to in fields(self.data, start, end):
            if (number, kind) != (4, BYTES):
                continue
            name, offset_ps, duration_ps, stats = "", 0, 0, {}
            for inner, inner_kind, value, value_end in fields(self.data, at, to):
                if inner_kind == VARINT:
                    if inner == 1:
                        name = plane.names.get(value, "")
                        if without and name.startswith(without):
                            break
                    elif inner == 2:
                        offset_ps = signed(value)
                    elif inner == 3:
                        duration_ps = signed(value)
                elif (inner, inner_kind) == (4, BYTES):
                    self._stat(wanted, stats, value, value_end)
            else:
                yield XEvent(name, origin_us + offset_ps * _PS_PER_US, duration_ps * _PS_PER_US, stats)

    def _stat(self, wanted: dict[int, str], stats: dict[str, int], start: int, end: int) -> None:
        """Number of a stat of an event; of a text only that it is there."""
        if self.data[start] == 0x08:  # the key stands first
            key, _ = varint(self.data, start + 1)
            if key not in wanted:
                return
        name = ""
        value = 0
        for number, kind, at, _ in fields(self.data, start, end):
            if (number, kind) == (1, VARINT):
                name = wanted.get(at, "")
            elif number in (3, 4) and kind == VARINT:
                value = signed(at)
        if name:
            stats[name] = value

    def ranks(self) -> Iterator[RankEvents]:
        """The devices in their order.

        Raises:
            DataError: there are none.
        """
        if not self.devices:
            raise DataError(
                f"{self.path}: no kernels and no operations of XLA in the profile. Trace steps that run on a device."
            )
        steps, note = self.marks.steps()
        for part, ordinal in enumerate(sorted(self.devices)):
            header = ProfileHeader(marks=f"{MARKS}, nor a line of steps", by_time=self.by_time or not self.launches)
            header.values["baseTimeNanoseconds"] = max(self.origin_ns or 0, 0)
            header.notes += [note] * bool(note)
            device = self.devices[ordinal]
            marked = [step_event(one) for one in steps] or list(self._device_steps(device))
            yield RankEvents(header, enumerate_events(marked, self._work(device)), part, len(self.devices))

    def _device_steps(self, device: _Device) -> Iterator[Event]:
        marks = StepMarks(str(self.path))
        for one in device.steps:
            marks.add(f"step {one.name}", one.start_us, one.duration_us)
        return map(step_event, marks.steps()[0])

    def _work(self, device: _Device) -> Iterator[tuple[Event, Event]]:
        links = {
            one.stats["correlation_id"]
            for found in device.kernels.values()
            for one in found
            if "correlation_id" in one.stats
        }
        for lane, one in self.launches:
            if (link := one.stats["correlation_id"]) in links:
                yield {"cat": "cuda_runtime", "name": one.name, **_time(one), "tid": lane}, {"correlation": link}
        for lane, found in device.kernels.items():
            for one in found:
                args: Event = {"stream": lane, "correlation": one.stats.get("correlation_id", -1)}
                yield {"cat": "kernel", "name": one.name, **_time(one), "tid": lane}, args


def _time(one: XEvent) -> Event:
    return {"ts": one.start_us, "dur": one.duration_us}


def _innermost(events: Iterable[XEvent]) -> list[XEvent]:
    """Events of one line that contain no other."""
    ordered = sorted(events, key=lambda one: (one.start_us, -one.duration_us))
    return [
        one
        for one, after in zip(ordered, [*ordered[1:], None], strict=True)
        if after is None or after.start_us >= one.end_us or after.end_us > one.end_us
    ]

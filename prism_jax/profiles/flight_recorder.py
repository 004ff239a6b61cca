"""Reads NCCL's flight recorder of PyTorch, in its JSON form: the last collectives of one rank, with group, ranks and state.

The default dump is a pickle, which is a program and is never run. Durations are those that the recorder measured (duration_ms),
else from when the watchdog saw the collective started, or it was called, to when it saw it done. Collectives that did not
complete are counted in a note: a job that hangs waits in them.

Source: PyTorch, torch/csrc/distributed/c10d/FlightRecorder.hpp.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import DataError
from ..core.read_file import parse_json, read_text
from .events import MAX_SIZE
from .rank_events import Event, ProfileHeader, RankEvents, enumerate_events

MAX_BYTES = 2**25
MARKS = "steps"
_PEERS = re.compile(r"(\d{1,7})\s*(->|<-)\s*(\d{1,7})")
_MS, _NS = 1e3, 1e-3  # in microseconds


def flight_recorder_events(path: Path) -> Iterable[RankEvents]:
    """The one rank of a file.

    Raises:
        DataError: not JSON, too large, no entries, or none that completed.
    """
    found = parse_json(
        read_text(path, MAX_BYTES, "Dump fewer entries (TORCH_NCCL_TRACE_BUFFER_SIZE).", unpack=True), str(path)
    )
    entries = found.get("entries") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        raise DataError(f"{path}: no list of entries: not a dump of NCCL's flight recorder")
    groups = _groups(found.get("pg_config"))
    header = ProfileHeader(marks=MARKS, by_time=True, host_words="the collectives of the flight recorder")
    if type(rank := found.get("rank")) is int:
        header.values["distributedInfo.rank"] = rank
    if groups:
        header.values["distributedInfo.world_size"] = max(len(ranks) for ranks in groups.values())
    done = [(one, span) for one in entries if isinstance(one, dict) and (span := _span(one)) is not None]
    header.notes += _unfinished(entries)
    if not done:
        raise DataError(f"{path}: none of {len(entries):,} collectives completed. {' '.join(header.notes)}")
    origin = min(start for _, (start, _) in done)
    header.values["baseTimeNanoseconds"] = origin
    return (RankEvents(header, enumerate_events((), _work(done, groups, origin))),)


def _groups(config: object) -> dict[str, list[int]]:
    """Name of every process group -> its ranks."""
    listed = config.values() if isinstance(config, dict) else config if isinstance(config, list) else ()
    found: dict[str, list[int]] = {}
    for one in listed:
        if isinstance(one, Mapping):
            ranks = one.get("ranks")
            try:
                ranks = json.loads(ranks) if isinstance(ranks, str) else ranks
            except ValueError:
                continue
            if isinstance(ranks, list) and all(type(rank) is int and 0 <= rank < MAX_SIZE for rank in ranks):
                found[str(one.get("name", ""))] = ranks
    return found


def _span(entry: Mapping[str, Any]) -> tuple[int, float] | None:
    """Start in nanoseconds and microseconds of a collective that completed."""
    ends, created = entry.get("time_discovered_completed_ns"), entry.get("time_created_ns")
    seen, measured = entry.get("time_discovered_started_ns"), entry.get("duration_ms")
    start = next((time for time in (seen, created) if _is_time(time)), None)
    if (
        isinstance(measured, (int, float))
        and not isinstance(measured, bool)
        and 0 <= measured < 1e9
        and start is not None
    ):
        return start, float(measured) * _MS
    if not _is_time(ends) or start is None or entry.get("state") not in ("completed", None) or ends < start:
        return None
    return start, (ends - start) * _NS


def _is_time(value: object) -> bool:
    return type(value) is int and 0 < value < 2**63


def _unfinished(entries: list) -> list[str]:
    waiting = [one for one in entries if isinstance(one, dict) and one.get("state") not in ("completed", None)]
    if not waiting:
        return []
    names = Counter(f"{str(one.get('profiling_name'))[:40]} ({str(one.get('state'))[:20]})" for one in waiting)
    shown = ", ".join(f"{n} {name}" for name, n in names.most_common(3))
    return [f"{len(waiting):,} collectives had not completed when the recorder was dumped: {shown}"]


def _work(
    done: Iterable[tuple[dict, tuple[int, float]]], groups: Mapping[str, list[int]], origin: int
) -> Iterator[tuple[Event, Event]]:
    for one, (start, duration_us) in done:
        group = one.get("process_group")
        name = str(group[0] if isinstance(group, (list, tuple)) and group else one.get("pg_id", ""))
        ranks = groups.get(name, [])
        words = str(one.get("profiling_name", ""))[:200]
        args: Event = {
            "Process Group Name": name,
            "Process Group Ranks": str(ranks) if ranks else "",
            "Group size": len(ranks),
            "peer": _peer(words, ranks),
        }
        yield {"cat": "recorded", "name": words, "ts": (start - origin) * _NS, "dur": duration_us, "tid": 0}, args


def _peer(words: str, ranks: list[int]) -> int:
    """Global rank of the other side of "nccl:send 0->1" or "nccl:recv 0<-1"; -1 where none is named."""
    match = _PEERS.search(words)
    if not match:
        return -1
    peer = int(match[3])
    return ranks[peer] if peer < len(ranks) else peer

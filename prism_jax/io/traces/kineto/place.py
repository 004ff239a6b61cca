"""Where a rank stands in its job: its number, and its parallel ranks and degrees if the program wrote them into the profile.

    profiler.preset_metadata_json("prism", '{"dp": 1, "pp": 0, "tp": 0, "dp_size": 2, "pp_size": 4, "tp_size": 1}')

before the profiler starts, or `add_metadata_json` while it records (PyTorch drops it at other times, with a warning).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from ....errors import DataError
from ....hints import did_you_mean
from ...job.document import short
from .events import MAX_SIZE
from .spans import RankProfile

KEY = "prism"
MAX_TEXT = 10_000
FIELDS = ("dp", "pp", "tp", "dp_size", "pp_size", "tp_size", "virtual_stages", "name")
HOW = (
    "Write them, before the profiler starts, with "
    """profiler.preset_metadata_json("prism", '{"dp": 0, "pp": 0, "tp": 0, "dp_size": 2, "pp_size": 4, "tp_size": 1}')"""
)
_RANK = re.compile(r"rank[_\-.]?(\d{1,7})", re.IGNORECASE)


class Place(NamedTuple):
    """Parallel ranks of a worker and the degrees of its job; `dp_size` 0 and `virtual_stages` 0 if they are not stated."""

    dp: int = 0
    pp: int = 0
    tp: int = 0
    dp_size: int = 0
    pp_size: int = 1
    tp_size: int = 1
    virtual_stages: int = 0
    name: str = ""

    @property
    def degrees(self) -> tuple[int, int, int, int]:
        """What all ranks must agree on."""
        return self.dp_size, self.pp_size, self.tp_size, self.virtual_stages


def rank_of(profile: RankProfile) -> int:
    """Global rank of the profiled process.

    Raises:
        DataError: neither the file nor its name says.
    """
    rank = profile.header.values.get("distributedInfo.rank")
    if type(rank) is int and 0 <= rank < MAX_SIZE:
        return rank
    found = _RANK.findall(profile.path.name)
    if found:
        return int(found[-1])
    raise DataError(f"{profile.path}: no distributedInfo.rank. Name the file by its rank, as in trace_rank3.json.gz.")


def world_size_of(profile: RankProfile) -> int:
    """Ranks of the job, 0 if the file does not say."""
    size = profile.header.values.get("distributedInfo.world_size")
    return size if type(size) is int and 0 < size <= MAX_SIZE else 0


def stated_place(profile: RankProfile) -> Place | None:
    """What the program wrote into the profile, None if nothing.

    Raises:
        DataError: an unknown field, or a rank outside its degree.
    """
    values = profile.header.values
    fields = {name.removeprefix(f"{KEY}."): value for name, value in values.items() if name.startswith(f"{KEY}.")}
    if KEY in values:
        fields = _parsed(profile.path, values[KEY])
    if not fields:
        return None
    for name, value in fields.items():
        _check_field(profile.path, name, value)
    place = Place(**{"dp_size": 1, **fields})
    for axis in ("dp", "pp", "tp"):
        rank, size = getattr(place, axis), getattr(place, f"{axis}_size")
        if rank >= size:
            raise DataError(f"{profile.path}: {KEY}.{axis}: {rank}, but {axis}_size is {size} (ranks count from 0)")
    if place.dp_size * place.pp_size * place.tp_size > MAX_SIZE:
        raise DataError(f"{profile.path}: {KEY}: the product of the degrees is more than {MAX_SIZE:,} ranks")
    return place


def _parsed(path: Path, value: object) -> dict[str, Any]:
    """The metadata if it was written as text (`add_metadata`)."""
    try:
        found = json.loads(value) if isinstance(value, str) and len(value) <= MAX_TEXT else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise DataError(f"{path}: {KEY}: {short(value)} is not a JSON object. {HOW}")
    return found


def _check_field(path: Path, name: str, value: object) -> None:
    if name not in FIELDS:
        raise DataError(
            f"{path}: {KEY}.{name[:40]}: unknown field{did_you_mean(name, FIELDS, '')}; known are {', '.join(FIELDS)}"
        )
    if name == "name":
        if not isinstance(value, str) or len(value) > 200:
            raise DataError(f"{path}: {KEY}.name: {short(value)} is not a short text")
        return
    lowest = 0 if name in ("dp", "pp", "tp") else 1
    if type(value) is not int or not lowest <= value <= MAX_SIZE:
        raise DataError(f"{path}: {KEY}.{name}: {short(value)} is not a whole number from {lowest}")

"""Finds where a rank stands in its job, and which job the profiled ranks make up.

A program writes its number, parallel ranks and degrees into the profile:

    profiler.preset_metadata_json("prism", '{"dp": 1, "pp": 0, "tp": 0, "dp_size": 2, "pp_size": 4, "tp_size": 1}')

before the profiler starts, or `add_metadata_json` while it records (PyTorch drops it at other times, with a warning). Without
them ranks are replicas of each other, or stages of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Ints
from ..core.errors import DataError
from ..core.registry import did_you_mean
from ..tables.document import short
from ..trace.pipeline import TRANSFERS
from ..trace.rank_times import earlier
from ..trace.trace import JobShape
from .events import MAX_SIZE, RankProfile
from .ops import Meets, RankOps

KEY = "prism"
MAX_TEXT = 10_000
FIELDS = ("dp", "pp", "tp", "dp_size", "pp_size", "tp_size", "virtual_stages", "name")
HOW = (
    "Write them, before the profiler starts, with "
    """profiler.preset_metadata_json("prism", '{"dp": 0, "pp": 0, "tp": 0, "dp_size": 2, "pp_size": 4, "tp_size": 1}')"""
)
_NUMBER = re.compile(r"\d{1,7}")
_RANK = re.compile(r"(?:rank|proc(?:ess)?)[_\-.]?(\d{1,7})", re.IGNORECASE)


class WorkerPlace(NamedTuple):
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
        """Parallel degrees; all ranks must state the same."""
        return self.dp_size, self.pp_size, self.tp_size, self.virtual_stages


def rank_of(profile: RankProfile) -> int | None:
    """Global rank of the profiled process; None where neither the file nor its name says."""
    rank = profile.header.values.get("distributedInfo.rank")
    if type(rank) is int and 0 <= rank < MAX_SIZE:
        return rank
    found = _RANK.findall(profile.path.name)
    return int(found[-1]) if found else None


def rank_by_name(path: Path, paths: Sequence[Path]) -> int:
    """Rank of a file that does not say it: 0 of a single one; of several the last numbers of their names, if they count from 0.

    Raises:
        DataError: they do not.
    """
    if len(paths) == 1:
        return 0
    numbers = {one: _NUMBER.findall(one.name.partition(".")[0])[-1:] for one in paths}
    if sorted(int(found[0]) if found else -1 for found in numbers.values()) != list(range(len(paths))):
        raise DataError(
            f"{path}: no distributedInfo.rank. Name the file by its rank, as in trace_rank3.json.gz; of a single file, --rank N "
            "says it."
        )
    return int(numbers[path][0])


def world_size_of(profile: RankProfile) -> int:
    """Ranks of the job, 0 if the file does not say."""
    size = profile.header.values.get("distributedInfo.world_size")
    return size if type(size) is int and 0 < size <= MAX_SIZE else 0


def stated_place(profile: RankProfile) -> WorkerPlace | None:
    """Place that the program wrote into the profile, None if it wrote none.

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
    place = WorkerPlace(**{"dp_size": 1, **fields})
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


NAME = "PyTorch profile"


class ProfiledJob(NamedTuple):
    """Position of every profiled rank, and the degrees.

    Attributes:
        dp, pp, tp: [rank]
        ops: with groups only where they can be told.
        notes: how the job was understood.
    """

    dp: Ints
    pp: Ints
    tp: Ints
    shape: JobShape
    ops: RankOps
    notes: tuple[str, ...]


def annotated_job(source: str, ops: RankOps, places: Sequence[WorkerPlace | None]) -> ProfiledJob:
    """The job of annotated ranks.

    Raises:
        DataError: degrees are missing, on some ranks or although there are sends and receives; they differ; or a place is
            taken twice.
    """
    stated = [place for place in places if place is not None]
    if not stated:
        peers = [name for name in ops.op_types if name in TRANSFERS]
        if peers:
            raise DataError(
                f"{source}: {peers[0]} is annotated, but the profiles do not say their pipeline stages. {HOW}"
            )
        n = len(places)
        note = f"annotated ops; the {n} ranks are taken as data-parallel replicas, as no metadata say otherwise"
        return _job(np.arange(n), np.zeros(n), np.zeros(n), JobShape(NAME, dp=n), ops, note)
    if len(stated) < len(places):
        raise DataError(f"{source}: only {len(stated)} of {len(places)} profiles say their place. {HOW}")
    degrees = {place.degrees for place in stated}
    if len(degrees) > 1:
        raise DataError(
            f"{source}: prism: the ranks state different degrees (dp, pp, tp, virtual): {sorted(degrees)[:2]}"
        )
    at = [(place.dp, place.pp, place.tp) for place in stated]
    if len(set(at)) < len(at):
        twice = next(place for place in at if at.count(place) > 1)
        raise DataError(f"{source}: prism: two ranks state the same place, dp {twice[0]}, pp {twice[1]}, tp {twice[2]}")
    first = stated[0]
    virtual = first.virtual_stages or int(ops.chunk.max(initial=0)) + 1
    shape = JobShape(first.name or NAME, first.dp_size, first.pp_size, first.tp_size, virtual_stages=virtual)
    dp, pp, tp = np.array(at, dtype=np.int32).T
    return _job(dp, pp, tp, shape, ops, "positions of the annotated ops were taken from the metadata")


def unannotated_job(ops: RankOps, rank: Ints, n_rank: int, world_size: int) -> ProfiledJob:
    """The job of ranks whose ops were found from kernels or collectives.

    Args:
        rank: [op] index of its rank.
        world_size: ranks of the job, 0 if unknown.
    """
    world = world_size or n_rank
    together = ops.size >= 0
    everybody = bool(np.isin(ops.size[together], (0, world)).all()) and _alike(ops, rank, n_rank, together)
    none, in_turn = np.zeros(n_rank), bool((ops.side != 0).any())  # who sends to another does not the same as that one
    if everybody and not in_turn and _alike(ops, rank, n_rank, ~together):
        note = f"the {n_rank} ranks do the same ops and meet in groups of all: data-parallel replicas"
        return _job(np.arange(n_rank), none, none, JobShape(NAME, dp=n_rank), ops, note)
    note = f"the {n_rank} ranks differ in their ops or groups: each is a stage of its own, tied by its groups"
    if in_turn or not everybody:
        ops, left = _without_unknown(ops)
        note += f"; {left} ops have no group, because the profile does not say with whom they meet" if left else ""
    return _job(none, np.arange(n_rank), none, JobShape(NAME, pp=n_rank), ops, note)


def _job(dp: NDArray, pp: NDArray, tp: NDArray, shape: JobShape, ops: RankOps, note: str) -> ProfiledJob:
    return ProfiledJob(dp.astype(np.int32), pp.astype(np.int32), tp.astype(np.int32), shape, ops, (note,))


def _alike(ops: RankOps, rank: Ints, n_rank: int, rows: NDArray[np.bool_]) -> bool:
    """Whether all ranks do the same of the chosen ops, as often, in most of their steps."""
    some = ops.pick(rows)
    rank = rank[rows]
    number = earlier((rank, some.step, some.op_type), some.start_us)
    key = (some.op_type * (len(ops.groups) + 1) + some.group + 1) * (number.max(initial=0) + 1) + number
    key = np.unique(key, return_inverse=True)[1]
    pairs, count = np.unique(key * n_rank + rank, return_counts=True)
    usual = 2 * count > max(len(np.unique(ops.step)), 1)
    n_doing = np.bincount(pairs[usual] // n_rank)
    return bool(np.isin(n_doing, (0, n_rank)).all())


def _without_unknown(ops: RankOps) -> tuple[RankOps, int]:
    """Ops without the groups that name a stream only, or nothing; how many of a step that are."""
    unknown = (ops.size == 0) | ((ops.size > 0) & (ops.group < 0))
    columns = {
        **vars(ops),
        "group": np.where(unknown, -1, ops.group),
        "meets": np.where(unknown, Meets.NOBODY, ops.meets),
    }
    return RankOps(**columns), int(unknown.sum()) // max(len(np.unique(ops.step)), 1)

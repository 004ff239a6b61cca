"""Which job the profiled ranks make up: replicas of each other, stages of their own, or what their metadata say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...._typing import Ints
from ....errors import DataError
from ....recorded.trace.op_table import JobShape
from ....recorded.trace.pipeline import TRANSFERS
from .ops import Meets, RankOps, numbered
from .place import HOW, Place

NAME = "PyTorch profile"


class Job(NamedTuple):
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


def annotated_job(source: str, ops: RankOps, rank: Ints, places: Sequence[Place | None]) -> Job:
    """The job of annotated ranks.

    Args:
        rank: [op] index into `places`.

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


def unannotated_job(ops: RankOps, rank: Ints, n_rank: int, world_size: int) -> Job:
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


def _job(dp: NDArray, pp: NDArray, tp: NDArray, shape: JobShape, ops: RankOps, note: str) -> Job:
    return Job(dp.astype(np.int32), pp.astype(np.int32), tp.astype(np.int32), shape, ops, (note,))


def _alike(ops: RankOps, rank: Ints, n_rank: int, rows: NDArray[np.bool_]) -> bool:
    """Whether all ranks do the same of the chosen ops, as often, in most of their steps."""
    some = ops.pick(rows)
    rank = rank[rows]
    number = numbered(rank, some.step, some.op_type, by=some.start_us)
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

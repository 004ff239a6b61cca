"""Dimensions of the device mesh: their order, what is left for data parallelism, and which of them a group of ranks is.

Outermost first, as launchers of PyTorch lay ranks out: pipeline, data (replicated, then sharded), experts, context, tensor. So
ranks of one tensor-parallel group are neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from ...errors import DataError
from ...workload.captured.program import SHARDED, USUAL_ROLES

_ROLES = ("pp", "dp", "ep", "cp", "tp")


class Group(NamedTuple):
    """Ranks of one collective.

    Attributes:
        axis: dimension of the mesh, the largest one where a group spans several.
        ranks, stride: members, and the distance between neighbours.
    """

    axis: str
    ranks: int
    stride: int


def mesh_axes(axes: Mapping[str, int], world: int) -> dict[str, int]:
    """All dimensions in the order of the mesh; what `axes` leave of the world is "dp".

    Raises:
        DataError: the axes do not fill the world.
    """
    found = dict(axes)
    rest = world // max(prod(found.values()), 1)
    if rest > 1 and "dp" in found:
        sizes = " * ".join(f"{axis}={size}" for axis, size in found.items())
        raise DataError(
            f"--world: {world:,}, but {sizes} = {world // rest:,}. Leave --dp out, or make it {found['dp'] * rest}."
        )
    if rest > 1 or not found:
        found["dp"] = rest
    return dict(sorted(found.items(), key=lambda item: _place(item[0])))


def _place(axis: str) -> tuple[int, bool]:
    role = USUAL_ROLES.get(axis.lower(), "dp")
    return _ROLES.index(role), axis.lower() in SHARDED


def rank_of_stage(axes: Mapping[str, int], stage: int) -> int:
    """The first rank of a pipeline stage."""
    return stage * stride_of(axes, pipeline_axis(axes)) if stage else 0


def pipeline_axis(axes: Mapping[str, int]) -> str:
    """Name of the pipeline's dimension; empty where there is none."""
    return next((axis for axis in axes if USUAL_ROLES.get(axis.lower()) == "pp"), "")


def data_parallel_size(axes: Mapping[str, int]) -> int:
    """Replicas and shards of the batch together."""
    return prod(size for axis, size in axes.items() if USUAL_ROLES.get(axis.lower(), "dp") in ("dp", "ep"))


def stride_of(axes: Mapping[str, int], axis: str) -> int:
    """Distance between neighbours along a dimension."""
    names = list(axes)
    return prod(axes[name] for name in names[names.index(axis) + 1 :])


def group_of(axes: Mapping[str, int], members: Sequence[int]) -> Group:
    """Which dimension a group of ranks runs along, by which coordinates differ between its members."""
    first = members[0]
    along = [axis for axis in axes if any(_at(axes, axis, rank) != _at(axes, axis, first) for rank in members)]
    axis = max(along, key=lambda name: axes[name], default=next(iter(axes)))
    stride = members[1] - first if len(members) > 1 else 1
    return Group(axis, len(members), max(stride, 1))


def _at(axes: Mapping[str, int], axis: str, rank: int) -> int:
    return rank // stride_of(axes, axis) % axes[axis]

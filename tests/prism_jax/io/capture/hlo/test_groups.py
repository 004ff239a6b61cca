"""Groups of devices in all notations, and the dimensions of the mesh that they lie along."""

import numpy as np
import pytest

from prism_jax.capture.hlo.groups import guessed_axes, known_axes, permuted_pairs, replica_groups
from prism_jax.core.errors import DataError

from .texts import module


def groups_of(notation: str):
    body = f"""  %p = f32[4,8]{{1,0}} parameter(0)
  ROOT %r = f32[4,8]{{1,0}} all-reduce(%p), channel_id=1, {notation}, use_global_device_ids=true, to_apply=%sum"""
    made = module(body)
    return replica_groups(made, made.computations["main"].instructions["r"])


COLUMNS = [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize(
    "notation",
    [
        "replica_groups={{0,4},{1,5},{2,6},{3,7}}",
        "replica_groups=[4,2]<=[2,4]T(1,0)",
        "replica_groups=mesh['dp'=2,'tp'=4] {'dp'}",
        "replica_groups=mesh['dp'=2,'tp'=4], device_ids=([8]<=[8]) {'dp'}",
        "replica_groups=mesh['all'=8] {'all':(1)2}",
    ],
)
def test_notations_of_the_same_groups_agree(notation: str):
    found = groups_of(notation)
    assert sorted(found.members.tolist()) == COLUMNS
    assert (found.size, found.stride) == (2, 4)


def test_parts_of_a_dimension_are_counted_from_the_outside():
    assert sorted(groups_of("replica_groups=mesh['all'=8] {'all':(2)2}").members.tolist()) == [
        [0, 2],
        [1, 3],
        [4, 6],
        [5, 7],
    ]
    assert sorted(groups_of("replica_groups=mesh['all'=8] {'all':(4)2}").members.tolist()) == [
        [0, 1],
        [2, 3],
        [4, 5],
        [6, 7],
    ]


def test_no_groups_are_everybody():
    assert groups_of("replica_groups={}").members.tolist() == [list(range(8))]


@pytest.mark.parametrize(
    ("notation", "told"),
    [
        ("to_apply=%sum", "has no replica_groups"),
        ("replica_groups={{0,1},{2}}", "different sizes"),
        ("replica_groups={{0,1},{1,2}}", "twice"),
        ("replica_groups={{0,8}}", "names device 8"),
        ("replica_groups={{0,-1}}", "unknown notation"),
        ("replica_groups=[2,2]<=[8]", "do not fit"),
        ("replica_groups=[1,9999999999]<=[9999999999]", "in its groups"),
        ("replica_groups=mesh['dp'=2,'tp'=4] {'pp'}", "no dimension of its mesh"),
        ("replica_groups=mesh['dp'=2,'tp'=4] {'dp','dp'}", "twice"),
        ("replica_groups=mesh['dp'=3,'tp'=4] {'dp'}", "mesh of 12 devices"),
        ("replica_groups=whoever", "unknown notation"),
    ],
)
def test_groups_that_cannot_be_name_their_line(notation: str, told: str):
    with pytest.raises(DataError, match=r"m\.txt:12: .*" + told):
        groups_of(notation)


def test_pairs_are_read_and_bounded():
    body = """  %p = f32[4,8]{1,0} parameter(0)
  ROOT %r = f32[4,8]{1,0} collective-permute(%p), channel_id=1, source_target_pairs={{0,1},{1,2},{3,9}}"""
    made = module(body, devices=10)
    assert permuted_pairs(made, made.computations["main"].instructions["r"]).tolist() == [[0, 1], [1, 2], [3, 9]]
    made = module(body)
    with pytest.raises(DataError, match="device 9"):
        permuted_pairs(made, made.computations["main"].instructions["r"])


def test_axes_are_named_by_what_varies_in_a_group():
    rows, columns = groups_of("replica_groups=[2,4]<=[8]"), groups_of("replica_groups=[4,2]<=[2,4]T(1,0)")
    axes = known_axes({"dp": 2, "tp": 4}, [rows, columns])
    assert (axes.along(rows), axes.along(columns)) == ("tp", "dp")


def test_stated_axes_are_put_in_the_order_that_fits():
    rows, columns = groups_of("replica_groups=[2,4]<=[8]"), groups_of("replica_groups=[4,2]<=[2,4]T(1,0)")
    assert list(known_axes({"tp": 4, "dp": 2}, [rows, columns]).sizes) == ["dp", "tp"]
    assert list(known_axes({"tp": 4, "dp": 2}, []).sizes) == ["tp", "dp"]


def test_guessed_axes_are_tensor_parallel_where_activations_are_summed():
    rows, columns = groups_of("replica_groups=[2,4]<=[8]"), groups_of("replica_groups=[4,2]<=[2,4]T(1,0)")
    axes = guessed_axes([(rows, True), (columns, False)])
    assert axes.guessed == {"group4x1": "tp", "group2x4": "dp"}
    assert np.prod(list(axes.sizes.values())) == 8

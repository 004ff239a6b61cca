"""HLO collectives: groups of devices, experts, and bytes that move."""

import numpy as np
import pytest

from prism_jax.capture.hlo.collectives import Routing
from prism_jax.capture.hlo.groups import guessed_axes, known_axes, permuted_pairs, replica_groups
from prism_jax.capture.hlo.moves import traffic_of
from prism_jax.core.errors import DataError
from tests.prism_jax.capture.hlo.texts import module


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


@pytest.mark.parametrize(
    ("part", "members"), [("(2)2", [[0, 2], [1, 3], [4, 6], [5, 7]]), ("(4)2", [[0, 1], [2, 3], [4, 5], [6, 7]])]
)
def test_parts_of_a_dimension_are_counted_from_the_outside(part: str, members: list[list[int]]):
    found = groups_of(f"replica_groups=mesh['all'=8] {{'all':{part}}}")
    assert sorted(found.members.tolist()) == members


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


ROWS_OF_4, COLUMNS_OF_2 = groups_of("replica_groups=[2,4]<=[8]"), groups_of("replica_groups=[4,2]<=[2,4]T(1,0)")


def test_axes_are_named_by_what_varies_in_a_group():
    axes = known_axes({"dp": 2, "tp": 4}, [ROWS_OF_4, COLUMNS_OF_2])
    assert (axes.along(ROWS_OF_4), axes.along(COLUMNS_OF_2)) == ("tp", "dp")


def test_stated_axes_are_put_in_the_order_that_fits():
    assert list(known_axes({"tp": 4, "dp": 2}, [ROWS_OF_4, COLUMNS_OF_2]).sizes) == ["dp", "tp"]
    assert list(known_axes({"tp": 4, "dp": 2}, []).sizes) == ["tp", "dp"]


def test_guessed_axes_are_tensor_parallel_where_activations_are_summed():
    axes = guessed_axes([(ROWS_OF_4, True), (COLUMNS_OF_2, False)])
    assert axes.guessed == {"group4x1": "tp", "group2x4": "dp"}
    assert np.prod(list(axes.sizes.values())) == 8


# --- Layers with experts: loops that choose by `top_k`, and the backward passes of these -----------------------------


F_DENSE, F_MOE, B_MOE, B_DENSE = 1, 2, 3, 4


def routing(top_k: int = F_MOE) -> Routing:
    """A model of dense layers, then layers with experts, and their backward passes."""
    one = Routing()
    for loop, phase in ((F_DENSE, "F"), (F_MOE, "F"), (B_MOE, "B"), (B_DENSE, "B")):
        one.note(loop, "jit(step)/while/body/add", phase)
    one.note(top_k, "jit(step)/jvp()/while/body/top_k", "F")
    one.products = {
        F_DENSE: {"qkv", "mlp"},
        B_DENSE: {"qkv", "mlp"},
        F_MOE: {"qkv", "experts"},
        B_MOE: {"qkv", "experts"},
    }
    return one


def test_what_has_the_products_of_a_loop_that_chooses_is_its_backward_pass():
    assert routing().expert_loops() == {F_MOE, B_MOE}


def test_what_chooses_outside_of_loops_is_no_layer():
    assert routing(top_k=0).expert_loops() == set()


# --- Traffic ---------------------------------------------------------------------------------------------------------
# Bytes that instructions read and write: a slice what it takes, an update in place what it updates, seen in whatever
# shape.


ROW, STACK = 8 * 4.0, 12 * 8 * 4.0  # bytes of one of twelve layers, and of all
SLICED = """%taken (s: f32[12,8], i: s32[]) -> f32[1,8] {
  %s = f32[12,8]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %row = f32[1,8]{1,0} dynamic-slice(%s, %i, %zero), dynamic_slice_sizes={1,8}
}
"""
UPDATED = """%put (s: f32[12,8], r: f32[8], i: s32[]) -> f32[12,1,8] {
  %s = f32[12,8]{1,0} parameter(0)
  %seen = f32[12,1,8]{2,1,0} bitcast(%s)
  %r = f32[8]{0} parameter(1)
  %new = f32[1,1,8]{2,1,0} bitcast(%r)
  %i = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %all = f32[12,1,8]{2,1,0} dynamic-update-slice(%seen, %new, %i, %zero, %zero)
}
"""
READ_TOO = UPDATED.replace("  %r = ", "  %twice = f32[12,8]{1,0} add(%s, %s)\n  %r = ")


def of(line: str, before: str) -> tuple[float, float]:
    read = module(
        "  %stack = f32[12,8]{1,0} constant({...})\n  %layer = f32[8]{0} constant({...})\n  %at = s32[] constant(3)\n"
        f"  {line}\n  ROOT %out = f32[4,8]{{1,0}} constant({{...}})",
        before,
    )
    main = read.computations[read.entry]
    found = traffic_of(read, main, main.instructions["f"])
    return found.read, found.written


@pytest.mark.parametrize(
    "line",
    [
        "%f = f32[1,8]{1,0} fusion(%stack, %at), kind=kLoop, calls=%taken",
        "%f = ((f32[12,8]{1,0}, s32[]), f32[1,8]{1,0}, u32[]) fusion-start(%stack, %at), kind=kLoop, calls=%taken",
    ],
    ids=["in order", "beside others"],
)
def test_a_fusion_that_slices_a_stack_reads_one_layer(line: str):
    read, written = of(line, SLICED)
    assert ROW <= read <= ROW + 4.0  # and the index
    assert written == ROW


def test_an_update_in_place_reads_and_writes_one_layer_under_another_shape_too():
    line = "%f = f32[12,1,8]{2,1,0} fusion(%stack, %layer, %at), kind=kLoop, calls=%put"
    read, written = of(line, UPDATED)
    assert ROW <= read <= ROW + 4.0
    assert written == ROW


def test_a_value_that_is_seen_in_two_shapes_again_and_again_is_looked_at_once_in_each():
    """Forty times two ways from one shape to the next: 2^40 paths."""
    seen = "".join(
        f"  %a{n} = f32[12,8]{{1,0}} bitcast(%s{n})\n  %b{n} = f32[12,8]{{1,0}} bitcast(%s{n})\n"
        f"  %s{n + 1} = f32[12,8]{{1,0}} bitcast(%a{n}, %b{n})\n"
        for n in range(40)
    )
    taken = SLICED.replace("%s = f32[12,8]{1,0} parameter(0)\n", f"%s0 = f32[12,8]{{1,0}} parameter(0)\n{seen}")
    line = "%f = f32[1,8]{1,0} fusion(%stack, %at), kind=kLoop, calls=%taken"
    read, _ = of(line, taken.replace("dynamic-slice(%s,", "dynamic-slice(%s40,"))
    assert ROW <= read <= ROW + 4.0


def test_a_stack_that_is_also_read_whole_is_read_whole():
    line = "%f = f32[12,1,8]{2,1,0} fusion(%stack, %layer, %at), kind=kLoop, calls=%put"
    assert of(line, READ_TOO)[0] >= STACK

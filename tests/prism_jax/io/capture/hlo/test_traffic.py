"""Bytes that instructions read and write: a slice what it takes, an update in place what it updates, seen in whatever shape."""

import pytest

from prism_jax.capture.hlo.moves import traffic_of
from tests.prism_jax.io.capture.hlo.texts import module

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

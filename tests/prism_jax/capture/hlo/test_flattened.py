"""Fusions of XLA for CPUs taken apart: what one kernel of a GPU does, what is written, and what loops keep."""

import pytest

from prism_jax.capture.hlo.program import ProgramFacts, rank_program
from prism_jax.core.errors import DataError
from prism_jax.workload.captured.fusion import fused
from prism_jax.workload.captured.program import CapturedOp, RankProgram
from tests.prism_jax.capture.hlo.texts import module

SIZE = 64 * 64 * 4.0  # bytes of a matrix
TRIPS = 5
NAMED = 'metadata={op_name="jit(step)/jvp()/x"}'
BACK = 'metadata={op_name="jit(step)/transpose(jvp())/x"}'
M = "f32[64,64]{1,0}"
DIMS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def read(body: str, before: str = "", kernels: str = "chains") -> RankProgram:
    return rank_program(module(body, before, devices=1), ProgramFacts(kernels=kernels))


def kernels(program: RankProgram) -> list[tuple[str, float]]:
    """Name and bytes of everything that runs, as often as it does."""
    one = fused(program.classes[0], program.fusion)
    return [(op.name, op.n_bytes * n) for op, n in one.ops if op.kind != "none"]


def bytes_of(program: RankProgram) -> float:
    return sum(n_bytes for _, n_bytes in kernels(program))


TWICE = f"""%one (a: f32[64,64]) -> f32[64,64] {{
  %a = {M} parameter(0)
  %e = {M} exponential(%a), {NAMED}
  ROOT %n = {M} negate(%e), {NAMED}
}}

%two (b: f32[64,64]) -> f32[64,64] {{
  %b = {M} parameter(0)
  %e2 = {M} exponential(%b), {NAMED}
  ROOT %t = {M} add(%e2, %e2), {NAMED}
}}
"""


def test_what_fusions_repeat_is_one_operation():
    body = f"""  %p = {M} parameter(0)
  %f = {M} fusion(%p), kind=kLoop, calls=%one
  %g = {M} fusion(%p), kind=kLoop, calls=%two
  ROOT %d = {M} dot(%f, %g), {DIMS}, {NAMED}"""
    names = [op.name for op, _ in read(body, TWICE).classes[0].ops]
    assert names == ["exponential", "negate", "add", "dot"]
    assert bytes_of(read(body, TWICE)) == 2 * SIZE + 2 * SIZE + 3 * SIZE  # each makes the exponential again


def test_what_xla_for_cpus_converts_is_no_operation_and_not_wider():
    body = f"""  %p = bf16[64,64]{{1,0}} parameter(0)
  %wide = {M} convert(%p)
  %d = {M} dot(%wide, %wide), {DIMS}, {NAMED}
  ROOT %r = bf16[64,64]{{1,0}} convert(%d)"""
    assert kernels(read(body)) == [("dot", 2 * SIZE / 2)]


def test_a_conversion_of_the_program_itself_stays():
    body = f"""  %p = bf16[64,64]{{1,0}} parameter(0)
  %wide = {M} convert(%p), {NAMED}
  ROOT %d = {M} dot(%wide, %wide), {DIMS}, {NAMED}"""
    assert kernels(read(body)) == [("convert", 1.5 * SIZE), ("dot", 2 * SIZE)]


def test_a_reduction_in_two_halves_is_one():
    body = f"""  %p = {M} parameter(0)
  %zero = f32[] constant(0)
  %some = f32[64,8]{{1,0}} reduce-window(%p, %zero), window={{size=1x8 stride=1x8}}, to_apply=%sum, {NAMED}
  %all = f32[64]{{0}} reduce(%some, %zero), dimensions={{1}}, to_apply=%sum, {NAMED}
  %wide = {M} broadcast(%all), dimensions={{0}}, {NAMED}
  %o = {M} multiply(%p, %wide), {NAMED}
  ROOT %d = {M} dot(%o, %o), {DIMS}, {NAMED}"""
    assert kernels(read(body)) == [("reduce-window+broadcast+multiply", 2 * SIZE), ("dot", 2 * SIZE)]


def test_kernels_of_xla_end_with_a_reduction():
    body = f"""  %p = {M} parameter(0)
  %zero = f32[] constant(0)
  %e = {M} exponential(%p), {NAMED}
  %all = f32[64]{{0}} reduce(%e, %zero), dimensions={{1}}, to_apply=%sum, {NAMED}
  %wide = {M} broadcast(%all), dimensions={{0}}, {NAMED}
  %o = {M} multiply(%p, %wide), {NAMED}
  ROOT %d = {M} dot(%o, %o), {DIMS}, {NAMED}"""
    row = 64 * 4.0
    found = kernels(read(body, kernels="xla"))
    assert found == [("exponential+reduce", SIZE + row), ("broadcast+multiply", 2 * SIZE + row), ("dot", 2 * SIZE)]
    assert len(kernels(read(body))) == 2


def test_gradients_of_slices_are_written_where_they_belong():
    half = "f32[64,32]{1,0}"
    body = f"""  %p = {M} parameter(0)
  %q = {M} parameter(1)
  %w = {half} constant({{...}})
  %zero = f32[] constant(0)
  %a = {half} dot(%p, %w), {DIMS}, {BACK}
  %b = {half} dot(%q, %w), {DIMS}, {BACK}
  %first = {M} pad(%a, %zero), padding=0_0x0_32, {BACK}
  %second = {M} pad(%b, %zero), padding=0_0x32_0, {BACK}
  %both = {M} add(%first, %second), {BACK}
  ROOT %d = {M} dot(%both, %p), {DIMS}, {BACK}"""
    assert [name for name, _ in kernels(read(body))] == ["dot", "dot", "dot"]


def test_rows_of_a_table_are_read_and_not_the_table():
    body = f"""  %table = f32[4096,64]{{1,0}} parameter(0)
  %p = s32[64,1]{{1,0}} parameter(1)
  %t = bf16[4096,64]{{1,0}} convert(%table), {NAMED}
  %g = bf16[64,64]{{1,0}} gather(%t, %p), offset_dims={{1}}, {NAMED}
  ROOT %d = bf16[64,64]{{1,0}} dot(%g, %g), {DIMS}, {NAMED}"""
    ((name, n_bytes), _) = kernels(read(body))
    assert (name, n_bytes) == ("gather", SIZE + 64 * 4.0)  # rows of weights in 16 bits, indices, what is written
    table = dict(kernels(read(body, kernels="xla")))
    assert table["gather"] == 1.5 * SIZE + 64 * 4.0  # rows of weights in 32 bits


def _loop(name: str, rows: str) -> str:
    return f"""%{name} (t: (s32[], f32[64,64], f32[5,64,64])) -> (s32[], f32[64,64], f32[5,64,64]) {{
  %t = (s32[], {M}, f32[5,64,64]{{2,1,0}}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = {M} get-tuple-element(%t), index=1
  %stack = f32[5,64,64]{{2,1,0}} get-tuple-element(%t), index=2
  %w = {M} constant({{...}})
  %step = s32[] constant(1)
  %zero = s32[] constant(0)
  %next = s32[] add(%i, %step)
{rows}
}}

%until_{name} (t: (s32[], f32[64,64], f32[5,64,64])) -> pred[] {{
  %t = (s32[], {M}, f32[5,64,64]{{2,1,0}}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %end = s32[] constant({TRIPS})
  ROOT %less = pred[] compare(%i, %end), direction=LT
}}
"""


LOOPS = _loop(
    "keeps",
    f"""  %e = {M} exponential(%x), {NAMED}
  %seen = f32[1,64,64]{{2,1,0}} bitcast(%e)
  %kept = f32[5,64,64]{{2,1,0}} dynamic-update-slice(%stack, %seen, %i, %zero, %zero), {NAMED}
  %y = {M} dot(%e, %w), {DIMS}, {NAMED}
  ROOT %r = (s32[], {M}, f32[5,64,64]{{2,1,0}}) tuple(%next, %y, %kept)""",
) + _loop(
    "uses",
    f"""  %s = f32[1,64,64]{{2,1,0}} dynamic-slice(%stack, %i, %zero, %zero), dynamic_slice_sizes={{1,64,64}}, {BACK}
  %b = {M} bitcast(%s)
  %m = {M} multiply(%x, %b), {BACK}
  %y = {M} dot(%m, %w), {DIMS}, {BACK}
  ROOT %r = (s32[], {M}, f32[5,64,64]{{2,1,0}}) tuple(%next, %y, %stack)""",
)
PASSES = f"""  %p = {M} parameter(0)
  %begin = s32[] constant(0)
  %none = f32[] constant(0)
  %empty = f32[5,64,64]{{2,1,0}} broadcast(%none), dimensions={{}}, {NAMED}
  %in = (s32[], {M}, f32[5,64,64]{{2,1,0}}) tuple(%begin, %p, %empty)
  %forward = (s32[], {M}, f32[5,64,64]{{2,1,0}}) while(%in), condition=%until_keeps, body=%keeps, {NAMED}
  %y = {M} get-tuple-element(%forward), index=1
  %kept = f32[5,64,64]{{2,1,0}} get-tuple-element(%forward), index=2
  %on = (s32[], {M}, f32[5,64,64]{{2,1,0}}) tuple(%begin, %y, %kept)
  %backward = (s32[], {M}, f32[5,64,64]{{2,1,0}}) while(%on), condition=%until_uses, body=%uses, {BACK}
  ROOT %out = {M} get-tuple-element(%backward), index=1"""


def test_what_a_loop_keeps_for_another_lies_where_it_was_made():
    found = kernels(read(PASSES, LOOPS))
    assert found == [
        ("exponential", TRIPS * 2 * SIZE),
        ("dot", TRIPS * 3 * SIZE),
        ("multiply", TRIPS * 3 * SIZE),
        ("dot", TRIPS * 3 * SIZE),
    ]


def test_xla_copies_what_a_loop_keeps_and_clears_the_place():
    found = kernels(read(PASSES, LOOPS, kernels="xla"))
    assert ("broadcast", TRIPS * SIZE) in found
    assert ("dynamic-update-slice", TRIPS * 2 * SIZE) in found
    assert ("dynamic-slice+multiply", TRIPS * 3 * SIZE) in found
    assert bytes_of(read(PASSES, LOOPS, kernels="xla")) == (11 + 2 + 1) * TRIPS * SIZE


def test_fusions_as_the_text_has_them_are_left_alone_unless_asked():
    (copied,) = [op for op, _ in read(PASSES, LOOPS, kernels="").classes[0].ops if op.name == "dynamic-slice"]
    assert copied.n_bytes == 2 * SIZE


FAN = "\n".join(
    f"%f{i} (a: f32[64,64]) -> f32[64,64] {{\n  %a = {M} parameter(0)\n"
    + (
        f"  %b = {M} fusion(%a), kind=kLoop, calls=%f{i - 1}\n  ROOT %c = {M} fusion(%b), kind=kLoop, calls=%f{i - 1}\n}}\n"
        if i
        else f"  ROOT %c = {M} bitcast(%a)\n}}\n"
    )
    for i in range(40)
)


def test_fusions_that_fan_out_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("prism_jax.capture.hlo.flattened.MOST_SEEN", 2_000)
    body = f"  %p = {M} parameter(0)\n  ROOT %r = {M} fusion(%p), kind=kLoop, calls=%f39"
    with pytest.raises(DataError, match="more than 2,000 instructions, those in them too"):
        read(body, FAN)


@pytest.mark.parametrize("line", [f"{M} convert()", f"{M} dynamic-update-slice(%p)", f"{M} slice()", f"{M} reduce()"])
def test_operations_without_operands_are_refused(line: str):
    body = f"  %p = {M} parameter(0)\n  %o = {line}, {NAMED}\n  ROOT %r = {M} negate(%p)"
    with pytest.raises(DataError, match="operands, but"):
        read(body)


def test_rows_of_a_kernel_say_how_they_are_joined():
    rows = [row for row in read(PASSES, LOOPS).classes[0].rows if isinstance(row, CapturedOp)]
    assert all(row.chain == 0 or row.chain_bytes is None for row in rows)
    assert read(PASSES, LOOPS).fusion == "fused"
    assert read(PASSES, LOOPS, kernels="xla").fusion == "xla"

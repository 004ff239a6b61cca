"""HLO that is damaged or means harm: refused with its line, soon, by the command line with exit code 2."""

import time
import tracemalloc
from pathlib import Path

import pytest

from prism_jax.capture.hlo.parse import parse_hlo
from prism_jax.capture.hlo.program import rank_program
from prism_jax.core.errors import DataError
from prism_jax.shell.app import main
from tests.prism_jax.capture.hlo.texts import ENTRY_OF_LOOP, LOOP, text

P = "  %p = f32[4,8]{1,0} parameter(0)\n"
SELF = """%f (a: f32[4,8]) -> f32[4,8] {
  %a = f32[4,8]{1,0} parameter(0)
  ROOT %b = f32[4,8]{1,0} call(%a), to_apply=%g
}

%g (a: f32[4,8]) -> f32[4,8] {
  %a = f32[4,8]{1,0} parameter(0)
  ROOT %b = f32[4,8]{1,0} call(%a), to_apply=%f
}
"""
FAN = "\n".join(
    f"%f{i} (a: f32[4,8]) -> f32[4,8] {{\n  %a = f32[4,8]{{1,0}} parameter(0)\n"
    + (
        f"  %b = f32[4,8]{{1,0}} call(%a), to_apply=%f{i - 1}\n  ROOT %c = f32[4,8]{{1,0}} call(%b), to_apply=%f{i - 1}\n}}\n"
        if i
        else "  ROOT %c = f32[4,8]{1,0} copy(%a)\n}\n"
    )
    for i in range(64)
)
HOSTILE = {
    "a computation that calls itself": (text(P + "  ROOT %r = f32[4,8]{1,0} call(%p), to_apply=%f", SELF), "calls itself"),
    "calls that fan out": (text(P + "  ROOT %r = f32[4,8]{1,0} call(%p), to_apply=%f63", FAN), "runs more than"),
    "a call of nothing": (text(P + "  ROOT %r = f32[4,8]{1,0} call(%p), to_apply=%h"), "no computation 'h'"),
    "a value that waits for itself": (text(P + "  ROOT %r = f32[4,8]{1,0} add(%p, %r)"), "no instruction above it"),
    "1e6 brackets": (text(P + "  ROOT %r = f32[4,8]{1,0} add(" + "(" * 1_000_000), "nested more than"),
    "1e6 tuples": (text("  ROOT %p = " + "(" * 1_000_000 + "f32[]" + ")" * 1_000_000 + " parameter(0)"), "nested more"),
    "a negative size": (text("  ROOT %p = f32[4,-8]{1,0} parameter(0)"), "size of a dimension, '-8'"),
    "a size beyond all": (text("  ROOT %p = f32[99999999999,99999999999]{1,0} parameter(0)"), "more than"),
    "a size of many digits": (text("  ROOT %p = f32[" + "9" * 100_000 + "]{0} parameter(0)"), "no whole number"),
    "a parameter of many digits": (text("  ROOT %p = f32[4,8]{1,0} parameter(" + "9" * 5000 + ")"), "number of a parameter"),
    "an element whose index is no digit": (
        text(P + "  %t = (f32[4,8]{1,0}) tuple(%p)\n  ROOT %r = f32[4,8]{1,0} get-tuple-element(%t), index=²"),
        "index of an element",
    ),
    "an element of many digits": (
        text(P + "  %t = (f32[4,8]{1,0}) tuple(%p)\n  ROOT %r = f32[4,8]{1,0} get-tuple-element(%t), index=" + "9" * 5000),
        "index of an element",
    ),
    "no groups": (text(P + "  ROOT %r = f32[4,8]{1,0} all-reduce(%p), to_apply=%sum"), "no replica_groups"),
    "negative trips": (
        text(ENTRY_OF_LOOP.replace("body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"-3"}}'), LOOP),
        "runs -3 times",
    ),
    "trips beyond all": (
        text(ENTRY_OF_LOOP.replace("body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"99999999999"}}'), LOOP),
        "but it must be 0 to",
    ),
    "a loop without a body": (text(ENTRY_OF_LOOP.replace(", body=%body", ""), LOOP), "no condition or no body"),
    "dimensions that are not there": (
        text(P + "  ROOT %r = f32[4,4]{1,0} dot(%p, %p), lhs_contracting_dims={7}, rhs_contracting_dims={1}"),
        "do not fit its operands",
    ),
    "a window of a billion holes": (
        text(
            P + "  ROOT %r = f32[4,8]{1,0} convolution(%p, %p), window={size=8 lhs_dilate=999999999}, dim_labels=b0_i0->b0"
        ),
        "do not fit its operands",
    ),
    "two values of one name": (text(P + "  ROOT %p = f32[4,8]{1,0} parameter(1)"), "second instruction"),
    "an unknown type": (text("  ROOT %p = f77[4,8]{1,0} parameter(0)"), "no type of elements"),
    "cut off": (text(P)[:-3], "never ends"),
    "cut off in a line": (text(P + "  ROOT %r = f32[4,8]{1,0} all-reduce(%p, {")[:-3], "never closed"),
    "a quote without an end": (text(P + '  ROOT %r = f32[4,8]{1,0} copy(%p), metadata={op_name="' + "\\" * 100_001), "never"),
    "devices without end": (text(P, devices=2**40), "num_partitions"),
    "another language": ("HloModule m\nmodule @jit_f attributes {} {\n}\n", "not valid HLO text"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_with_its_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    content, told = HOSTILE[name]
    file = tmp_path / "m.txt"
    file.write_text(content)
    assert main(["capture", str(file)]) == 2
    message = capsys.readouterr().err
    assert told in message
    assert f"{file}:" in message
    assert "Traceback" not in message


def test_memory_is_bounded_by_the_text():
    content, _ = HOSTILE["1e6 brackets"]
    tracemalloc.start()
    begins = time.process_time()
    with pytest.raises(DataError):
        parse_hlo(content, "m.txt")
    assert tracemalloc.get_traced_memory()[1] < 20 * len(content)
    tracemalloc.stop()
    assert time.process_time() - begins < 20.0


def test_loops_in_loops_do_not_run_beyond_bounds():
    inner = LOOP.replace("body", "inner").replace("condition", "until")
    known = 'backend_config={"known_trip_count":{"n":"100000"}}'
    body = inner + LOOP.replace(
        "  %y = f32[4,8]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        f"  %again = (s32[], f32[4,8]{{1,0}}) while(%t), condition=%until, body=%inner, {known}\n"
        "  %y = f32[4,8]{1,0} get-tuple-element(%again), index=1",
    )
    entry = ENTRY_OF_LOOP.replace("body=%body", f"body=%body, {known}")
    with pytest.raises(DataError, match=r"m\.txt:\d+: the loop again runs 10,000,000,000 times"):
        rank_program(parse_hlo(text(entry, body), "m.txt"))

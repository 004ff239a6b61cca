"""Folding of repeated rows: nothing is lost, and what is awaited elsewhere is not folded."""

from dataclasses import replace

from hypothesis import given, settings, strategies as st

from prism_jax.capture.torch.repeats import Folded, folded
from prism_jax.workload.captured.program import CapturedComm, CapturedOp

OPS = [CapturedOp(f"op{i}", "memory", "F", "bf16", n_bytes=float(i)) for i in range(4)]
GATHER = CapturedComm("all_gather", "fsdp", 8, 1, 64.0, "bf16", "F", asynchronous=True)


def unfolded(found: Folded) -> list[str]:
    names: list[str] = []
    own = [row.name for row in found.rows if isinstance(row, CapturedOp)]
    assert len(own) == len(found.rows)
    at = 0
    for repeat in found.repeats:
        names += own[at : repeat.start]
        names += own[repeat.start : repeat.stop] * repeat.times
        at = repeat.stop
    return names + own[at:]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 3), max_size=60))
def test_unfolded_rows_are_the_rows(numbers: list[int]) -> None:
    rows = [OPS[i] for i in numbers]
    assert unfolded(folded(rows)) == [row.name for row in rows]


def test_layers_are_alike_whatever_their_number() -> None:
    rows = [replace(op, module=f"layers.{layer}.mlp") for layer in range(6) for op in OPS]
    found = folded(rows)
    assert [(repeat.start, repeat.stop, repeat.times) for repeat in found.repeats] == [(0, 4, 6)]


def test_what_another_repetition_waits_for_is_not_folded() -> None:
    rows = [row for layer in range(6) for row in (replace(GATHER, wait=5 * layer + 6), *OPS)][:-5]
    rows += OPS
    assert folded(rows).repeats == ()


def test_waits_move_with_their_rows() -> None:
    rows = [OPS[0]] * 20 + [replace(GATHER, wait=22), OPS[1], OPS[2]]
    found = folded(rows)
    (gather,) = [row for row in found.rows if isinstance(row, CapturedComm)]
    assert gather.wait is not None
    assert found.rows[gather.wait] == OPS[2]

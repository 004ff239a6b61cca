"""Fusion policies: which rows they merge, what that saves, and that waits and repeats follow."""

from dataclasses import replace

import pytest

from prism_jax.workload.captured.fusion import NEIGHBOURS, fused, merged
from prism_jax.workload.captured.program import FUSIONS, CapturedComm, CapturedOp, RankClass, Repeat
from tests.support.captured.programs import pointwise, product, reduction


def named(name: str, phase: str = "F") -> CapturedOp:
    return replace(pointwise(phase, 3e6, output_bytes=1e6), name=name)


def of(*rows: CapturedOp | CapturedComm, repeats: tuple[Repeat, ...] = ()) -> RankClass:
    return RankClass("all", 1, 0, rows, repeats)


def names(one: RankClass) -> list[str]:
    return [row.name if isinstance(row, CapturedOp) else row.collective for row in one.rows]


CHAIN = (product(), named("add"), named("gelu"), named("sum"), named("mul"), product())


@pytest.mark.parametrize(
    ("policy", "known"),
    [
        ("eager", ["mm", "add", "gelu", "sum", "mul", "mm"]),
        ("fused", ["mm", "add", "gelu", "sum", "mul", "mm"]),  # no chain is named
        ("inductor", ["mm", "add+gelu+sum+mul", "mm"]),
        ("megatron", ["mm", "add+gelu", "sum", "mul", "mm"]),
        ("xla", ["mm", "add+gelu+sum", "mul", "mm"]),
    ],
)
def test_which_rows_are_merged(policy: str, known: list[str]):
    assert names(fused(of(*CHAIN), policy)) == known


def test_every_policy_is_there():
    assert {*NEIGHBOURS, "fused"} == set(FUSIONS)


def test_a_merged_chain_does_not_read_again_what_it_wrote_and_backward_does_not_write_it():
    assert merged([named("a"), named("b"), named("c")]).n_bytes == pytest.approx(9e6 - 2e6)
    assert merged([named("a", "B"), named("b", "B"), named("c", "B")]).n_bytes == pytest.approx(9e6 - 4e6)


@pytest.mark.parametrize("policy", FUSIONS)
def test_flops_stay_and_bytes_do_not_grow(policy: str):
    before, after = of(*CHAIN), fused(of(*CHAIN), policy)
    assert after.flops() == before.flops()
    assert sum(op.n_bytes for op, _ in after.ops) <= sum(op.n_bytes for op, _ in before.ops)


def test_passes_streams_and_counts_are_not_mixed():
    rows = (
        named("a"),
        named("b", "B"),
        replace(named("c", "B"), stream=1),
        replace(named("d", "B"), stream=1, count=2),
    )
    assert len(fused(of(*rows), "inductor").rows) == 4


def test_nothing_is_merged_over_the_edge_of_a_repeat_or_a_wait():
    rows = (
        named("a"),
        named("b"),
        named("c"),
        named("d"),
        reduction(asynchronous=True, wait=6),
        named("e"),
        named("f"),
    )
    after = fused(of(*rows, repeats=(Repeat(1, 3, 5),)), "inductor")
    assert names(after) == ["a", "b+c", "d", "all_reduce", "e", "f"]
    assert after.repeats == (Repeat(1, 2, 5),)
    assert [row.wait for row in after.rows if isinstance(row, CapturedComm)] == [5]


def test_measured_seconds_are_added():
    rows = (replace(named("a"), seconds=1.0), replace(named("b"), seconds=2.0))
    assert merged(rows).seconds == 3.0
    assert merged([*rows, named("c")]).seconds is None

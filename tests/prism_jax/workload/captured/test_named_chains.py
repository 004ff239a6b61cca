"""Chains that rows name: one kernel in the place of the last row, with its bytes; waits, repeats and the host follow."""

from dataclasses import replace

import pytest

from prism_jax import ParallelPlan
from prism_jax.core.errors import SpecError
from prism_jax.workload.captured.block import OPERATION_SHARE
from prism_jax.workload.captured.check import check_program
from prism_jax.workload.captured.fusion import chain_ends, fused, in_chains
from prism_jax.workload.captured.model import CapturedModel
from prism_jax.workload.captured.program import CapturedComm, CapturedOp, RankClass, Repeat
from tests.support.captured.programs import pointwise, product, program, reduction

CHAIN = (product(), pointwise(chain=2), product(), replace(pointwise(), name="gelu", chain_bytes=1e6), pointwise())


def of(*rows: CapturedOp | CapturedComm, repeats: tuple[Repeat, ...] = ()) -> RankClass:
    return RankClass("all", 1, 0, rows, repeats)


def names(one: RankClass) -> list[str]:
    return [row.name if isinstance(row, CapturedOp) else row.collective for row in one.rows]


def test_a_chain_is_one_kernel_in_the_place_of_its_last_row():
    after = fused(of(*CHAIN), "fused")
    assert names(after) == ["mm", "mm", "add+gelu", "add"]
    assert [row.n_bytes for row in after.rows if isinstance(row, CapturedOp) and row.kind == "memory"] == [1e6, 6e7]


def test_other_policies_do_not_read_chains():
    assert fused(of(*CHAIN), "eager").rows == CHAIN


def test_a_product_that_a_chain_begins_with_stays_a_product():
    rows = (product("W", chain=1), pointwise("W", chain_bytes=2e8))
    (kernel,) = fused(of(*rows), "fused").rows
    assert isinstance(kernel, CapturedOp)
    assert (kernel.kind, kernel.shape, kernel.flops, kernel.n_bytes) == ("gemm", product().shape, product().flops, 2e8)


def test_nothing_is_left_to_do_where_no_byte_is_moved():
    (row,) = fused(of(pointwise(chain_bytes=0.0)), "fused").rows
    assert isinstance(row, CapturedOp)
    assert (row.kind, row.n_bytes) == ("none", 0.0)


def test_waits_and_repeats_follow():
    rows = (
        pointwise(),
        pointwise(chain=1),
        pointwise(chain_bytes=1e6),
        reduction(asynchronous=True, wait=4),
        pointwise(chain=1),
        pointwise(chain_bytes=1e6),
        reduction(asynchronous=True, wait=7),
    )
    after = fused(of(*rows, repeats=(Repeat(1, 6, 3),)), "fused")
    assert names(after) == ["add", "add", "all_reduce", "add", "all_reduce"]
    assert after.repeats == (Repeat(1, 4, 3),)
    assert [row.wait for row in after.rows if isinstance(row, CapturedComm)] == [3, 5]


def test_a_chain_that_leaves_its_repeat_stays_apart():
    one = of(*CHAIN, repeats=(Repeat(0, 2, 3),))
    assert chain_ends(one) == [0, 1, 2, 3, 4]
    assert names(fused(one, "fused")) == [row.name for row in CHAIN]


def test_only_what_one_kernel_could_do_counts_as_part_of_a_chain():
    assert in_chains(of(*CHAIN)) == [False, True, False, True, False]
    assert in_chains(of(product(), pointwise())) is None


def started(fusion: str, source: str) -> dict[str, list[float]]:
    """Kernel -> host time of every start, over that of a kernel of our own lists."""
    model = CapturedModel(replace(program(CHAIN, fusion=fusion), source=source))
    plan = ParallelPlan(micro_batch=1, global_batch=16, tp=2, dp=4, seq_len=128)
    found: dict[str, list[float]] = {}
    for op in model.block("stage_0", plan).kernels.ops:
        found.setdefault(op.kernel, []).append(op.host_share)
    return found


def test_the_host_starts_operations_of_a_chain_as_those_of_our_own_lists():
    assert started("eager", "spec")["memory"] == [0.25, 0.25, 1.0]
    assert started("fused", "spec")["memory"] == [1.0, 1.0]


def test_the_host_starts_every_operation_of_an_eager_framework_alike():
    assert set().union(*started("eager", "torch").values()) == {OPERATION_SHARE}
    assert set().union(*started("fused", "torch").values()) == {1.0}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ((pointwise(chain=3), pointwise()), "3 rows further on, but the class has 2 rows"),
        ((pointwise(chain=1), pointwise(chain=1), pointwise()), "a chain ends with an operation of its own pass"),
        ((pointwise(chain=1), pointwise("B")), "a chain ends with an operation of its own pass"),
        ((pointwise(chain=1), reduction()), "a chain ends with an operation of its own pass"),
    ],
)
def test_chains_that_lead_nowhere_are_refused(rows: tuple[CapturedOp | CapturedComm, ...], words: str):
    with pytest.raises(SpecError, match=words):
        check_program(program(rows))

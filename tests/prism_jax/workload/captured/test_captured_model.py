"""Captured programs as models: blocks, chains by name, and what a plan may change."""

from dataclasses import replace
from typing import Any

import pytest

from prism_jax.calibration.key import workload_of
from prism_jax.core.errors import SpecError
from prism_jax.plan.plan import ParallelPlan
from prism_jax.workload.base.workload import kinds_of, n_body
from prism_jax.workload.captured.check import check_program, plan_fields
from prism_jax.workload.captured.fusion import chain_ends, fused, in_chains
from prism_jax.workload.captured.model import OPERATION_SHARE, CapturedBlock, CapturedModel
from prism_jax.workload.captured.program import CapturedComm, CapturedOp, RankClass, Repeat
from tests.support.captured.programs import class_of, layer, names_of, pointwise, product, program, reduction


def plan_of(model: CapturedModel, **changes: Any) -> ParallelPlan:
    known = {name: value for name, value in plan_fields(model.program).items() if name != "state_dtypes"}
    return ParallelPlan(**known | changes)


def block_of(model: CapturedModel, **changes: Any) -> CapturedBlock:
    return model.block(kinds_of(model)[0], plan_of(model, **changes))


def gathered(**other: Any) -> CapturedComm:
    own: dict[str, Any] = {"collective": "all_gather", "axis": "dp", "ranks": 4, "stride": 2, "n_bytes": 2e8}
    given: dict[str, Any] = own | {"dtype": "bf16", "phase": "F", "purpose": "parameters"} | other
    return CapturedComm(**given)


def test_degrees_and_batch_follow_from_the_program():
    fields = plan_fields(program())
    assert (fields["tp"], fields["dp"], fields["pp"]) == (2, 4, 1)
    assert (fields["micro_batch"], fields["global_batch"], fields["seq_len"]) == (1, 16, 128)
    assert fields["dtype"] == "bf16"


def test_samples_that_micro_batches_do_not_divide_are_refused():
    with pytest.raises(SpecError, match="samples_per_step = 18"):
        CapturedModel(program(samples_per_step=18))


def test_repeats_and_counts_multiply_kernels_collectives_and_flops():
    block = block_of(CapturedModel(program()))
    forward = sum(op.count for op in block.kernels.ops if op.phase == "F" and op.kernel == "gemm")
    assert forward == 4
    assert [comm.count for comm in block.comms] == [4.0]
    model = CapturedModel(program())
    assert model.step_flops(plan_of(model), recomputed=False) == pytest.approx(3 * 4 * 2 * 4096**3 * 4 * 8)


def test_an_optimizer_row_is_no_part_of_a_micro_batch():
    rows = (*layer(), pointwise("opt"))
    assert all(row.phase != "opt" for row in block_of(CapturedModel(program(rows))).laned)


def test_gradients_that_are_summed_once_become_the_end_of_the_step():
    rows = (*layer(), reduction("W", axis="dp", ranks=4))
    model = CapturedModel(program(rows))
    assert {comm.axis for comm in block_of(model).comms} == {"tp"}
    assert plan_fields(model.program)["state_dtypes"] == {"grad_reduce": "bf16"}
    assert plan_of(model).zero_stage == 0


def test_sharded_parameters_are_gathered_by_their_rows():
    rows = (gathered(), *layer(), gathered(phase="B"), gathered(phase="B", collective="reduce_scatter", purpose=""))
    model = CapturedModel(program(rows))
    plan = plan_of(model)
    assert plan.sharding == "fsdp"
    kinds = [comm.kind for comm in block_of(model).comms if comm.axis == "dp"]
    assert kinds == ["all_gather", "all_gather", "reduce_scatter"]
    assert model.groups(plan) == (("sharded", 4),)
    assert sum(part.count for part in block_of(model).parameters) == pytest.approx(2.5e7)


def test_more_replicas_make_wider_groups():
    rows = (gathered(), *layer())
    model = CapturedModel(program(rows))
    sizes = {comm.axis: comm.size for comm in block_of(model, dp=64).comms}
    assert sizes == {"dp": 64, "tp": 2}


@pytest.mark.parametrize(
    ("changes", "field"), [({"tp": 4}, "tp"), ({"micro_batch": 2}, "micro_batch"), ({"sharding": "fsdp"}, "sharding")]
)
def test_what_the_rows_were_written_under_cannot_change(changes: dict[str, Any], field: str):
    model = CapturedModel(program())
    assert field in {problem.field for problem in model.problems(plan_of(model, **changes))}


def test_what_stays_free_is_no_problem():
    model = CapturedModel(program())
    assert not list(model.problems(plan_of(model, dp=64, global_batch=512, schedule="gpipe")))


def _staged(n: int) -> CapturedModel:
    rows = [layer(), *[layer(asynchronous=True) for _ in range(n - 1)]]
    classes = tuple(RankClass(f"stage {i}", 8, i, own, n_parameters=1e8) for i, own in enumerate(rows))
    return CapturedModel(program(axes={"tp": 2, "dp": 4, "pp": n}, world=8 * n, classes=classes))


def test_equal_stages_are_one_kind_of_block():
    model = _staged(4)
    assert len(kinds_of(model)) == 2
    assert n_body(model) == 4


def test_stages_may_share_devices():
    model = _staged(4)
    assert not list(model.problems(plan_of(model, pp=2, dp=8)))
    assert {problem.field for problem in model.problems(plan_of(model, pp=3))} == {"pp"}


def test_of_several_classes_of_a_stage_the_busiest_sets_the_pace():
    busy = RankClass("busy", 2, 0, (product(m=8192), product("B", m=8192)))
    idle = RankClass("idle", 6, 0, (product(), product("B")))
    model = CapturedModel(program(classes=(idle, busy)))
    assert [one.name for one in model.stages] == ["busy"]


@pytest.mark.parametrize(
    ("rows", "kind", "known"),
    [
        ((product(),), "", ""),
        ((CapturedOp("conv", "conv", "F", "fp32", (1, 8, 8, 8), 1e9, 1e6),), "", "cnn"),
        ((CapturedOp("sdpa", "attention", "F", "bf16", (8, 64, 64, 64, 64), 1e9, 1e6),), "", "encoder"),
        ((CapturedOp("sdpa", "attention", "F", "bf16", (8, 64, 64, 64, 64), 1e9, 1e6, causal=True),), "", ""),
        ((product(),), "dlrm", "dlrm"),
        ((product(),), "transformer", ""),
    ],
)
def test_corrections_are_those_of_the_kind_of_model_that_it_resembles(
    rows: tuple[CapturedOp, ...], kind: str, known: str
):
    assert workload_of(CapturedModel(program(rows, model_kind=kind))) == known


def test_models_are_equal_by_what_they_hold():
    one, same, other = (CapturedModel(program(micro_batches=n)) for n in (4, 4, 2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other


@pytest.mark.parametrize(
    ("module", "knob"),
    [
        ("layers.0.attention", ""),
        ("layers.0.moe.experts", "expert"),
        ("layers.0.block_sparse_moe.gate", "expert"),
        ("layers.0.mlp.gate", "expert"),
        ("layers.0.mlp.experts.3.up_proj", "expert"),
        ("layers.0.mlp.shared_experts.up_proj", ""),
        ("layers.1.mlp", ""),
        ("MoEModel/layer/0/attention", ""),
        ("MoEModel/layer/0/moe/dot", "expert"),
    ],
)
def test_what_routes_tokens_is_known_by_its_module(module: str, knob: str):
    """The gate of a layer is known by the experts that stand next to it."""
    rows = (replace(product(), module=module), replace(product(), module="layers.0.mlp.experts.0"))
    own = RankClass("all", 8, 0, rows, ())
    found = block_of(CapturedModel(program(classes=(own,)))).laned
    assert [row.kernel and row.kernel.knob for row in found] == [knob, "expert"]


def test_a_measured_kernel_takes_what_was_measured():
    block = block_of(CapturedModel(program((replace(product(), seconds=0.25),))))
    law = block.kernels.ops[0].law
    assert law is not None
    assert law.seconds(None, 0.0) == 0.25  # type: ignore[arg-type]


# --- Named chains ----------------------------------------------------------------------------------------------------
# Chains that rows name: one kernel in the place of the last row, with its bytes; waits, repeats and the host follow.


CHAIN = (product(), pointwise(chain=2), product(), replace(pointwise(), name="gelu", chain_bytes=1e6), pointwise())


def test_a_chain_is_one_kernel_in_the_place_of_its_last_row():
    after = fused(class_of(*CHAIN), "fused")
    assert names_of(after) == ["mm", "mm", "add+gelu", "add"]
    assert [row.n_bytes for row in after.rows if isinstance(row, CapturedOp) and row.kind == "memory"] == [1e6, 6e7]


def test_other_policies_do_not_read_chains():
    assert fused(class_of(*CHAIN), "eager").rows == CHAIN


def test_a_product_that_a_chain_begins_with_stays_a_product():
    rows = (product("W", chain=1), pointwise("W", chain_bytes=2e8))
    (kernel,) = fused(class_of(*rows), "fused").rows
    assert isinstance(kernel, CapturedOp)
    assert (kernel.kind, kernel.shape, kernel.flops, kernel.n_bytes) == ("gemm", product().shape, product().flops, 2e8)


def test_nothing_is_left_to_do_where_no_byte_is_moved():
    (row,) = fused(class_of(pointwise(chain_bytes=0.0)), "fused").rows
    assert isinstance(row, CapturedOp)
    assert (row.kind, row.n_bytes) == ("none", 0.0)


def test_waits_and_repeats_follow():
    chain = (pointwise(chain=1), pointwise(chain_bytes=1e6))
    first, second = (reduction(asynchronous=True, wait=wait) for wait in (4, 7))
    rows = (pointwise(), *chain, first, *chain, second)
    after = fused(class_of(*rows, repeats=(Repeat(1, 6, 3),)), "fused")
    assert names_of(after) == ["add", "add", "all_reduce", "add", "all_reduce"]
    assert after.repeats == (Repeat(1, 4, 3),)
    assert [row.wait for row in after.rows if isinstance(row, CapturedComm)] == [3, 5]


def test_a_chain_that_leaves_its_repeat_stays_apart():
    one = class_of(*CHAIN, repeats=(Repeat(0, 2, 3),))
    assert chain_ends(one) == [0, 1, 2, 3, 4]
    assert names_of(fused(one, "fused")) == [row.name for row in CHAIN]


def test_only_what_one_kernel_could_do_counts_as_part_of_a_chain():
    assert in_chains(class_of(*CHAIN)) == [False, True, False, True, False]
    assert in_chains(class_of(product(), pointwise())) is None


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

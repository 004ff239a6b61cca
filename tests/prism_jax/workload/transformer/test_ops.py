"""Operations of a transformer layer and what is fused of them."""

from dataclasses import replace

import pytest

from prism_jax.framework.software import Software
from prism_jax.plan.plan import ParallelPlan
from prism_jax.workload import catalog
from prism_jax.workload.transformer.loss import cross_entropy_kernels
from prism_jax.workload.transformer.op_lists import norm_kernels, rope_kernels
from prism_jax.workload.transformer.ops import head_ops, layer_ops
from prism_jax.workload.transformer.shard import Shard
from prism_jax.workload.transformer.spec import TransformerSpec
from tests.support.blocks import GPT, LLAMA, MLA, MOE, kernels_of

PLAN = ParallelPlan(micro_batch=2, global_batch=8, seq_len=512)


@pytest.mark.parametrize(
    "model", [GPT, LLAMA, MOE, MLA, replace(MLA, n_mtp=1)], ids=["gpt", "llama", "moe", "mla", "mtp"]
)
@pytest.mark.parametrize("attention", ["flash", "unfused"])
def test_flops_of_all_kernels_are_those_of_the_model(model: TransformerSpec, attention: str) -> None:
    plan = replace(PLAN, attention=attention)
    tokens = plan.micro_batch * plan.seq_len
    expected = tokens * model.train_flops_per_token(plan.seq_len, causal=attention == "flash")
    assert kernels_of(model, plan).flops() == pytest.approx(expected, rel=1e-12)


def test_backward_is_two_forwards() -> None:
    table = kernels_of(LLAMA, PLAN)
    assert table.flops("B", "W") == pytest.approx(2 * table.flops("F"))


def test_doubling_the_micro_batch_doubles_flops() -> None:
    once, twice = kernels_of(MOE, PLAN), kernels_of(MOE, replace(PLAN, micro_batch=4))
    assert twice.flops() == pytest.approx(2 * once.flops())


def test_tensor_parallelism_divides_flops() -> None:
    assert kernels_of(LLAMA, replace(PLAN, tp=4)).flops() == pytest.approx(kernels_of(LLAMA, PLAN).flops() / 4)


def test_context_parallelism_divides_flops() -> None:
    assert kernels_of(LLAMA, replace(PLAN, cp=2)).flops() == pytest.approx(kernels_of(LLAMA, PLAN).flops() / 2)


def test_expert_parallelism_changes_the_shape_of_expert_products_but_not_their_flops() -> None:
    here = layer_ops(MOE, replace(PLAN, ep=4, dp=4, global_batch=32), 1)
    alone = layer_ops(MOE, PLAN, 1)
    assert here.flops() == pytest.approx(alone.flops())
    batch = {op.name: op.batch for op in here.ops}
    assert batch["experts_in"] == 2


def test_busiest_expert_rank_sets_the_pace() -> None:
    assert MOE.moe is not None
    skewed = replace(MOE, moe=replace(MOE.moe, imbalance=1.5))
    plan = replace(PLAN, ep=4, dp=4, global_batch=32)
    experts = {
        name: sum(op.flops for op in layer_ops(model, plan, 1).ops if op.name.startswith("experts"))
        for name, model in (("even", MOE), ("skewed", skewed))
    }
    assert experts["skewed"] == pytest.approx(1.5 * experts["even"])


def test_flash_attention_moves_fewer_bytes_than_separate_kernels() -> None:
    bytes_of = {
        name: layer_ops(GPT, replace(PLAN, attention=name), 0).column("hbm_bytes").sum()
        for name in ("flash", "unfused")
    }
    assert bytes_of["flash"] < 0.8 * bytes_of["unfused"]


def test_sequence_parallelism_saves_memory_traffic_and_leaves_products_alone() -> None:
    whole, split = (layer_ops(GPT, replace(PLAN, tp=4, sequence_parallel=sp), 0) for sp in (False, True))
    assert split.column("hbm_bytes").sum() < whole.column("hbm_bytes").sum()
    assert split.flops() == whole.flops()


def test_full_recomputation_is_the_forward_again() -> None:
    table = layer_ops(LLAMA, PLAN, 0)
    again = table.repeated_in_backward()
    assert again.flops("B") == table.flops("F")
    assert again.flops("F", "W") == 0.0


def test_fp8_adds_casts() -> None:
    assert len(layer_ops(LLAMA, replace(PLAN, dtype="fp8"), 0)) > len(layer_ops(LLAMA, PLAN, 0))


@pytest.mark.parametrize(("dtype", "per_weight"), [("bf16", 2.0 + 10.0), ("fp16", 2.0 + 6.0)])
def test_gradients_that_are_added_apart_are_written_read_and_added(dtype: str, per_weight: float) -> None:
    """Inside the product 4 bytes are read and 4 written per weight; apart 2 written, 2 read and a sum of 4 (fp16: 2) updated."""
    fused, apart = (
        layer_ops(GPT, replace(PLAN, dtype=dtype, fused_grad_accumulation=fused), 0).column("hbm_bytes").sum()
        for fused in (True, False)
    )
    weights = 12 * GPT.hidden**2  # of the four products of a layer
    assert apart - fused == pytest.approx((per_weight - 8.0) * weights)


def test_queries_that_share_keys_are_one_product_of_the_same_flops():
    """Four heads of queries for one of keys: a quarter of the products, each with four times the rows."""
    apart, together = (
        {(op.name, op.phase): op for op in layer_ops(LLAMA, plan, 0).ops if op.name in ("scores", "values")}
        for plan in (replace(PLAN, attention="unfused", grouped_queries=grouped) for grouped in (False, True))
    )
    assert apart.keys() == together.keys()
    for key, op in apart.items():
        other = together[key]
        assert (other.flops, other.m, other.batch) == (op.flops, 4 * op.m, op.batch / 4)
        assert other.hbm_bytes < op.hbm_bytes  # keys and values are read once


# --- Fused and eager kernels: bytes by hand count, and what may never happen -----------------------------------------


ELEMENTWISE_LLAMA = catalog.model("llama-2-7b")
ELEMENTWISE_PLAN = ParallelPlan(micro_batch=2, global_batch=16, seq_len=4096, dp=8)
EAGER = Software(attention="eager", norm="eager", activation="eager", rope="eager", cross_entropy="eager")
FUSED = Software(attention="flash2", norm="fused", activation="fused", rope="fused", cross_entropy="fused")


def shard(software: Software) -> Shard:
    return Shard.of(ELEMENTWISE_LLAMA, replace(ELEMENTWISE_PLAN, software=software))


def bytes_of(kernels, name: str, phase: str) -> float:
    return sum(op.hbm_bytes for op in kernels if op.name == name and op.phase == phase)


def test_bytes_of_a_norm_follow_the_operations() -> None:
    n, apart, one = 1000.0, shard(EAGER), shard(FUSED)
    assert bytes_of(norm_kernels("norm", n, one), "norm", "F") == 4 * n
    # cast 2+4, square 4+4, mean 4, scale 4+4, cast 4+2, weight 2+2
    assert bytes_of(norm_kernels("norm", n, apart), "norm", "F") == (6 + 8 + 4 + 8 + 6 + 4) * n
    layer_norm = norm_kernels("norm", n, replace(apart, rms=False))
    assert layer_norm == norm_kernels("norm", n, replace(one, rms=False))


def test_a_compiler_fuses_what_runs_apart() -> None:
    compiled = shard(replace(EAGER, compile=True))
    assert rope_kernels(8.0, compiled) == rope_kernels(8.0, shard(FUSED))
    assert cross_entropy_kernels(8.0, compiled) != cross_entropy_kernels(8.0, shard(FUSED))


@pytest.mark.parametrize("name", ["attention", "norm", "activation", "rope", "cross_entropy"])
def test_fusing_one_thing_saves_bytes_and_changes_no_flops(name: str) -> None:
    plan = replace(ELEMENTWISE_PLAN, software=EAGER)
    better = replace(plan, software=replace(EAGER, **{name: getattr(FUSED, name)}))
    before, after = (
        layer_ops(ELEMENTWISE_LLAMA, each, 0) + head_ops(ELEMENTWISE_LLAMA, each) for each in (plan, better)
    )
    assert after.column("hbm_bytes").sum() < before.column("hbm_bytes").sum()
    if name != "attention":  # flash attention skips the masked half
        assert after.flops() == before.flops()


def test_a_softmax_apart_moves_more_than_a_fused_one() -> None:
    eager, fused = (
        layer_ops(ELEMENTWISE_LLAMA, replace(ELEMENTWISE_PLAN, software=replace(EAGER, attention=name)), 0)
        for name in ("eager", "fused_softmax")
    )
    n_score = ELEMENTWISE_PLAN.micro_batch * ELEMENTWISE_LLAMA.n_heads * ELEMENTWISE_PLAN.seq_len**2
    more = sum(
        op.hbm_bytes * sign for table, sign in ((eager, 1), (fused, -1)) for op in table.ops if op.name == "softmax"
    )
    assert more == pytest.approx((12 - 4 + 12 - 6) * n_score)

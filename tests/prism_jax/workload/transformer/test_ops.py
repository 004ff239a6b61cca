"""Operations of a transformer layer and of its loss, and what is fused of them."""

from dataclasses import replace

import pytest

from prism_jax.calibration.open_fields import usual_software
from prism_jax.cost.compute import op_seconds
from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.memory import memory, memory_notes
from prism_jax.framework.frameworks import FSDP, MEGATRON_CORE
from prism_jax.framework.software import CROSS_ENTROPY, Software
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster, device
from prism_jax.workload import catalog
from prism_jax.workload.base.kernels import KernelTable
from prism_jax.workload.base.workload import total_bytes
from prism_jax.workload.transformer.loss import (
    chunk_count,
    cross_entropy_kernels,
    loss_kernels,
    loss_peak_bytes,
    loss_saved_tensors,
)
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


@pytest.mark.parametrize(
    ("model", "changes", "factor"), [(MOE, {"micro_batch": 4}, 2), (LLAMA, {"tp": 4}, 1 / 4), (LLAMA, {"cp": 2}, 1 / 2)]
)
def test_micro_batches_multiply_and_ranks_divide_flops(model: TransformerSpec, changes: dict, factor: float) -> None:
    assert kernels_of(model, replace(PLAN, **changes)).flops() == pytest.approx(
        factor * kernels_of(model, PLAN).flops()
    )


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


# --- Loss: bytes and seconds by how it is computed, against counts by hand and published measurements ----------------


GEMMA = 8192.0, 256000.0, 2304.0  # tokens, vocabulary, hidden size of arXiv 2411.09009 table 1, measured on an A100
MIB = 2.0**20


def of_loss(kind: str, n_chunk: int = 0) -> Shard:
    software = Software(cross_entropy=kind, cross_entropy_chunks=n_chunk)
    return Shard.of(catalog.model("llama-2-7b"), ParallelPlan(8, 8, seq_len=1024, software=software))


def held_bytes(kind: str, n_chunk: int = 0, sizes: tuple[float, float, float] = GEMMA) -> float:
    """Saved and momentary bytes, without the input of the product."""
    tokens = sizes[0]
    own = of_loss(kind, n_chunk)
    saved = [one for one in loss_saved_tensors(*sizes, tokens, own) if one.name != "head input"]
    return total_bytes(saved) + loss_peak_bytes(*sizes, own, FSDP.memory)


def test_every_kind_of_loss_holds_its_own_bytes() -> None:
    """In 16 bits a logit: 12 bytes at the peak of PyTorch's operations, 6 compiled, 2 in place."""
    logits = GEMMA[0] * GEMMA[1]
    assert held_bytes("eager") == 12 * logits
    assert held_bytes("compiled") == 6 * logits
    assert held_bytes("fused") == 2 * logits
    assert held_bytes("cut") == 4 * GEMMA[0]
    assert len({held_bytes(kind) for kind in CROSS_ENTROPY}) == len(CROSS_ENTROPY)


def test_a_linear_loss_holds_what_liger_was_measured_to() -> None:
    """arXiv 2411.09009 table 1: 1,474 MB, of which 1,161 MB are the gradients of input and matrix."""
    assert held_bytes("linear") / MIB == pytest.approx(1474, rel=0.02)
    assert chunk_count(of_loss("linear").software, *GEMMA) == 64  # of 128 tokens


def test_eight_chunks_save_seven_gib_of_a_loss_in_separate_operations() -> None:
    """torchtitan PR 996: Llama-3-8B, 8,192 tokens."""
    sizes = 8192.0, 128256.0, 4096.0
    assert (held_bytes("eager", sizes=sizes) - held_bytes("eager", 8, sizes)) / 2**30 == pytest.approx(7.0, rel=0.05)


@pytest.mark.parametrize(("kind", "ms"), [("compiled", 142), ("linear", 304), ("cut", 145)])
def test_seconds_of_a_loss_are_those_that_were_measured(kind: str, ms: float) -> None:
    """arXiv 2411.09009 table 1, forward and backward on an A100."""
    table = KernelTable.of(loss_kernels(*GEMMA, of_loss(kind)))
    constants = replace(efficiency("ampere"), in_step=1.0)
    assert 1e3 * op_seconds(table, device("a100-80gb"), "bf16", constants).sum() == pytest.approx(ms, rel=0.15)


@pytest.mark.parametrize("kind", CROSS_ENTROPY)
@pytest.mark.parametrize("n_chunk", [0, 4])
def test_flops_of_the_loss_do_not_depend_on_chunks(kind: str, n_chunk: int) -> None:
    """Three products; a fourth where logits are computed again."""
    flops = KernelTable.of(loss_kernels(*GEMMA, of_loss(kind, n_chunk))).flops()
    assert flops == pytest.approx((8 if kind == "cut" else 6) * GEMMA[0] * GEMMA[1] * GEMMA[2])


def test_more_chunks_of_a_linear_loss_never_hold_more() -> None:
    held = [held_bytes("linear", n) for n in (1, 2, 4, 8, 64, 8192)]
    assert held == sorted(held, reverse=True)


def test_a_long_context_fits_with_a_linear_loss_alone() -> None:
    """Liger-Kernel's README: Llama-3-8B, batches of 8 on 8 A100 of 80 GB, FSDP, full recomputation, up to 16k tokens."""
    model = replace(catalog.model("llama-3-8b"), max_seq_len=16384)
    where = cluster("dgx-a100", 8)
    for kind in CROSS_ENTROPY:
        software = usual_software(Software(cross_entropy=kind), FSDP, "ampere")
        plan = ParallelPlan(8, 64, seq_len=16384, dp=8, sharding="fsdp", recompute="full", software=software)
        found = memory(model, where, plan, FSDP.memory)
        assert found.fits == (kind == "linear")
        notes = list(memory_notes(model, where, plan, FSDP.memory))
        assert any("than linear" in note for note in notes) == (kind not in ("linear", "cut"))


def test_logits_of_megatron_are_kept_as_its_papers_say() -> None:
    """arXiv 2205.05198 section 4.3: fp32 logits; their 16-bit original beside them while the loss is computed."""
    sizes = 8192.0, 128256.0, 4096.0
    software = usual_software(Software(), MEGATRON_CORE, "hopper")
    own = Shard.of(catalog.model("llama-3-8b"), ParallelPlan(1, 1, seq_len=8192, software=software))
    assert loss_peak_bytes(*sizes, own, MEGATRON_CORE.memory) == 2 * sizes[0] * sizes[1]

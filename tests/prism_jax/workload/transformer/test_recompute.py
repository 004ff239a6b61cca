"""Recomputation by layer and by module: bytes, kernels, collectives and FLOPs against each other."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from prism_jax.cost.memory import memory_notes
from prism_jax.framework.base import MEGATRON, MemoryOptions
from prism_jax.framework.software import Software
from prism_jax.plan.fields import MODULES, SavedDtypes
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.workload.base.workload import total_bytes
from prism_jax.workload.catalog import model as catalog_model
from prism_jax.workload.transformer.blocks import LayerBlock, sorts_of_layers
from prism_jax.workload.transformer.mixers import WindowSpec
from prism_jax.workload.transformer.params import recomputed_flops_per_token
from prism_jax.workload.transformer.sizes import MoESpec
from prism_jax.workload.transformer.spec import TransformerSpec

LLAMA = catalog_model("llama-3-8b")
MOE = replace(LLAMA, name="moe", moe=MoESpec(8, 2, 2048, n_shared=1, n_dense_first=2))
MLA = replace(catalog_model("deepseek-v3"), n_mtp=0)
CHUNKED = replace(
    MOE,
    moe=MoESpec(8, 1, 2048, n_shared=1, every=2),
    window=WindowSpec(1000, ("chunked", "chunked", "chunked", "full")),
)
MODELS = {"llama": LLAMA, "moe": MOE, "mla": MLA, "chunked": CHUNKED}
PLAN = ParallelPlan(micro_batch=1, global_batch=4, seq_len=4096, tp=2, sequence_parallel=True)
KINDS: dict[str, dict[str, Any]] = {
    "full": {"recompute": "full"},
    "block": {"recompute": "full", "recompute_method": "block", "recompute_num_layers": 8},
    "uniform": {"recompute": "full", "recompute_num_layers": 4},
    "selective_op": {"recompute": "selective_op"},
    "selective_layer": {"recompute": "selective_layer", "recompute_num_layers": 2},
    **{name: {"recompute": "selective", "recompute_modules": (name,)} for name in MODULES},
}


def saved(model: TransformerSpec, *, is_moe: bool = False, **changes: Any) -> float:
    return total_bytes(LayerBlock(model, replace(PLAN, **changes), model.n_layers - 1 if is_moe else 0).saved(MEGATRON))


def again_flops(model: TransformerSpec, plan: ParallelPlan) -> float:
    """FLOPs per token of the kernels that run again, counted on the devices of a tensor-parallel group."""
    total = 0.0
    for layer, n_layer in sorts_of_layers(model).values():
        kernels = LayerBlock(model, plan, layer).kernels.ops
        total += n_layer * sum(op.count * op.flops for op in kernels if op.name.endswith(" again"))
    return total * plan.tp / (plan.micro_batch * plan.seq_len)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_hardware_flops_count_the_kernels_that_run_again(name: str, kind: str):
    model, plan = MODELS[name], replace(PLAN, tp=1, sequence_parallel=False, **KINDS[kind])
    assert recomputed_flops_per_token(model, plan) == pytest.approx(again_flops(model, plan), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("is_moe", [False, True])
def test_every_module_saves_at_most_what_a_layer_holds_and_all_of_them_less_than_none(is_moe: bool):
    whole, full = saved(MOE, is_moe=is_moe), saved(MOE, is_moe=is_moe, recompute="full")
    for n in range(1, len(MODULES) + 1):
        for some in combinations(MODULES, n):
            part = saved(MOE, is_moe=is_moe, recompute="selective", recompute_modules=some)
            assert full <= part <= whole
            assert part == pytest.approx(saved(MOE, is_moe=is_moe, recompute="selective", recompute_modules=some[::-1]))


@pytest.mark.parametrize(
    ("module", "is_moe", "elements"),
    [
        ("layernorm", False, 2 * LLAMA.hidden),
        ("mlp", False, 3 * LLAMA.ffn_hidden),
        ("mlp", True, 0),
        ("mlp_act", False, LLAMA.ffn_hidden),
        ("mlp_act", True, 2048),
        ("moe_act", True, 2 * 2048),
        ("moe_act", False, 0),
        ("shared_experts", True, 3 * 2048),
        ("moe", True, 2 * (3 * 2048 + LLAMA.hidden) + 2 * 8 + 3 * 2048),
    ],
)
def test_a_module_leaves_out_its_tensors(module: str, is_moe: bool, elements: float):
    """Elements of 2 bytes per token without tensor parallelism; fp32 router scores count twice."""
    one = {"tp": 1, "sequence_parallel": False}
    left_out = saved(MOE, is_moe=is_moe, **one) - saved(
        MOE, is_moe=is_moe, recompute="selective", recompute_modules=(module,), **one
    )
    assert left_out == pytest.approx(2.0 * PLAN.seq_len * elements)


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("module", [(), ("moe_act",), ("moe",)])
def test_what_the_weights_of_the_router_multiply_is_kept_for_their_gradients(gated: bool, module: tuple[str, ...]):
    """Outputs of experts, or what their second projection reads before its weights; the kernels of gates join these."""
    model, routed, ffn = replace(MOE, gated=gated), 2.0 * 2 * PLAN.seq_len, 2048
    plan = replace(PLAN, tp=1, sequence_parallel=False, recompute="selective" if module else "none")
    plan = replace(plan, recompute_modules=module or plan.recompute_modules)

    def kept(options: MemoryOptions = MEGATRON, date: str = "") -> dict[str, float]:
        own = replace(plan, software=Software(date=date))
        return {one.name: one.size_bytes for one in LayerBlock(model, own, model.n_layers - 1).saved(options)}

    new, old = kept(), kept(replace(MEGATRON, weighted_experts=False))
    assert kept(date="2025-02") == old
    assert kept(date="2026-01") == new
    assert "expert output" not in new
    assert old.get("expert output", 0.0) == (0.0 if module else routed * model.hidden)
    assert new.get("expert gate output", 0.0) == (0.0 if module or gated else routed * ffn)
    assert {name: size for name, size in new.items() if name in old} == {
        name: size for name, size in old.items() if name != "expert output"
    }


def test_the_latent_projections_are_recomputed_where_there_are_any():
    plan = {"recompute": "selective", "recompute_modules": ("mla_up_proj",)}
    assert MLA.mla is not None
    norms = (MLA.mla.q_lora_rank + MLA.mla.kv_lora_rank) / PLAN.tp  # of the latents; split by sequence parallelism
    width = MLA.n_heads * (2 * MLA.qk_head_dim + MLA.v_head_dim) / PLAN.tp + norms
    assert saved(MLA) - saved(MLA, **plan) == pytest.approx(2.0 * PLAN.seq_len * width)
    assert saved(LLAMA) == saved(LLAMA, **plan)


def test_layers_of_a_chunk_are_recomputed_in_proportion():
    none, full = saved(LLAMA), saved(LLAMA, recompute="full")
    for n_layer in (1, 8, 16):
        block = {"recompute": "full", "recompute_method": "block", "recompute_num_layers": n_layer}
        share = n_layer / 16
        assert saved(LLAMA, pp=2, **block) == pytest.approx(share * full + (1 - share) * none)
    every_other = {"recompute": "selective_layer", "recompute_num_layers": 2}
    assert saved(LLAMA, **every_other) == pytest.approx((full + none) / 2)
    assert saved(LLAMA, recompute="selective_layer", recompute_num_layers=1) == full
    assert saved(LLAMA, recompute="full", recompute_num_layers=4) == pytest.approx(full / 4)


def test_a_longer_checkpoint_brings_more_back_at_once():
    one, four = (
        LayerBlock(LLAMA, replace(PLAN, recompute="full", recompute_num_layers=n), 0).recomputed_bytes(MEGATRON)
        for n in (1, 4)
    )
    assert four - one == pytest.approx(3 * saved(LLAMA) + (1 - 1 / 4) * saved(LLAMA, recompute="full"))


def test_forward_collectives_run_again_with_their_part_of_the_layer():
    def again(**changes: Any) -> float:
        comms = LayerBlock(MOE, replace(PLAN, **changes), 0).comms
        return sum(comm.count for comm in comms if comm.axis == "tp" and comm.phase == "B")

    none, full = again(), again(recompute="full")
    assert again(recompute="selective", recompute_modules=("mlp",)) - none == pytest.approx((full - none) / 2)
    half = {"recompute": "full", "recompute_method": "block", "recompute_num_layers": 16}
    assert again(**half) - none == pytest.approx((full - none) / 2)
    assert again(recompute="selective", recompute_modules=("layernorm",)) == none


def test_a_torchtitan_layer_keeps_the_results_of_attention_and_alternate_products():
    """Layer input, query, value, attention and its sums, gate, down: 2 bytes each per token, without parallelism."""
    plan = {"tp": 1, "sequence_parallel": False, "recompute": "selective_op"}
    h, heads, kv, ffn = LLAMA.hidden, LLAMA.n_heads, LLAMA.kv_dim, LLAMA.ffn_hidden
    expected = PLAN.seq_len * (2 * (h + h + kv + h + ffn + h) + 4 * heads)
    assert saved(LLAMA, **plan) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"recompute": "selective"}, True),
        ({"recompute": "selective", "attention": "unfused"}, False),
        ({"recompute": "selective", "recompute_modules": ("mlp",)}, False),
        ({"recompute": "selective", "recompute_modules": ("moe",)}, True),
        ({"recompute": "full"}, False),
        ({}, False),
    ],
)
def test_a_note_says_where_recomputation_saves_nothing(changes: dict[str, Any], says: bool):
    notes = list(memory_notes(LLAMA, catalog.cluster("dgx-h100", 2), replace(PLAN, **changes), MEGATRON))
    assert bool(notes) is says
    assert all("saves" in note and "per device" in note for note in notes)


def test_outputs_of_experts_are_not_brought_back_where_their_weights_are_applied_before():
    """Of `moe_act` one product of gate and values runs again per token and expert."""
    plan = replace(PLAN, tp=1, sequence_parallel=False, recompute="selective", recompute_modules=("moe_act",))
    block = LayerBlock(MOE, plan, MOE.n_layers - 1)
    assert block.recomputed_bytes(MEGATRON) == pytest.approx(2.0 * PLAN.seq_len * 2 * 2048)


def test_activations_wait_in_the_format_that_is_stated():
    """fp8 halves the inputs of SwiGLU, 12 bits and an exponent per 128 elements take a quarter off the output of attention."""
    narrow = SavedDtypes(activation_input="fp8")
    elements = PLAN.seq_len * 2 * LLAMA.ffn_hidden / PLAN.tp
    assert saved(LLAMA) - saved(LLAMA, saved_dtypes=narrow) == pytest.approx(elements)
    output = saved(LLAMA) - saved(LLAMA, saved_dtypes=SavedDtypes(attention_output="e5m6"))
    assert output == pytest.approx((0.5 - 1.0 / 128) * PLAN.seq_len * LLAMA.hidden / PLAN.tp)
    for recipe, n_bytes in {"tensorwise": 1.0, "blockwise": 1.0 + 4.0 / 128, "mxfp8": 1.0 + 1.0 / 32}.items():
        fp8: dict[str, Any] = {"dtype": "fp8", "fp8_recipe": recipe}
        less = saved(LLAMA, **fp8) - saved(LLAMA, **fp8, saved_dtypes=narrow)
        assert less == pytest.approx((2.0 - n_bytes) * elements)  # scales are those of the inputs of products

"""Adapters: published parameter counts, FLOPs of a frozen layer, what is saved, held, exchanged and updated."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.core.errors import SpecError
from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.memory import memory, state_factors
from prism_jax.cost.partition import chunk_blocks, group_splits, stage_weights
from prism_jax.cost.step import step_cost
from prism_jax.cost.step_end import end_work
from prism_jax.framework.base import MEGATRON
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster
from prism_jax.workload.base.kernels import KernelTable
from prism_jax.workload.base.workload import Workload, total_bytes
from prism_jax.workload.catalog import model as preset
from prism_jax.workload.transformer.adapters import adapter_params
from prism_jax.workload.transformer.sizes import AdapterSpec
from prism_jax.workload.transformer.spec import TransformerSpec
from tests.support.blocks import LLAMA, MLA, MOE, kernels_of

PLAN = ParallelPlan(micro_batch=2, global_batch=8, seq_len=512)
ATTENTION, ALL = AdapterSpec(16), AdapterSpec(16, ("all",))


def with_adapters(model: TransformerSpec, spec: AdapterSpec) -> TransformerSpec:
    return replace(model, adapters=spec)


def layer_flops(model: Workload, *phases: str) -> float:
    return model.block("dense_layer", PLAN).kernels.flops(*phases)


# --- parameters ---


def test_llama_2_7b_with_rank_8_on_queries_and_values_trains_4194304():
    assert with_adapters(preset("llama2-7b"), AdapterSpec(8, ("q_proj", "v_proj"))).n_params_trained() == 4_194_304


def test_llama_2_70b_of_mlperf_trains_44_564_480():
    spec = AdapterSpec(16, ("linear_qkv", "linear_proj"))
    assert with_adapters(preset("llama2-70b"), spec).n_params_trained() == 44_564_480


def test_all_matrices_of_a_layer_cost_rank_times_both_widths():
    h, kv, ffn = LLAMA.hidden, LLAMA.kv_dim, LLAMA.ffn_hidden
    widths = 2 * (h + h) + 2 * (h + kv) + 3 * (h + ffn)
    assert adapter_params(with_adapters(LLAMA, ALL), is_moe=False) == (16 * widths, 0)


def test_routed_experts_have_an_adapter_each():
    beside, on_experts = adapter_params(with_adapters(MOE, AdapterSpec(4, ("down_proj",))), is_moe=True)
    assert (beside, on_experts) == (4 * (512 + 1024), 8 * 4 * (512 + 1024))


@pytest.mark.parametrize("model", [LLAMA, MOE, MLA], ids=["dense", "experts", "latent"])
@pytest.mark.parametrize("quantised", ["none", "nf4"])
def test_the_parameters_of_all_blocks_are_the_model_and_its_adapters(model: TransformerSpec, quantised: str):
    own = with_adapters(model, replace(ALL, quantised=quantised))
    held: dict[str, float] = {}
    for run in own.layout:
        for part in own.block(run.kind, PLAN).parameters:
            held[part.group] = held.get(part.group, 0.0) + run.count * part.count
    trained = sum(n for name, n in held.items() if name not in own.frozen_groups(PLAN))
    assert trained == own.n_params_trained()
    assert sum(held.values()) - trained == model.n_params()
    assert set(held) <= {name for name, _ in own.groups(PLAN)}


# --- FLOPs ---


def test_a_frozen_layer_loses_a_third_of_its_products_and_none_of_its_scores():
    frozen = with_adapters(LLAMA, AdapterSpec(0))
    assert layer_flops(frozen, "W") == 0.0
    assert layer_flops(frozen, "F") == layer_flops(LLAMA, "F")
    assert layer_flops(frozen, "B") == layer_flops(LLAMA, "B")
    scores = sum(op.flops for op in LLAMA.block("dense_layer", PLAN).kernels.ops if op.kernel == "attention")
    assert layer_flops(frozen) == pytest.approx((layer_flops(LLAMA) - scores) * 2 / 3 + scores, rel=1e-12)


@pytest.mark.parametrize("model", [LLAMA, MOE, MLA], ids=["dense", "experts", "latent"])
@pytest.mark.parametrize("spec", [AdapterSpec(0), ALL, ATTENTION], ids=["rank 0", "all", "attention"])
def test_kernels_have_the_flops_of_the_model(model: TransformerSpec, spec: AdapterSpec):
    """Under full recomputation, which wants every input gradient; what runs twice is counted apart."""
    own, plan = with_adapters(model, spec), replace(PLAN, recompute="full")
    n_tokens = plan.micro_batch * plan.seq_len
    once = own.step_flops(plan, recomputed=False) / plan.global_batch * plan.micro_batch
    assert once == pytest.approx(n_tokens * own.model_flops_per_token(plan.seq_len))
    twice = own.step_flops(plan, recomputed=True) / plan.global_batch * plan.micro_batch
    assert kernels_of(own, plan).flops() == pytest.approx(twice, rel=1e-12)


def test_adapters_alone_cost_three_times_their_forward():
    none, own = with_adapters(LLAMA, AdapterSpec(0)), with_adapters(LLAMA, ALL)
    n_tokens = PLAN.micro_batch * PLAN.seq_len
    forward = 2.0 * n_tokens * own.n_params_trained() / LLAMA.n_layers
    assert layer_flops(own, "F") - layer_flops(none, "F") == pytest.approx(forward)
    assert layer_flops(own, "W") == pytest.approx(forward)


def test_below_the_first_adapter_of_layer_0_there_are_no_input_gradients():
    """Of four layers one needs none of the gradients in front of the down projection, that of its input among them."""
    own = with_adapters(LLAMA, AdapterSpec(1, ("down_proj",)))
    b = {op.name: op.count for op in own.block("dense_layer", PLAN).kernels.ops if op.phase == "B"}
    assert b["qkv"] == b["flash"] == b["attention_out"] == b["mlp_in"] == b["mlp_out"] == 0.75
    assert b["mlp_out down_proj a"] == 1.0
    whole = own.block("dense_layer", replace(PLAN, recompute="full")).kernels
    assert all(op.count == 1.0 for op in whole.ops if op.phase == "B")


def test_a_base_in_four_bits_is_brought_back_before_both_products_of_every_matrix():
    own = with_adapters(LLAMA, replace(ATTENTION, quantised="nf4"))
    ops = own.block("dense_layer", replace(PLAN, recompute="full")).kernels.ops
    back = [op for op in ops if "dequantise" in op.name]
    matrices = LLAMA.layer_params(0).attention + LLAMA.layer_params(0).mlp
    assert sum(op.hbm_bytes for op in back if op.phase == "F") == pytest.approx((4.127 / 8 + 2) * matrices, rel=1e-3)
    assert [sum(op.phase == p for op in back) for p in "FBW"] == [4, 8, 0]  # backward, and the forward once more
    assert not any("dequantise" in op.name for op in own.block("head", PLAN).kernels.ops)


def test_eager_adapters_start_more_kernels_than_fused_ones():
    def launches(spec: AdapterSpec) -> float:
        return sum(op.n_launch for op in with_adapters(LLAMA, spec).block("dense_layer", PLAN).kernels.ops)

    per_target = (launches(ATTENTION) - launches(AdapterSpec(0))) / 4
    assert per_target == 6 + 4  # products of A and B in three passes; scale and add, forward and backward
    assert launches(ATTENTION) - launches(replace(ATTENTION, fused=True)) == 4 * 4
    assert launches(replace(ATTENTION, dropout=0.1)) - launches(ATTENTION) == 4 * 2


def test_kernels_of_adapters_take_the_host_half_of_what_those_of_a_layer_stand_for():
    table = with_adapters(LLAMA, ATTENTION).block("dense_layer", PLAN).kernels
    own, base = ([op for op in table.ops if (" " in op.name) == is_own] for is_own in (True, False))
    started = float(table.launches.sum() - KernelTable.of(base).launches.sum())
    assert started == 0.5 * sum(op.n_launch * op.count for op in own) == 0.5 * 4 * (6 + 4)


# --- memory ---


def test_inputs_that_only_a_frozen_weight_would_read_are_not_saved():
    def saved(model: TransformerSpec) -> dict[str, float]:
        return {one.name: one.size_bytes for one in model.block("dense_layer", PLAN).saved(MEGATRON)}

    full, frozen, own = (
        saved(one) for one in (LLAMA, with_adapters(LLAMA, AdapterSpec(0)), with_adapters(LLAMA, ATTENTION))
    )
    inputs = {"qkv projection input", "mlp input", "mlp down projection input"}
    assert set(full) - set(frozen) == inputs
    assert set(full) - set(own) == inputs - {"qkv projection input"}
    assert own["qkv projection input"] == full["qkv projection input"]
    assert all(full[name] == size for name, size in frozen.items())


def test_an_adapter_reads_its_input_in_16_bits_under_fp8():
    plan = replace(PLAN, dtype="fp8")
    own = {
        one.name: one.size_bytes for one in with_adapters(LLAMA, ATTENTION).block("dense_layer", plan).saved(MEGATRON)
    }
    assert own["qkv projection input"] == 2.0 * PLAN.micro_batch * PLAN.seq_len * LLAMA.hidden


def test_dropout_costs_every_adapter_a_copy_and_a_mask():
    def kept(spec: AdapterSpec) -> float:
        return total_bytes(with_adapters(LLAMA, spec).block("dense_layer", PLAN).saved(MEGATRON))

    n_token = PLAN.micro_batch * PLAN.seq_len
    assert kept(replace(ATTENTION, dropout=0.1)) - kept(ATTENTION) == 4 * 3 * n_token * LLAMA.hidden


@pytest.mark.parametrize(("quantised", "matrix_bytes"), [("none", 2.0), ("nf4", 4.127 / 8), ("int4", 0.5195)])
def test_states_are_those_of_the_adapters_and_the_frozen_weights_alone(quantised: str, matrix_bytes: float):
    own = with_adapters(LLAMA, replace(ATTENTION, quantised=quantised))
    found = memory(own, cluster("dgx-h100", 1), replace(PLAN, global_batch=2)).worst
    n = own.n_params_trained()
    layer = LLAMA.layer_params(0)
    matrices = LLAMA.n_layers * (layer.attention + layer.mlp)
    expected = 2.0 * n + matrix_bytes * matrices + 2.0 * (LLAMA.n_params() - matrices)
    assert found.parameters_bytes == pytest.approx(expected, rel=1e-4)
    assert (found.gradients_bytes, found.optimizer_bytes) == (4.0 * n, 12.0 * n)


def test_fsdp_shards_frozen_weights_and_gathers_them_in_their_own_format():
    plan = replace(PLAN, dp=4, sharding="fsdp")
    own = with_adapters(LLAMA, replace(ATTENTION, quantised="nf4"))
    states = state_factors(own, plan, MEGATRON)
    names = [name for name, _ in own.groups(plan)]
    parameters = dict(zip(names, states.parameters.tolist(), strict=True))
    assert parameters["frozen_matrix"] == pytest.approx(4.127 / 8 / 4, rel=1e-3)
    assert parameters["frozen"] == 2.0 / 4
    assert dict(zip(names, states.gradients.tolist(), strict=True))["frozen"] == 0.0


# --- end of the step, gathering ---


def test_gradients_are_reduced_and_updated_for_adapters_alone():
    plan = replace(PLAN, dp=4, zero_stage=1)
    machine, eff = cluster("dgx-h100", 4), efficiency("hopper")

    def work(model: TransformerSpec) -> tuple[float, float]:
        weights = stage_weights(model, plan, chunk_blocks(model, plan), [(0,)])[0]
        end = end_work(machine, plan, group_splits(model, plan), weights, eff)
        return float(end.optimizer_s), float(weights.trained.sum())

    own = with_adapters(LLAMA, ATTENTION)
    (full_s, n_full), (own_s, n_own) = work(LLAMA), work(own)
    assert (n_full, n_own) == (LLAMA.n_params(), own.n_params_trained())
    assert own_s / full_s == pytest.approx(n_own / n_full)


def test_a_tied_embedding_that_is_frozen_has_no_gradients_to_add_up():
    plan = replace(PLAN, pp=2)
    tied = replace(LLAMA, tied_embeddings=True)
    held = [(0,), (1,)]
    full, own = (stage_weights(m, plan, chunk_blocks(m, plan), held) for m in (tied, with_adapters(tied, ATTENTION)))
    assert float(full[0].shared) > 0.0
    assert float(own[0].shared) == 0.0


def test_frozen_weights_are_gathered_twice_and_never_scattered():
    plan = replace(PLAN, dp=8, global_batch=16, sharding="fsdp", overlap=replace(PLAN.overlap, dp=False))
    machine, eff = cluster("dgx-h100", 8), efficiency("hopper")

    def dp_s(model: TransformerSpec) -> np.ndarray:
        return np.asarray(step_cost(model, machine, plan, eff).comm_s)

    full, own = dp_s(LLAMA), dp_s(with_adapters(LLAMA, AdapterSpec(0)))
    assert own.sum() < 0.75 * full.sum()  # bf16: gathered, gathered, scattered, of which the last is gone
    assert own.sum() > 0.6 * full.sum()


# --- steps ---


def test_a_step_with_adapters_lies_between_two_thirds_of_a_full_one_and_a_full_one():
    model, plan = preset("llama2-7b"), ParallelPlan(micro_batch=1, global_batch=4, seq_len=4096)
    machine, eff = cluster("dgx-h100", 1), efficiency("hopper")

    def passes_s(one: TransformerSpec) -> float:
        return float(np.sum(step_cost(one, machine, plan, eff).compute_s))

    full, frozen, own = (
        passes_s(m) for m in (model, with_adapters(model, AdapterSpec(0)), with_adapters(model, ATTENTION))
    )
    assert 0.6 * full < frozen < own < full
    assert passes_s(with_adapters(model, replace(ATTENTION, quantised="nf4"))) > own


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"rank": -1}, "rank = -1"),
        ({"rank": 8, "targets": ()}, "targets is empty"),
        ({"rank": 8, "targets": ("q",)}, "target 'q' is unknown"),
        ({"rank": 8, "kind": "prefix"}, "kind = 'prefix' is unknown"),
        ({"rank": 8, "quantised": "nf5"}, "quantised = 'nf5' is unknown"),
        ({"rank": 8, "dropout": 1.0}, "dropout = 1.0"),
    ],
)
def test_impossible_adapters_are_refused(given: dict[str, object], text: str):
    with pytest.raises(SpecError, match=text):
        AdapterSpec(**given)  # pyright: ignore[reportArgumentType]


def test_a_target_that_no_layer_has_is_refused_with_those_it_has():
    with pytest.raises(SpecError, match=r"no layer has target 'q_a_proj'. It has q_proj"):
        with_adapters(LLAMA, AdapterSpec(8, ("q_a_proj",)))
    with pytest.raises(SpecError, match="n_mtp = 0, not 1"):
        with_adapters(replace(MLA, n_mtp=1), ATTENTION)


@pytest.mark.parametrize("tp", [2, 4])
def test_tensor_parallel_ranks_hold_and_compute_equal_shares(tp: int):
    own = with_adapters(replace(LLAMA, n_kv_heads=16), ALL)
    whole, part = (own.block("dense_layer", replace(PLAN, tp=degree)) for degree in (1, tp))
    assert part.kernels.flops() == pytest.approx(whole.kernels.flops() / tp)
    assert part.parameters[0].count == whole.parameters[0].count / tp
    narrow = [comm for comm in part.comms if comm.n_bytes == 2.0 * PLAN.micro_batch * PLAN.seq_len * 16]
    assert len(narrow) == 2 * 7

"""Parameter and FLOP counts against closed forms and published formulas; refusal of impossible architectures."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import SpecError
from prism_jax.plan.plan import ParallelPlan
from prism_jax.workload.catalog import model, model_names
from prism_jax.workload.transformer.sizes import MLASpec, MoESpec
from prism_jax.workload.transformer.spec import TransformerSpec

GPT = TransformerSpec("gpt", n_layers=4, hidden=64, n_heads=4, ffn_hidden=256, vocab=1000, max_seq_len=128)


def megatron_params(spec: TransformerSpec) -> float:
    """arXiv 2104.04473 eq. 2."""
    h, layers = spec.hidden, spec.n_layers
    return 12 * layers * h**2 * (1 + 13 / (12 * h) + (spec.vocab + spec.max_seq_len) / (12 * layers * h))


def megatron_step_flops(spec: TransformerSpec, batch: int, s: int) -> float:
    """arXiv 2104.04473 eq. 3: forward, backward and full recomputation."""
    h, layers = spec.hidden, spec.n_layers
    return 96 * batch * s * layers * h**2 * (1 + s / (6 * h) + spec.vocab / (16 * layers * h))


@pytest.mark.parametrize("name", [name for name in model_names() if name.startswith("gpt3")])
def test_gpt_counts_equal_the_formulas_of_the_megatron_paper(name: str) -> None:
    spec = model(name)
    final_norm = 2 * spec.hidden  # which the paper leaves out
    assert spec.n_params() - final_norm == pytest.approx(megatron_params(spec), rel=1e-12)
    tokens = 1536 * 2048
    ours = tokens * spec.train_flops_per_token(2048, causal=False, recompute="full")
    assert ours == pytest.approx(megatron_step_flops(spec, 1536, 2048), rel=1e-12)


def test_model_flops_equal_the_formula_of_the_recomputation_paper() -> None:
    spec, s = model("gpt3-22b"), 2048
    h, layers = spec.hidden, spec.n_layers
    paper = 72 * layers * h**2 * (1 + s / (6 * h) + spec.vocab / (12 * layers * h))  # arXiv 2205.05198 appendix A
    assert spec.train_flops_per_token(s, causal=False) == pytest.approx(paper, rel=1e-12)
    plan = ParallelPlan(1, 4, s)
    assert spec.whole_matrix_flops(plan) == pytest.approx(4 * s * paper, rel=1e-12)
    assert spec.whole_matrix_flops(plan) > spec.step_flops(plan, recomputed=False)


def test_selective_recompute_repeats_the_scores_once() -> None:
    none = GPT.train_flops_per_token(128, recompute="none")
    selective = GPT.train_flops_per_token(128, recompute="selective")
    assert selective - none == pytest.approx(GPT.token_flops(128).scores)
    with pytest.raises(SpecError, match="recompute = 'some'"):
        GPT.train_flops_per_token(128, recompute="some")


@pytest.mark.parametrize("name", model_names())
def test_causal_scores_are_half_plus_the_diagonal(name: str) -> None:
    spec, s = replace(model(name), window=None), 4096
    full = spec.token_flops(s, causal=False).scores
    assert spec.token_flops(s, causal=True).scores == pytest.approx(full * (s + 1) / (2 * s))


@pytest.mark.parametrize("name", model_names())
def test_the_pieces_sum_to_the_whole(name: str) -> None:
    spec = model(name)
    layers = [spec.layer_params(layer) for layer in range(spec.n_layers)]
    body = sum(layer.total for layer in layers) + spec.final_norm_params()
    assert body == spec.n_params_non_embedding()
    assert body + spec.embedding_params() + spec.head_params() == spec.n_params()
    active = sum(layer.active(spec.top_k) for layer in layers) + spec.final_norm_params()
    assert active + spec.embedding_params() + spec.head_params() == spec.n_params_active()


def test_dense_layers_of_a_moe_model_come_first() -> None:
    spec = model("deepseek-v3")
    assert [spec.is_moe_layer(layer) for layer in (0, 2, 3, 60)] == [False, False, True, True]
    assert spec.n_moe_layers == 58
    dense, sparse = spec.layer_params(0), spec.layer_params(3)
    assert dense.mlp > 0
    assert dense.experts == dense.router == dense.shared == 0
    assert sparse.mlp == 0
    assert sparse.experts == 256 * sparse.expert
    assert sparse.shared == sparse.expert
    with pytest.raises(SpecError, match="there is no layer 61"):
        spec.layer_params(61)


def test_prediction_modules_add_flops_but_not_to_the_published_count() -> None:
    spec = model("deepseek-v3")
    without = replace(spec, n_mtp=0)
    assert spec.n_params() == without.n_params()
    assert without.mtp_params() == 0
    assert spec.mtp_params() == pytest.approx(11.5e9, rel=0.015)  # README_WEIGHTS.md: 11.5B
    own = spec.mtp_params() - spec.layer_params(60).total - 3 * spec.hidden
    assert own == 2 * spec.hidden**2
    assert spec.token_flops(4096).total > without.token_flops(4096).total


def test_grouped_queries_share_keys_and_values() -> None:
    many, few = GPT, replace(GPT, n_kv_heads=1)
    assert many.kv_heads == 4
    assert few.kv_dim == few.v_head_dim == 16
    saved = 2 * 3 * 16 * (64 + 1) * GPT.n_layers  # two projections, three heads of 16, with bias
    assert many.n_params() - few.n_params() == saved
    assert many.token_flops(128).scores == few.token_flops(128).scores


def test_mla_expands_keys_and_values_to_every_head() -> None:
    spec = model("deepseek-v2")
    assert spec.qk_head_dim == 192
    assert spec.v_head_dim == 128
    assert spec.q_dim == spec.kv_dim == 128 * 192
    assert spec.token_flops(1).scores == 2 * spec.n_layers * 128 * (192 + 128)


def test_biases_can_be_chosen_per_projection() -> None:
    none = replace(GPT, bias=False)
    h, width = GPT.hidden, GPT.q_dim + 2 * GPT.kv_dim
    for change, extra in (
        ({"qkv_bias": True}, width),
        ({"mlp_bias": True}, GPT.ffn_hidden + h),
        ({"bias": True}, width + h + GPT.ffn_hidden + h),
        ({"bias": True, "mlp_bias": False}, width + h),
    ):
        assert replace(none, **change).n_params() - none.n_params() == GPT.n_layers * extra


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    n_layers=st.integers(1, 8),
    n_dense=st.integers(0, 7),
    n_experts=st.integers(1, 16),
    shared=st.integers(0, 3),
    gated=st.booleans(),
    bias=st.booleans(),
)
def test_a_moe_of_one_expert_is_the_dense_model_with_a_router(
    n_layers: int, n_dense: int, n_experts: int, shared: int, gated: bool, bias: bool
) -> None:
    n_dense = min(n_dense, n_layers - 1)
    dense = replace(GPT, n_layers=n_layers, gated=gated, bias=bias)
    one = replace(dense, moe=MoESpec(1, 1, dense.ffn_hidden, n_dense_first=n_dense))
    assert one.n_params() == dense.n_params() + (n_layers - n_dense) * dense.hidden
    assert one.n_params_active() == one.n_params()
    many = replace(dense, moe=MoESpec(n_experts, 1, dense.ffn_hidden, n_shared=shared, n_dense_first=n_dense))
    assert many.n_params() >= many.n_params_active() >= one.n_params_active()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layers": 0}, "n_layers = 0, but it must be at least 1"),
        ({"hidden": 63}, "hidden = 63 is not divisible by n_heads = 4. Give head_dim"),
        ({"n_kv_heads": 3}, "n_heads = 4 is not a multiple of n_kv_heads = 3"),
        ({"norm": "batch"}, "norm = 'batch' is unknown. Use one of layer"),
        ({"position": "sine"}, "position = 'sine' is unknown"),
        ({"vocab": 1000.5}, "vocab = 1000.5, but it must be a whole number"),
        ({"moe": MoESpec(8, 2, 64, n_dense_first=4)}, "leaves no MoE layer among n_layers = 4. Use at most 3"),
    ],
)
def test_an_impossible_architecture_is_refused_with_a_remedy(untyped: None, change: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        replace(GPT, **change)


def test_impossible_experts_and_latents_are_refused() -> None:
    with pytest.raises(SpecError, match="top_k = 9, but there are only n_experts = 8"):
        MoESpec(8, 9, 64)
    with pytest.raises(SpecError, match=r"imbalance = 0\.5"):
        MoESpec(8, 2, 64, imbalance=0.5)
    with pytest.raises(SpecError, match="kv_lora_rank = 0"):
        MLASpec(0, 0, 128, 64, 128)

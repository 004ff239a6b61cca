"""Layers that mix tokens in another way: windows, linear attention."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.calibration.calibration import shipped
from prism_jax.calibration.key import CalibrationKey
from prism_jax.core.errors import SpecError
from prism_jax.cost.memory import memory
from prism_jax.cost.partition import chunk_blocks
from prism_jax.cost.step import step_cost
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.system.catalog import cluster
from prism_jax.workload.base.workload import distinct_runs, kinds_of
from prism_jax.workload.catalog import model
from prism_jax.workload.transformer.mixers import MixerSpec, WindowSpec, causal_area, mean_keys
from prism_jax.workload.transformer.ops import layer_ops
from prism_jax.workload.transformer.sizes import MoESpec
from prism_jax.workload.transformer.spec import TransformerSpec
from tests.support.blocks import flops_of_kernels, params_of_blocks

GEMMA = WindowSpec(1024, ("sliding",) * 5 + ("full",))
PLAN = ParallelPlan(micro_batch=1, global_batch=16, seq_len=4096, tp=2, pp=4)
CLUSTER = catalog.cluster("dgx-h100", 8)
LLAMA = model("llama-3-8b")
EFF = shipped().efficiency(CalibrationKey.of(CLUSTER.device))


def seen(query: int, key: int, reach: str, size: int) -> bool:
    """Whether a query sees a key, by definition."""
    if key > query:
        return False
    if reach == "sliding":
        return query - key < size
    return reach == "full" or query // size == key // size


@settings(max_examples=60)
@given(st.integers(1, 40), st.sampled_from(["full", "sliding", "chunked"]), st.integers(1, 50))
def test_the_area_is_the_number_of_pairs_that_see_each_other(seq_len: int, reach: str, size: int) -> None:
    pairs = sum(seen(query, key, reach, size) for query in range(seq_len) for key in range(seq_len))
    assert causal_area(seq_len, reach, size) == pairs


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_sliding_window_is_the_sum_over_queries_of_the_smaller_of_position_and_window(
    seq_len: int, size: int
) -> None:
    expected = int(np.minimum(np.arange(1, seq_len + 1), size).sum())
    assert causal_area(seq_len, "sliding", size) == expected


def test_a_window_as_long_as_the_sequence_sees_exactly_what_no_window_does() -> None:
    for seq_len in (1, 7, 4096, 131_071):
        for reach in ("sliding", "chunked"):
            assert mean_keys(seq_len, WindowSpec(seq_len, (reach,)), 0) == mean_keys(seq_len, None, 0)


@pytest.mark.parametrize("size", [4096, 5000])
@pytest.mark.parametrize("reach", ["sliding", "chunked"])
def test_a_model_whose_window_does_not_bite_costs_the_same_to_the_last_bit(reach: str, size: int) -> None:
    same = replace(LLAMA, window=WindowSpec(size, (reach,)))
    ours, plain = (step_cost(own, CLUSTER, PLAN, EFF) for own in (same, LLAMA))
    assert np.array_equal(ours.compute_s, plain.compute_s)
    assert np.array_equal(ours.comm_s, plain.comm_s)
    assert memory(same, CLUSTER, PLAN) == memory(LLAMA, CLUSTER, PLAN)
    assert same.step_flops(PLAN, recomputed=True) == LLAMA.step_flops(PLAN, recomputed=True)


def test_layers_that_alternate_cost_what_they_cost_alone() -> None:
    mixed = replace(LLAMA, window=replace(GEMMA, pattern=("sliding", "full")))
    plan = replace(PLAN, pp=1)
    all_windows = replace(LLAMA, window=replace(GEMMA, pattern=("sliding",)))
    half, none, every = (step_cost(own, CLUSTER, plan, EFF).compute_s.sum() for own in (mixed, LLAMA, all_windows))
    assert half == pytest.approx((none + every) / 2, rel=1e-4)  # what hides launches is not linear
    assert every < none


def test_kernels_compute_the_flops_of_the_window() -> None:
    own = replace(LLAMA, window=GEMMA)
    for layer, reach in ((0, "sliding"), (5, "full")):
        kernels = layer_ops(own, replace(PLAN, tp=1), layer)
        (flash,) = [op for op in kernels.ops if op.name == "flash" and op.phase == "F"]
        pairs = causal_area(4096, reach, 1024)
        assert flash.flops == pytest.approx(2.0 * pairs * own.n_heads * 2 * own.qk_head_dim, rel=1e-12)


def test_context_parallelism_splits_the_area_of_the_window() -> None:
    own = replace(LLAMA, window=GEMMA)
    once, split = (layer_ops(own, replace(PLAN, cp=cp), 0).flops() for cp in (1, 4))
    assert split == pytest.approx(once / 4)


def test_unfused_attention_computes_the_whole_square() -> None:
    own, plan = replace(LLAMA, window=GEMMA), replace(PLAN, attention="unfused")
    assert layer_ops(own, plan, 0).flops() == layer_ops(LLAMA, plan, 0).flops()


def test_kinds_of_layer_are_listed_in_order_and_counted_once_each() -> None:
    own = replace(LLAMA, n_layers=8, window=WindowSpec(64, ("chunked", "chunked", "chunked", "full")))
    own = replace(own, moe=MoESpec(8, 1, 1024, n_shared=1, every=2))
    body = [run.kind for run in own.layout if run.place == "body" for _ in range(run.count)]
    assert body == ["chunked_dense_layer", "chunked_moe_layer", "chunked_dense_layer", "moe_layer"] * 2
    counts = {run.kind: run.count for run in distinct_runs(own)}
    assert (counts["chunked_dense_layer"], counts["moe_layer"]) == (4, 2)
    assert len(kinds_of(own)) == len(set(kinds_of(own)))


@given(st.integers(1, 40), st.integers(0, 12), st.integers(1, 5))
def test_layers_with_experts_are_counted_as_they_are_listed(n_layers: int, n_first: int, every: int) -> None:
    moe = MoESpec(8, 1, 1024, n_dense_first=n_first, every=every)
    listed = sum(moe.is_in_layer(layer) for layer in range(n_layers))
    if n_first <= n_layers:
        assert moe.n_layers_of(n_layers) == listed
    if listed:
        assert replace(LLAMA, n_layers=n_layers, moe=moe).n_moe_layers == listed


@pytest.mark.parametrize("name", ["gemma-3-27b", "llama-4-maverick", "gpt-oss-120b", "deepseek-v3", "glm-4.5"])
@pytest.mark.parametrize("pp", [1, 3, 4])
def test_a_stage_holds_the_kinds_of_its_own_layers(name: str, pp: int) -> None:
    own, plan = model(name), replace(PLAN, pp=pp, tp=1)
    kinds, chunks = kinds_of(own), chunk_blocks(own, plan)
    body = [run.kind for run in own.layout if run.place == "body" for _ in range(run.count)]
    start = 0
    for chunk in chunks:
        held = {kind: n for kind, n in zip(kinds, chunk, strict=True) if kind.endswith("layer")}
        n_layer = sum(held.values())
        mine = body[start : start + n_layer]
        assert held == {kind: mine.count(kind) for kind in held}
        start += n_layer
    assert start == own.n_layers


def test_a_stage_of_full_layers_takes_longer_than_one_of_windows() -> None:
    own = replace(LLAMA, window=WindowSpec(128, ("full",) * 16 + ("sliding",) * 16))
    compute = step_cost(own, CLUSTER, replace(PLAN, pp=4, seq_len=16384), EFF).compute_s.sum(axis=(0, 2))
    assert compute[1] > 1.3 * compute[2]


def test_further_norms_add_parameters_time_and_saved_inputs() -> None:
    four = replace(LLAMA, n_norms=4)
    assert four.n_params() - LLAMA.n_params() == 2 * LLAMA.hidden * LLAMA.n_layers
    plan = replace(PLAN, tp=1, pp=1)
    extra = memory(four, CLUSTER, plan).worst.activations_bytes - memory(LLAMA, CLUSTER, plan).worst.activations_bytes
    assert extra == pytest.approx(LLAMA.n_layers * 2 * 2 * plan.seq_len * LLAMA.hidden)
    more, fewer = (layer_ops(own, plan, 0).column("hbm_bytes").sum() for own in (four, LLAMA))
    assert more - fewer == pytest.approx(2 * (2 + 4) * 2 * plan.seq_len * LLAMA.hidden)


@pytest.mark.parametrize(
    ("weights", "n"), [("head", 2 * 128), ("all", 32 * 128 + 8 * 128), ("none", 0)], ids=["head", "all", "none"]
)
def test_norms_of_queries_and_keys_have_the_weights_that_are_said(weights: str, n: int) -> None:
    own = replace(LLAMA, qk_norm=True, qk_norm_weight=weights)
    assert own.n_params() - LLAMA.n_params() == n * LLAMA.n_layers


def test_sinks_are_one_parameter_per_head_and_layer() -> None:
    assert replace(LLAMA, attention_sinks=True).n_params() - LLAMA.n_params() == LLAMA.n_heads * LLAMA.n_layers


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 0}, "size = 0, but it must be a whole number of tokens"),
        ({"size": 8, "pattern": ()}, "pattern is empty"),
        ({"size": 8, "pattern": ("local",)}, "pattern has 'local', which is unknown. Use full, sliding, chunked"),
    ],
)
def test_a_window_that_cannot_be_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        WindowSpec(**changes)


def test_a_model_without_a_layer_with_experts_is_refused() -> None:
    with pytest.raises(SpecError, match=r"moe\.every = 5 leaves no MoE layer among n_layers = 4"):
        TransformerSpec("x", 4, 64, 4, 64, 64, moe=MoESpec(8, 1, 64, every=5))
    with pytest.raises(SpecError, match="at most 10,000"):
        replace(LLAMA, n_layers=10**9)


# --- Mixer -----------------------------------------------------------------------------------------------------------
# Layers with a state in place of attention: published counts, FLOPs linear in the sequence, blocks against totals.


# fmt: off
MAMBA2 = TransformerSpec("mamba2-2.7b", 64, 2560, 80, 1, 50288, norm="rms", position="none", bias=False,
    mixer=MixerSpec(80, 64, has_mlp=False))
GATED = MixerSpec(32, 128, n_groups=16, state=128, kind="gated_linear",
    pattern=("mixer", "mixer", "mixer", "attention"))
HYBRID = TransformerSpec("hybrid", 8, 2048, 16, 5632, 32000, n_kv_heads=2, gated=True, norm="rms", position="rope",
    bias=False, mixer=GATED)
# fmt: on
MIXER_PLAN = ParallelPlan(micro_batch=2, global_batch=32, seq_len=2048, dp=16)


def test_mamba_2_has_the_published_count() -> None:
    assert MAMBA2.n_params() == 2_702_599_680  # state-spaces/mamba2-2.7b
    assert replace(MAMBA2, n_layers=24, hidden=768, mixer=MixerSpec(24, 64, has_mlp=False), n_heads=24).n_params() == (
        128_989_632  # state-spaces/mamba2-130m
    )


def test_gated_delta_layers_have_the_parts_of_the_published_ones() -> None:
    """Qwen3NextGatedDeltaNet: in_proj_qkvz and in_proj_ba, conv1d, A_log and dt_bias, norm, out_proj."""
    parts = 2048 * (2 * 2048 + 2 * 4096) + 2048 * 64 + 4 * (2 * 2048 + 4096) + 2 * 32 + 128 + 4096 * 2048
    assert GATED.in_params(2048) + GATED.out_params(2048) == parts


@pytest.mark.parametrize("model", [MAMBA2, HYBRID])
@pytest.mark.parametrize("recompute", ["none", "full", "selective"])
def test_blocks_hold_parameters_and_do_the_flops(model: TransformerSpec, recompute: str) -> None:
    plan = replace(MIXER_PLAN, recompute=recompute)
    assert flops_of_kernels(model, plan) == pytest.approx(model.step_flops(plan, recomputed=True), rel=1e-9)
    assert params_of_blocks(model, plan) == model.n_params()


def test_kinds_of_layers_follow_the_pattern() -> None:
    body = [(run.kind, run.count) for run in HYBRID.layout if run.place == "body"]
    assert body == [("gated_linear_dense_layer", 3), ("dense_layer", 1)] * 2
    experts = replace(HYBRID, moe=MoESpec(8, 2, 1024))
    assert {run.kind for run in experts.layout if run.place == "body"} == {"gated_linear_moe_layer", "moe_layer"}


def test_a_state_costs_the_same_per_token_however_long_the_sequence() -> None:
    assert MAMBA2.token_flops(4096).total == MAMBA2.token_flops(65536).total
    assert HYBRID.token_flops(65536).total > HYBRID.token_flops(4096).total
    scores = [replace(HYBRID, mixer=mixer).token_flops(8192).scores for mixer in (GATED, None)]
    assert scores[0] == scores[1] / 4


def test_recomputation_saves_memory() -> None:
    machine = cluster("dgx-a100", 16)
    none, full = (memory(HYBRID, machine, replace(MIXER_PLAN, recompute=kind)).stages[0] for kind in ("none", "full"))
    assert full.activations_bytes < 0.5 * none.activations_bytes


def test_what_is_not_modelled_is_refused() -> None:
    problems = HYBRID.problems(replace(MIXER_PLAN, cp=2, recompute="selective_op"))
    assert [problem.field for problem in problems] == ["cp", "recompute"]
    with pytest.raises(SpecError, match="not modelled together with causal = False"):
        replace(HYBRID, causal=False)
    for changes in ({"kind": "x"}, {"state": 0}, {"pattern": ()}, {"n_groups": 3}):
        with pytest.raises(SpecError, match=f"mixer: .*{next(iter(changes))}"):
            replace(GATED, **changes)  # pyright: ignore[reportArgumentType]

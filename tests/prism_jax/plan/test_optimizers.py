"""Optimizers and states without a master copy: bytes per parameter by closed form, under every way of sharding."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prism_jax.core.errors import PlanError
from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.memory import StageMemory, memory, state_factors
from prism_jax.cost.partition import chunk_blocks, chunks_of_stage, stage_weights
from prism_jax.cost.step_end import MUON_ITERATIONS, optimizer_bytes, orthogonal_gathering_s, orthogonalising_s
from prism_jax.framework.base import MEGATRON
from prism_jax.job.rules import problems
from prism_jax.plan.optimizers import OPTIMIZERS, parse_optimizer
from prism_jax.plan.plan import ParallelPlan, StateDtypes
from prism_jax.system import catalog
from prism_jax.workload.catalog import model as catalog_model
from prism_jax.workload.transformer.params import layer_params

LLAMA = catalog_model("llama-2-7b")
N = LLAMA.n_params()
PLAN = ParallelPlan(micro_batch=1, global_batch=8, seq_len=512, dp=8, recompute="full")
ONE = replace(PLAN, dp=1, global_batch=1)
PURE = StateDtypes(main_params="none")
# bytes per parameter: with fp32 states, and where everything has 16 bits
# fmt: off
MOMENTS = {
    "adamw": (8.0, 4.0), "adam": (8.0, 4.0), "lamb": (8.0, 4.0), "sgd": (0.0, 0.0), "sgd_momentum": (4.0, 2.0),
    "lion": (4.0, 2.0), "adagrad": (4.0, 2.0), "rmsprop": (4.0, 2.0), "adafactor": (0.0, 0.0),
    "adamw_8bit": (2.0 + 8 / 256, 2.0 + 8 / 256), "lion_8bit": (1.0 + 4 / 256, 1.0 + 4 / 256),
    "adamw_4bit": (1.0 + 8 / 128, 1.0 + 8 / 128), "ademamix": (12.0, 6.0),
    "ademamix_8bit": (3.0 + 12 / 256, 3.0 + 12 / 256), "grokadamw": (12.0, 6.0), "adam_mini": (4.0, 2.0),
    "paged_ademamix": (0.0, 0.0), "paged_adamw": (0.0, 0.0), "paged_adamw_8bit": (0.0, 0.0),
}
# fmt: on
SHARDED: dict[str, tuple[dict[str, Any], float, float, float]] = {
    # parameters, gradients, optimizer over how many ranks
    "ddp": ({}, 1, 1, 1),
    "zero1": ({"zero_stage": 1}, 1, 1, 8),
    "zero2": ({"zero_stage": 2}, 1, 8, 8),
    "zero3": ({"zero_stage": 3}, 8, 8, 8),
    "fsdp": ({"sharding": "fsdp"}, 8, 8, 8),
    "hsdp": ({"sharding": "hsdp", "dp_shard": 4}, 4, 4, 4),
}


def worst(plan: ParallelPlan, n_devices: int = 1, model: Any = LLAMA) -> StageMemory:
    cluster = catalog.cluster("dgx-a100", n_devices)
    assert not list(problems(plan, model, cluster))
    return memory(model, cluster, plan).worst


@pytest.mark.parametrize("name", sorted(MOMENTS))
def test_moments_beside_a_master_copy_and_without_one(name: str):
    wide, narrow = MOMENTS[name]
    own = worst(replace(ONE, optimizer=name))
    assert own.optimizer_bytes == pytest.approx((4.0 + wide) * N)
    assert own.gradients_bytes == pytest.approx(4.0 * N)
    pure = worst(replace(ONE, optimizer=name, state_dtypes=PURE))
    assert pure.optimizer_bytes == pytest.approx(narrow * N)
    assert pure.parameters_bytes == pure.gradients_bytes == pytest.approx(2.0 * N)


@pytest.mark.parametrize("way", sorted(SHARDED))
@pytest.mark.parametrize("name", ["adamw", "sgd", "lion", "adamw_8bit"])
def test_states_in_16_bits_are_sharded_like_all_others(name: str, way: str):
    changes, *ranks = SHARDED[way]
    own = state_factors(LLAMA, replace(PLAN, optimizer=name, state_dtypes=PURE, **changes), MEGATRON)
    expected = (2.0, 2.0, MOMENTS[name][1])
    for factor, each, n in zip((own.parameters, own.gradients, own.optimizer), expected, ranks, strict=True):
        assert factor == pytest.approx(each / n)


@pytest.mark.parametrize("written", ["bf16", "none"])
@pytest.mark.parametrize("changes", [{}, {"sharding": "fsdp"}])
def test_the_format_of_the_parameters_is_no_copy(written: str, changes: dict[str, Any]):
    plan = replace(ONE, state_dtypes=StateDtypes(main_params=written), **changes)
    assert worst(plan).states_bytes == pytest.approx(8.0 * N)
    half = replace(plan, dtype="fp16", state_dtypes=StateDtypes(main_params="fp16"), **changes)
    assert worst(half).states_bytes == pytest.approx(8.0 * N)


def test_llama_2_7b_in_bf16_alone_takes_what_was_measured():
    """54 GB with Adam, as much as the parameters more with `foreach`, about 40.5 GB in 8 bits, 27 GB with SGD, below 16 GB where
    gradients are freed at once (torchtune 389 and 391).
    """
    foreach = replace(ONE.software, optimizer="eager")
    for changes, measured in (
        ({}, 54e9),
        ({"software": foreach}, 67.5e9),
        ({"optimizer": "AdamW8bit"}, 40.5e9),
        ({"optimizer": "SGD"}, 27e9),
    ):
        found = worst(replace(ONE, state_dtypes=PURE, **changes)).allocator_bytes
        assert found == pytest.approx(measured, rel=0.05)
    at_once = replace(ONE, state_dtypes=PURE, optimizer="SGD", optimizer_in_backward=True)
    assert worst(at_once).allocator_bytes < 16e9


def test_gradients_that_are_applied_at_once_are_those_of_one_unit():
    plan = replace(ONE, state_dtypes=PURE, optimizer_in_backward=True)
    layer, matrix = layer_params(LLAMA, 0).total, LLAMA.vocab * LLAMA.hidden
    assert worst(plan).gradients_bytes == pytest.approx(2.0 * max(layer, matrix))
    assert worst(plan).optimizer_bytes == worst(replace(plan, optimizer_in_backward=False)).optimizer_bytes


def test_gradients_that_are_applied_at_once_cannot_be_accumulated():
    found = problems(replace(ONE, global_batch=4, optimizer_in_backward=True), LLAMA, catalog.cluster("dgx-a100", 1))
    assert [problem.field for problem in found] == ["optimizer_in_backward"]


def test_muon_keeps_adams_states_for_embedding_and_head():
    rest = 2.0 * LLAMA.vocab * LLAMA.hidden + LLAMA.hidden
    assert worst(replace(ONE, optimizer="muon")).optimizer_bytes == pytest.approx(8.0 * N + 4.0 * rest)
    pure = worst(replace(ONE, optimizer="muon", state_dtypes=PURE))
    assert pure.optimizer_bytes == pytest.approx(2.0 * N + 2.0 * rest)


# fmt: off
NAMES = {
    "AdamW": "adamw", "adamw_torch_fused": "adamw", "torch.optim.AdamW": "adamw",
    "FusedAdam": "adam", "DeepSpeedCPUAdam": "adam", "bitsandbytes.optim.PagedAdamW8bit": "paged_adamw_8bit",
    "paged_adamw_32bit": "paged_adamw", "adamw_bnb_8bit": "adamw_8bit", "AdamW8bit": "adamw_8bit",
    "paged_lion_8bit": "paged_lion_8bit", "SGD": "sgd", "momentum": "sgd_momentum", "dist_muon": "muon",
    "Adafactor": "adafactor", "adamw_torch_8bit": "adamw_8bit", "adamw_torch_4bit": "adamw_4bit",
    "torchao.optim.AdamW4bit": "adamw_4bit", "AdamWFp8": "adamw_8bit", "paged_ademamix_32bit": "paged_ademamix",
    "stable_adamw": "adamw", "schedule_free_adamw": "adamw", "AdamWScheduleFree": "adamw",
    "SGDScheduleFree": "sgd_momentum", "Adam-mini": "adam_mini", "MuonClip": "muon",
    **{name: name for name in OPTIMIZERS},
}
# fmt: on


@pytest.mark.parametrize("written", NAMES)
def test_optimizers_are_known_by_the_names_of_their_libraries(written: str):
    assert parse_optimizer(written) == NAMES[written]
    assert replace(ONE, optimizer=written).optimizer == NAMES[written]


@pytest.mark.parametrize(("written", "hint"), [("adamv", "did you mean adam"), ("sophia", "known are adamw"), (7, "7")])
def test_unknown_optimizers_are_named_with_a_hint(written: Any, hint: str):
    with pytest.raises(PlanError, match="optimizer") as error:
        replace(ONE, optimizer=written)
    assert hint in str(error.value)


def test_an_update_moves_what_it_keeps():
    """Gradient, norm and zeroing; parameter and moments in and out; the 16-bit copy where there is a master copy."""
    fused = replace(ONE, software=replace(ONE.software, optimizer="fused"))
    assert optimizer_bytes(fused) == 2 * 4 + 4 + 2 * 12 + 2
    assert optimizer_bytes(replace(fused, optimizer="sgd")) == 2 * 4 + 4 + 2 * 4 + 2
    assert optimizer_bytes(replace(fused, optimizer="lion")) == 2 * 4 + 4 + 2 * 8 + 2
    assert optimizer_bytes(replace(fused, state_dtypes=PURE)) == 2 * 2 + 2 + 2 * 6
    assert optimizer_bytes(replace(fused, optimizer="sgd", state_dtypes=PURE)) == 2 * 2 + 2 + 2 * 2


def _matrices(plan: ParallelPlan, model: Any = LLAMA) -> Any:
    chunks = chunk_blocks(model, plan)
    return stage_weights(model, plan, chunks, [chunks_of_stage(plan, 0)])[0].matrices


def test_matrices_of_muon_are_those_of_all_layers():
    """Weights of norms, embedding and head are no matrices of a layer; tensor parallelism splits every one."""
    for tp in (1, 2):
        found = _matrices(replace(ONE, tp=tp, optimizer="muon"))
        own = layer_params(LLAMA, 0)
        assert found.prod(axis=1).sum() * tp == pytest.approx(LLAMA.n_layers * (own.attention + own.mlp))
    assert not len(_matrices(ONE))
    moe = catalog_model("qwen3-30b-a3b")
    own = layer_params(moe, 0)
    experts = _matrices(replace(PLAN, ep=8, optimizer="muon"), moe).prod(axis=1).sum()
    assert experts == pytest.approx(moe.n_layers * (own.attention + own.experts / 8))


def test_newton_schulz_takes_the_time_of_its_products_and_shrinks_with_the_ranks_that_share_it():
    cluster, eff = catalog.cluster("dgx-h100", 8), efficiency("hopper")
    m, n, count = 4096.0, 11008.0, 96.0
    flops = MUON_ITERATIONS * (4 * m * m * n + 2 * m**3)
    plan, matrices = replace(PLAN, optimizer="muon"), np.array([[count, m, n]])
    whole = orthogonalising_s(cluster, plan, matrices, 1, eff)
    ideal = count * flops / cluster.device.peak("bf16")
    assert 1.2 * ideal < whole < 3.0 * ideal
    assert orthogonalising_s(cluster, plan, matrices, 8, eff) == pytest.approx(whole / 8)
    assert orthogonalising_s(cluster, plan, matrices, 1000, eff) == pytest.approx(whole / count)
    fsdp = replace(plan, sharding="fsdp")
    assert (
        orthogonal_gathering_s(cluster, fsdp, matrices, 8) > 0.0 == orthogonal_gathering_s(cluster, plan, matrices, 8)
    )

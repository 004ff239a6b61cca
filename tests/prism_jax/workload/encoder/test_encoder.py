"""Encoders: counts as published, FLOPs and parameters in closed form, padding, memory."""

from dataclasses import replace

import pytest

from prism_jax.core.errors import SpecError
from prism_jax.cost.memory import memory
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster
from prism_jax.workload.base.workload import Workload, distinct_runs
from prism_jax.workload.catalog import workload
from prism_jax.workload.transformer.encoder import EncoderSpec

PLAN = ParallelPlan(micro_batch=4, global_batch=64, seq_len=512, dp=16)


def encoder(name: str) -> EncoderSpec:
    """An encoder by name."""
    found = workload(name)
    assert isinstance(found, EncoderSpec)
    return found


LARGE = encoder("bert-large")


@pytest.mark.parametrize(
    ("name", "published"),
    [  # google-bert and FacebookAI checkpoints: safetensors metadata
        ("bert-base", 110_106_428),
        ("bert-large", 336_226_108),
        ("bert-large-mlperf", 336_226_108),
        ("roberta-base", 124_697_433),
        ("roberta-large", 355_412_057),
    ],
)
def test_parameters_are_those_published(name: str, published: int) -> None:
    assert workload(name).n_params() == published


@pytest.mark.parametrize("name", ["bert-base", "roberta-large"])
@pytest.mark.parametrize("tied", [True, False])
def test_blocks_hold_all_parameters_once(name: str, tied: bool) -> None:
    model = workload(name)
    assert isinstance(model, EncoderSpec)
    model = replace(model, tied_embeddings=tied)
    total, shared = 0.0, {}
    for run in distinct_runs(model):
        for part in model.block(run.kind, PLAN).parameters:
            if part.shared:
                shared[part.shared] = part.count
            else:
                total += run.count * part.count
    assert total + sum(shared.values()) == model.n_params()


def _kernel_flops(model: Workload, plan: ParallelPlan) -> float:
    per_micro_batch = sum(run.count * model.block(run.kind, plan).kernels.flops() for run in distinct_runs(model))
    return per_micro_batch * plan.n_micro_batch * plan.dp


def test_flops_of_a_step_in_closed_form() -> None:
    s, h, v, n = 512, 1024, 30522, 24
    layers = n * s * (24 * h**2 + 4 * s * h)  # projections, MLP; scores of the whole square
    head = 2 * 76 * h * (h + v) + 2 * h * (h + 2)
    assert LARGE.step_flops(PLAN, recomputed=False) == pytest.approx(3 * 64 * (layers + head), rel=1e-12)


@pytest.mark.parametrize("changes", [{}, {"padding_removed": 0.5}, {"predicted": 1.0}, {"next_sentence": False}])
def test_kernels_do_the_flops_of_a_step(changes: dict[str, float]) -> None:
    model = replace(LARGE, **changes)
    assert _kernel_flops(model, PLAN) == pytest.approx(model.step_flops(PLAN, recomputed=False), rel=1e-5)
    full = replace(PLAN, recompute="full")
    assert _kernel_flops(model, full) == pytest.approx(model.step_flops(full, recomputed=True), rel=1e-5)


def test_attention_sees_the_whole_square() -> None:
    flash = [
        op for op in LARGE.block("encoder_layer", PLAN).kernels.ops if op.kernel == "attention" and op.phase == "F"
    ]
    assert sum(op.flops for op in flash) == 4 * 4 * 512 * 512 * 1024


def test_without_padding_a_sample_is_as_long_as_what_is_left() -> None:
    packed = replace(LARGE, padding_removed=0.5)
    short = replace(PLAN, seq_len=256)
    layer = packed.block("encoder_layer", PLAN)
    assert (
        layer.kernels.column("flops").tolist() == LARGE.block("encoder_layer", short).kernels.column("flops").tolist()
    )
    assert packed.predicted_tokens(512) == 76
    head = packed.block("head", PLAN).kernels
    assert head.column("flops").tolist() == LARGE.block("head", PLAN).kernels.column("flops").tolist()
    assert (packed.sample_unit, packed.units_per_step(PLAN)) == ("samples", 64)
    assert (LARGE.sample_unit, LARGE.units_per_step(PLAN)) == ("tokens", 64 * 512)


def test_memory_of_a_step_on_one_device() -> None:
    used = memory(LARGE, cluster("dgx-a100", 16), PLAN).stages[0]
    assert used.parameters_bytes == pytest.approx(2.0 * LARGE.n_params())
    assert used.optimizer_bytes == pytest.approx(12.0 * LARGE.n_params())
    s, b, h, n = 512, 4, 1024, 24
    layers = (
        n * s * b * (34 * h + 16 * 4)
    )  # arXiv 2205.05198 with FlashAttention: 34 sbh and one log-sum-exp per row and head
    masked = b * 76
    head = masked * (2 * h + 2 * h + 4 * 30522) + masked * 4 * h
    embedding = s * b * (8 + h + 2 * h)
    assert used.activations_bytes == pytest.approx(layers + head + embedding, rel=1e-6)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("predicted", 0.0),
        ("predicted", 1.5),
        ("padding_removed", 1.0),
        ("n_token_types", -1),
        ("hidden", 0),
        ("norm", "x"),
    ],
)
def test_impossible_sizes_are_refused(field: str, value: float) -> None:
    with pytest.raises(SpecError, match=field):
        replace(LARGE, **{field: value})

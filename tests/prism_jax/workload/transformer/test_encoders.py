"""Encoders, encoder-decoders and image transformers: published counts, and identities of blocks, kernels and plans."""

from dataclasses import replace
from typing import Any, cast

import pytest

from prism_jax.core.errors import SpecError
from prism_jax.cost.memory import memory
from prism_jax.plan.plan import ParallelPlan
from prism_jax.search.plan_table import PlanCache, PlanTable
from prism_jax.system.catalog import cluster
from prism_jax.workload.base.workload import distinct_runs
from prism_jax.workload.catalog import workload
from prism_jax.workload.transformer.encoder import EncoderSpec
from prism_jax.workload.transformer.encoder_decoder import EncoderDecoderSpec
from prism_jax.workload.transformer.sizes import TransformerSizes
from prism_jax.workload.transformer.vision import DitSpec, VitSpec
from tests.support.blocks import flops_of_kernels, params_of_blocks

PLAN = ParallelPlan(micro_batch=4, global_batch=64, seq_len=512, dp=16)


LARGE = cast("EncoderSpec", workload("bert-large"))
BASE = cast("EncoderDecoderSpec", workload("t5-base"))
VISION_PLAN = ParallelPlan(micro_batch=8, global_batch=64, dp=8)
VIT, DIT = cast("VitSpec", workload("vit-b-16")), cast("DitSpec", workload("dit-xl-2"))
PUBLISHED = {
    # google-bert and FacebookAI checkpoints: safetensors metadata
    "bert-base": 110_106_428,
    "bert-large": 336_226_108,
    "bert-large-mlperf": 336_226_108,
    "roberta-base": 124_697_433,
    "roberta-large": 355_412_057,
    # `T5ForConditionalGeneration`, checkpoints of google-t5 and google
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    "t5-v1.1-base": 247_577_856,
    "mt5-small": 300_176_768,
    "mt5-base": 582_401_280,
    "mt5-large": 1_229_581_312,
    "mt5-xl": 3_742_619_648,
    "mt5-xxl": 12_921_057_280,
    # torchvision and timm; facebookresearch/DiT without its fixed positions
    "vit-b-16": 86_567_656,
    "vit-l-16": 304_326_632,
    "vit-h-14": 632_045_800,
    "deit-tiny-16": 5_717_416,
    "deit-small-16": 22_050_664,
    "dit-xl-2": 674_834_720,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_published(name: str) -> None:
    assert workload(name).n_params() == PUBLISHED[name]


@pytest.mark.parametrize(
    ("model", "field", "value"),
    [
        *((LARGE, "predicted", value) for value in (0.0, 1.5)),
        (LARGE, "padding_removed", 1.0),
        (LARGE, "n_token_types", -1),
        *((model, "hidden", 0) for model in (LARGE, BASE)),
        (LARGE, "norm", "x"),
        (BASE, "decoder_seq_len", -1),
        (BASE, "n_decoder_layers", -2),
        (BASE, "position", "x"),
        (BASE, "n_buckets", 1.5),
        (VIT, "image_size", 225),
        (VIT, "patch", 0),
        (VIT, "n_classes", 0),
        (DIT, "latent_size", 33),
        (DIT, "n_channels", -1),
    ],
)
def test_impossible_sizes_are_refused(model: TransformerSizes, field: str, value: object) -> None:
    with pytest.raises(SpecError, match=field):
        replace(model, **{field: value})  # pyright: ignore[reportArgumentType]


def test_flops_of_a_step_in_closed_form() -> None:
    s, h, v, n = 512, 1024, 30522, 24
    layers = n * s * (24 * h**2 + 4 * s * h)  # projections, MLP; scores of the whole square
    head = 2 * 76 * h * (h + v) + 2 * h * (h + 2)
    assert LARGE.step_flops(PLAN, recomputed=False) == pytest.approx(3 * 64 * (layers + head), rel=1e-12)


@pytest.mark.parametrize("changes", [{}, {"padding_removed": 0.5}, {"predicted": 1.0}, {"next_sentence": False}])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_kernels_do_the_flops_of_a_step(changes: dict[str, float], recompute: str) -> None:
    model, plan = replace(LARGE, **changes), replace(PLAN, recompute=recompute)
    assert flops_of_kernels(model, plan) == pytest.approx(model.step_flops(plan, recomputed=True), rel=1e-5)


def test_attention_sees_the_whole_square() -> None:
    ops = LARGE.block("encoder_layer", PLAN).kernels.ops
    flash = [op for op in ops if op.kernel == "attention" and op.phase == "F"]
    assert sum(op.flops for op in flash) == 4 * 4 * 512 * 512 * 1024


def test_without_padding_a_sample_is_as_long_as_what_is_left() -> None:
    packed = replace(LARGE, padding_removed=0.5)

    def flops(model: EncoderSpec, block: str, plan: ParallelPlan = PLAN) -> list[float]:
        return model.block(block, plan).kernels.column("flops").tolist()

    assert flops(packed, "encoder_layer") == flops(LARGE, "encoder_layer", replace(PLAN, seq_len=256))
    assert packed.predicted_tokens(512) == 76
    assert flops(packed, "head") == flops(LARGE, "head")
    assert (packed.sample_unit, packed.units_per_step(PLAN)) == ("samples", 64)
    assert (LARGE.sample_unit, LARGE.units_per_step(PLAN)) == ("tokens", 64 * 512)


def test_memory_of_a_step_on_one_device() -> None:
    used = memory(LARGE, cluster("dgx-a100", 16), PLAN).stages[0]
    assert used.parameters_bytes == pytest.approx(2.0 * LARGE.n_params())
    assert used.optimizer_bytes == pytest.approx(12.0 * LARGE.n_params())
    s, b, h, n = 512, 4, 1024, 24
    # arXiv 2205.05198 with FlashAttention: 34 sbh and one log-sum-exp per row and head
    layers = n * s * b * (34 * h + 16 * 4)
    masked = b * 76
    head = masked * (2 * h + 2 * h + 4 * 30522) + masked * 4 * h
    embedding = s * b * (8 + h + 2 * h)
    assert used.activations_bytes == pytest.approx(layers + head + embedding, rel=1e-6)


# --- Encoder-decoders: FLOPs in closed form, cross attention ---------------------------------------------------------


def test_flops_of_a_step_in_closed_form_of_encoder_decoder() -> None:
    s, t, h, f, v, n = 512, 114, 768, 3072, 32128, 12
    reads = n * s * (8 * h**2 + 4 * h * f + 4 * s * h)
    writes = n * t * (8 * h**2 + 4 * h * f + 4 * (t + 1) / 2 * h)
    cross = n * (4 * t * h**2 + 4 * s * h**2 + 4 * s * t * h)
    head = 2 * t * h * v
    assert BASE.step_flops(PLAN, recomputed=False) == pytest.approx(3 * 64 * (reads + writes + cross + head), rel=1e-12)


def test_a_decoder_without_length_of_its_own_writes_as_much_as_is_read() -> None:
    same = replace(BASE, decoder_seq_len=0)
    stated = replace(BASE, decoder_seq_len=512)
    assert same.step_flops(PLAN, recomputed=True) == stated.step_flops(PLAN, recomputed=True)


def test_keys_of_the_encoder_cost_as_its_tokens_do() -> None:
    ops = {op.name: op for op in BASE.block("decoder_layer", PLAN).kernels.ops if op.phase == "F"}
    assert (ops["cross_q"].m, ops["cross_kv"].m) == (4 * 114, 4 * 512)
    cross = [op for op in BASE.block("decoder_layer", PLAN).kernels.ops if op.kernel == "attention" and op.phase == "F"]
    assert [(op.m, op.n) for op in cross] == [(114, 114), (114, 512)]
    assert cross[1].flops == 4 * 4 * 114 * 512 * 768


# --- Vision transformers: published FLOPs, images that patches do not divide, samples as units -----------------------


@pytest.mark.parametrize(
    ("name", "giga_products"),
    [("vit-b-16", 17.58), ("deit-tiny-16", 1.26), ("deit-small-16", 4.61), ("dit-xl-2", 118.64), ("dit-s-2", 6.06)],
)
def test_forward_products_are_those_published(name: str, giga_products: float) -> None:
    """arXiv 2212.09748 table 4 and the table of results of timm; multiply-adds of one image."""
    forward = workload(name).step_flops(replace(VISION_PLAN, micro_batch=1, global_batch=1, dp=1), recomputed=False) / 3
    assert forward / 2e9 == pytest.approx(giga_products, rel=0.015)  # patches have no gradient


def test_units_are_images() -> None:
    assert (VIT.sample_unit, VIT.units_per_step(VISION_PLAN), VIT.n_tokens, DIT.n_tokens) == ("samples", 64, 197, 256)
    assert [problem.field for problem in VIT.problems(replace(VISION_PLAN, seq_len=197))] == ["seq_len"]


def test_larger_images_have_more_tokens() -> None:
    large = replace(VIT, image_size=384)
    assert large.n_tokens == 577
    assert large.step_flops(VISION_PLAN, recomputed=False) > 2.9 * VIT.step_flops(VISION_PLAN, recomputed=False)


# --- Identities that every model of transformer layers keeps ---------------------------------------------------------


SEQUENCES = ("bert-large", "bert-large-mlperf", "roberta-base", "t5-base", "mt5-small")
IMAGES = ("vit-b-16", "vit-h-14", "dit-xl-2")
MODELS = (*SEQUENCES, *IMAGES)
LAYERED_PLAN = ParallelPlan(micro_batch=4, global_batch=128, seq_len=512, dp=16)


def plan_of(name: str, **changes: Any) -> ParallelPlan:
    """With a length of sequence where samples have one."""
    return replace(LAYERED_PLAN, seq_len=512 if name in SEQUENCES else 0, **changes)


@pytest.mark.parametrize("name", MODELS)
def test_blocks_hold_all_parameters(name: str) -> None:
    model = workload(name)
    assert params_of_blocks(model, plan_of(name)) == model.n_params()
    if isinstance(model, EncoderSpec):
        untied = replace(model, tied_embeddings=False)
        assert params_of_blocks(untied, plan_of(name)) == untied.n_params() > model.n_params()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("attention", ["flash", "unfused"])
@pytest.mark.parametrize("recompute", ["none", "full", "selective"])
def test_kernels_of_every_model_do_the_flops_of_a_step(name: str, attention: str, recompute: str) -> None:
    model, plan = workload(name), plan_of(name, attention=attention, recompute=recompute)
    flops = model.step_flops(plan, recomputed=True)
    assert flops_of_kernels(model, plan) == pytest.approx(flops, rel=1e-4)
    assert model.step_flops(plan, recomputed=False) <= flops


@pytest.mark.parametrize("name", MODELS)
def test_tensor_parallelism_divides_products_and_keeps_their_sum(name: str) -> None:
    model = workload(name)
    whole, split = flops_of_kernels(model, plan_of(name)), flops_of_kernels(model, plan_of(name, tp=2, dp=8))
    assert split == pytest.approx(whole, rel=0.02)  # heads that are whole on every rank
    assert params_of_blocks(model, plan_of(name, tp=2)) < 0.6 * model.n_params()


@pytest.mark.parametrize("name", MODELS)
def test_deeper_models_have_more_layers_of_their_own(name: str) -> None:
    model = workload(name)
    n_body = sum(run.count for run in model.layout if run.place == "body")
    deeper = model.deeper(4)
    assert sum(run.count for run in deeper.layout if run.place == "body") == n_body + 4
    assert deeper.n_params() > model.n_params()


@pytest.mark.parametrize("name", MODELS)
def test_memory_falls_with_recomputation_and_sharding(name: str) -> None:
    model, machine = workload(name), cluster("dgx-a100", 16)

    def used(**changes: Any) -> Any:
        return memory(model, machine, plan_of(name, **changes)).stages[0]

    assert used(recompute="full").activations_bytes < used().activations_bytes
    assert used(attention="unfused").activations_bytes > used().activations_bytes
    assert used(zero_stage=1).optimizer_bytes == pytest.approx(used().optimizer_bytes / 16)


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_cache_of_plans_sees_what_blocks_read(name: str) -> None:
    """Lengths of their own must not hide the plan's fields from the cache of a sweep."""
    model = workload(name)
    plans = [
        replace(LAYERED_PLAN, seq_len=length, micro_batch=b, tp=tp)
        for length in (128, 512)
        for b in (2, 4)
        for tp in (1, 2)
    ]
    for run in distinct_runs(model):
        kind = run.kind

        def flops(plan: ParallelPlan, kind: str = kind) -> float:
            return model.block(kind, plan).kernels.flops()

        cache = PlanCache(flops)
        for plan in plans:
            values, which = cache.look_up(PlanTable.of(plan))
            assert values[which[0]] == flops(plan)

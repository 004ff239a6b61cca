"""Encoder-decoders: published counts, FLOPs in closed form, cross attention."""

from dataclasses import replace

import pytest

from prism_jax.core.errors import SpecError
from prism_jax.plan.plan import ParallelPlan
from prism_jax.workload.catalog import workload
from prism_jax.workload.transformer.encoder_decoder import EncoderDecoderSpec

PLAN = ParallelPlan(micro_batch=4, global_batch=64, seq_len=512, dp=16)


def encoder_decoder(name: str) -> EncoderDecoderSpec:
    """An encoder-decoder by name."""
    found = workload(name)
    assert isinstance(found, EncoderDecoderSpec)
    return found


BASE = encoder_decoder("t5-base")


@pytest.mark.parametrize(
    ("name", "published"),
    [  # `T5ForConditionalGeneration`, checkpoints of google-t5 and google
        ("t5-small", 60_506_624),
        ("t5-base", 222_903_552),
        ("t5-large", 737_668_096),
        ("t5-3b", 2_851_598_336),
        ("t5-11b", 11_307_321_344),
        ("t5-v1.1-base", 247_577_856),
        ("mt5-small", 300_176_768),
        ("mt5-base", 582_401_280),
        ("mt5-large", 1_229_581_312),
        ("mt5-xl", 3_742_619_648),
        ("mt5-xxl", 12_921_057_280),
    ],
)
def test_parameters_are_those_published(name: str, published: int) -> None:
    assert workload(name).n_params() == published


def test_flops_of_a_step_in_closed_form() -> None:
    s, t, h, f, v, n = 512, 114, 768, 3072, 32128, 12
    reads = n * s * (8 * h**2 + 4 * h * f + 4 * s * h)
    writes = n * t * (8 * h**2 + 4 * h * f + 4 * (t + 1) / 2 * h)
    cross = n * (4 * t * h**2 + 4 * s * h**2 + 4 * s * t * h)
    head = 2 * t * h * v
    assert BASE.step_flops(PLAN, recomputed=False) == pytest.approx(3 * 64 * (reads + writes + cross + head), rel=1e-12)


def test_a_decoder_without_length_of_its_own_writes_as_much_as_is_read() -> None:
    same = replace(BASE, decoder_seq_len=0)
    assert same.step_flops(PLAN, recomputed=True) == replace(BASE, decoder_seq_len=512).step_flops(
        PLAN, recomputed=True
    )


def test_keys_of_the_encoder_cost_as_its_tokens_do() -> None:
    ops = {op.name: op for op in BASE.block("decoder_layer", PLAN).kernels.ops if op.phase == "F"}
    assert (ops["cross_q"].m, ops["cross_kv"].m) == (4 * 114, 4 * 512)
    cross = [op for op in BASE.block("decoder_layer", PLAN).kernels.ops if op.kernel == "attention" and op.phase == "F"]
    assert [(op.m, op.n) for op in cross] == [(114, 114), (114, 512)]
    assert cross[1].flops == 4 * 4 * 114 * 512 * 768


@pytest.mark.parametrize(
    ("field", "value"),
    [("decoder_seq_len", -1), ("n_decoder_layers", -2), ("position", "x"), ("n_buckets", 1.5), ("hidden", 0)],
)
def test_impossible_sizes_are_refused(field: str, value: float) -> None:
    with pytest.raises(SpecError, match=field):
        replace(BASE, **{field: value})

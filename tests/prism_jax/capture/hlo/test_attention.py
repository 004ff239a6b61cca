"""Fused attention in custom calls: known by shapes and not by targets, and what only looks like it."""

from pathlib import Path
from typing import Any

import pytest

from prism_jax.capture.hlo.attention import Attention, attention_of
from prism_jax.capture.hlo.parse import parse_hlo
from tests.prism_jax.capture.hlo.texts import module

B, S, T, H, G, D = 2, 512, 1024, 8, 2, 64  # batch, queries, keys, heads, heads of keys, width
FULL = 4.0 * B * H * S * T * D


def call(
    results: list[str],
    operands: list[str],
    target: str = "te_fused_attn_forward_ffi",
    config: str = "{}",
    name: str = "",
) -> Attention | None:
    rows = "".join(f"  %p{i} = {shape} parameter({i})\n" for i, shape in enumerate(operands))
    given = ", ".join(f"%p{i}" for i in range(len(operands)))
    made = module(
        f'{rows}  ROOT %r = ({", ".join(results)}) custom-call({given}), custom_call_target="{target}", '
        f'backend_config={config}, metadata={{op_name="{name}"}}'
    )
    entry = made.computations["main"]
    return attention_of(entry, entry.instructions["r"])


def attention(*given: Any, **named: str) -> Attention:
    """What a call is known as; arguments as those of `call`."""
    found = call(*given, **named)
    assert found is not None
    return found


def shape(*dims: int, dtype: str = "bf16") -> str:
    return f"{dtype}[{','.join(map(str, dims))}]"


Q, K = shape(B, S, H, D), shape(B, T, G, D)
STATISTIC = shape(B, H, S, 1, dtype="f32")
SCRATCH, SEED = "u8[1024]", "s32[2]"
TARGETS = (
    "__cudnn$fmhaSoftmax",
    "te_fused_attn_forward_ffi",
    "my_flash_attention",
    "anything_at_all",
    "tpu_custom_call",
)


@pytest.mark.parametrize("target", TARGETS)
def test_flops_do_not_depend_on_the_target(target: str) -> None:
    found = attention([Q, STATISTIC, SCRATCH], [Q, K, K, SEED], target)
    assert found == Attention(B * H, S, T, D, D, False, False, FULL)
    assert attention([Q, STATISTIC, SCRATCH], [Q, K], target) == found  # keys and values in one


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("order", ["bshd", "bhsd"])
def test_either_order_of_rows_and_heads_is_the_same_attention(target: str, order: str) -> None:
    turn = order == "bhsd"
    q = shape(B, H, S, D) if turn else Q
    k = shape(B, G, T, D) if turn else K
    assert attention([q, STATISTIC], [q, k, k], target).flops == FULL


def test_the_backward_pass_runs_five_products_one_of_them_twice() -> None:
    for target in ("__cudnn$fmhaSoftmaxBackward", "te_fused_attn_backward_ffi", "anything_at_all"):
        found = attention([Q, K, K, SCRATCH], [Q, K, K, STATISTIC, SEED, Q, Q], target)
        assert found.is_backward
        assert found.flops == 2.5 * FULL


def test_so_it_does_where_all_heads_have_keys_of_their_own() -> None:
    k = shape(B, S, H, D)
    forward = attention([Q, STATISTIC], [Q, k, k], "x")
    backward = attention([Q, k, k], [Q, k, k, STATISTIC, Q, Q], "x")
    assert (forward.is_backward, backward.is_backward) == (False, True)
    assert backward.flops == 2.5 * forward.flops


def test_kernels_for_some_of_the_gradients_run_fewer_products() -> None:
    inputs = [Q, K, K, STATISTIC, Q, Q]
    queries = attention([Q], inputs, "flash_bwd_dq")
    keys = attention([K, K], inputs, "flash_bwd_dkv")
    assert (queries.flops, keys.flops) == (1.5 * FULL, 2.0 * FULL)


@pytest.mark.parametrize(
    ("operands", "kv"),
    [([shape(B, S, 3, H, D)], S), ([Q, shape(B, T, 2, G, D)], T), ([shape(B, S, 3, H, D), "bf16[0]", "bf16[0]"], S)],
)
def test_packed_queries_keys_and_values_are_taken_apart(operands: list[str], kv: int) -> None:
    assert attention([Q, STATISTIC], [*operands, SEED]).flops == 4.0 * B * H * S * kv * D


def test_values_may_be_of_another_width() -> None:
    assert attention(
        [shape(B, S, H, 32), STATISTIC], [Q, shape(B, T, H, D), shape(B, T, H, 32)]
    ).flops == 2.0 * B * H * S * T * (D + 32)


def test_kernels_of_one_sequence_have_three_dimensions() -> None:
    q, k = shape(H, S, D), shape(G, T, D)
    found = attention([q, shape(H, S, dtype="f32")], [q, k, k], "tpu_custom_call")
    assert found.flops == 4.0 * H * S * T * D
    named = attention([q], [q, k, k], "tpu_custom_call", name="jit(step)/jvp(M)/splash_attention/pallas_call")
    assert named == found
    config = '{"custom_call_config": {"body": "TUzvUg", "kernel_name": "x", "name": "flash_attention_kernel"}}'
    assert attention([q], [q, k, k], "tpu_custom_call", config) == found


def test_a_statistic_may_stand_in_every_lane() -> None:
    q, k = shape(B, H, S, D), shape(B, G, T, D)
    assert attention([q, shape(B, H, S, 128, dtype="f32")], [q, k, k], "tpu_custom_call").flops == FULL
    wide = shape(B, H, S, 128, dtype="f32")  # queries in fp32 are no statistic of their own
    assert call([wide], [wide, shape(B, G, T, 128, dtype="f32")], "tpu_custom_call") is None


@pytest.mark.parametrize(
    ("config", "share"),
    [
        ("{attn_bias_type = 0 : i64, attn_mask_type = 0 : i64}", 1.0),
        ("{attn_bias_type = 0 : i64, attn_mask_type = 2 : i64}", 0.5),
        ('{"cudnn_fmha_backend_config":{"mask_type":"CAUSAL"}}', 0.5),
    ],
)
def test_a_causal_mask_halves_a_square(config: str, share: float) -> None:
    k = shape(B, S, G, D)
    square = attention([Q, STATISTIC], [Q, k, k], config=config)
    assert (square.flops, square.is_causal) == (share * 4.0 * B * H * S * S * D, share < 1.0)
    wide = attention([Q, STATISTIC], [Q, K, K], config=config)
    assert wide.flops == FULL  # where the mask lies in it the text does not say


@pytest.mark.parametrize(
    ("results", "operands", "target", "name"),
    [
        ([Q, K], [Q, K, shape(S, D)], "rotary_kernel", "jit(f)/jvp(M)/attention/rope/custom_call"),  # turns both
        ([Q], [Q, Q], "fused_add", ""),
        ([shape(B, S, D)], [shape(B, S, D), shape(B, T, D)], "layer_norm", "jit(f)/attention/norm/custom_call"),
        ([Q, STATISTIC], [Q], "fused_attn", ""),
        ([Q, STATISTIC], [Q, shape(B, T, 3, D)], "fused_attn", ""),  # three heads do not serve eight
        ([Q], [Q, K, K], "anything_at_all", ""),
        ([SCRATCH], [Q, K, K, STATISTIC], "flash_attention", ""),
    ],
)
def test_what_only_looks_like_it_is_none(results: list[str], operands: list[str], target: str, name: str) -> None:
    assert call(results, operands, target, name=name) is None


CASES = Path(__file__).parents[4].parent / "shared" / "data" / "cases" / "hlo"


@pytest.mark.skipif(not CASES.exists(), reason="shared programs are not here")
def test_the_shared_programs_have_the_flops_of_their_attention() -> None:
    for path in sorted(CASES.glob("*_attention.hlo")):
        made = parse_hlo(path.read_text(), str(path))
        entry = made.computations[made.entry]
        found = attention_of(entry, entry.instructions["attn"])
        assert found is not None, path.name
        assert found.flops == 4.0 * 2 * 32 * 2048 * 8192 * 128

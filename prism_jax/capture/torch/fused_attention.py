# pyright: reportMissingImports=false
"""Scaled dot-product attention as GPUs run it: one fused kernel each way, with dropout inside; a CPU would take it apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.nn import functional

from .op_sizes import attention_row
from .recorder import Recorder

_PLAIN = functional.scaled_dot_product_attention


def attention_through(recorder: Recorder, assumed: set[str]) -> Callable[..., Any]:
    """A stand-in for `scaled_dot_product_attention`; what it takes for granted is added to `assumed`."""

    def attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if isinstance(query, DTensor):
            return _PLAIN(query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
        if attn_mask is not None:
            assumed.add("Attention with a mask that is a tensor computes all scores, none are skipped.")
        if not isinstance(attn_mask, torch.Tensor):
            attn_mask = None
        return _Fused.apply(query, key, value, is_causal and attn_mask is None, recorder)

    return attention


class _Fused(torch.autograd.Function):
    """Records one kernel forward and one backward."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, causal: bool, recorder: Recorder) -> Any:
        ctx.save_for_backward(q, k, v)
        ctx.causal, ctx.recorder = causal, recorder
        with recorder.paused():
            out = q.new_empty(*q.shape[:-1], v.shape[-1])
        recorder.custom(attention_row(q, k, v, causal=causal, backward=False), (q, k, v), out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        q, k, v = ctx.saved_tensors
        with ctx.recorder.paused():
            found = tuple(torch.empty_like(one) for one in (q, k, v))
        ctx.recorder.custom(attention_row(q, k, v, causal=ctx.causal, backward=True), (grad, q, k, v), found)
        return (*found, None, None)

# pyright: reportMissingImports=false
"""What GPUs run as one kernel each way and a CPU takes apart: scaled dot-product attention (dropout inside) and RMSNorm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.distributed.tensor import DTensor
from torch.nn import functional

from ....workload.captured.chains import KERNEL, REDUCTION
from ....workload.captured.rows import CapturedOp
from .op_sizes import attention_row, dtype_of, stored_bytes
from .recorder import Recorder

_ATTENTION, _RMS_NORM = functional.scaled_dot_product_attention, functional.rms_norm
MASKED = "Attention with a mask that is a tensor computes all scores, none are skipped."


@contextmanager
def fused_kernels(recorder: Recorder, assumed: set[str]) -> Iterator[None]:
    """Torch with stand-ins for these functions; what they take for granted is added to `assumed`."""
    with (
        patch.object(functional, "scaled_dot_product_attention", _attention_through(recorder, assumed)),
        patch.object(functional, "rms_norm", _norm_through(recorder)),
    ):
        yield


def _attention_through(recorder: Recorder, assumed: set[str]) -> Callable[..., Any]:
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
            return _ATTENTION(query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
        if attn_mask is not None:
            assumed.add(MASKED)
        return _Attention.apply(query, key, value, is_causal and attn_mask is None, recorder)

    return attention


def _norm_through(recorder: Recorder) -> Callable[..., Any]:
    def rms_norm(x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
        if isinstance(x, DTensor) or isinstance(weight, DTensor) or weight is None:
            return _RMS_NORM(x, normalized_shape, weight, eps)
        return _RMSNorm.apply(x, weight, recorder)

    return rms_norm


class _Attention(torch.autograd.Function):
    """One kernel forward and one backward; what it returns lies in memory as [batch, token, head, width]."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, causal: bool, recorder: Recorder) -> Any:
        ctx.save_for_backward(q, k, v)
        ctx.causal, ctx.recorder = causal, recorder
        *lead, heads, tokens, _ = q.shape if q.dim() > 3 else (1, *q.shape)
        with recorder.paused():
            out = q.new_empty(*lead, tokens, heads, v.shape[-1]).transpose(-3, -2)
            out = out if q.dim() > 3 else out[0]
        read = {one: stored_bytes(one) for one in (q, k, v)}
        recorder.custom(attention_row(q, k, v, causal=causal, backward=False), KERNEL, read, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        q, k, v = ctx.saved_tensors
        with ctx.recorder.paused():
            found = tuple(torch.empty_like(one) for one in (q, k, v))
        read = {one: stored_bytes(one) for one in (*grads, q, k, v)}
        ctx.recorder.custom(attention_row(q, k, v, causal=ctx.causal, backward=True), KERNEL, read, found)
        return (*found, None, None)


class _RMSNorm(torch.autograd.Function):
    """Input read, output written; backward, input and gradient read, gradient written."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, recorder: Recorder) -> Any:
        ctx.save_for_backward(x, weight)
        ctx.recorder = recorder
        with recorder.paused():
            out = torch.empty_like(x)
        read = {one: stored_bytes(one) for one in (x, weight)}
        recorder.custom(_norm_row("aten::_fused_rms_norm", out, read), REDUCTION, read, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, weight = ctx.saved_tensors
        with ctx.recorder.paused():
            found = torch.empty_like(x), torch.empty_like(weight)
        read = {one: stored_bytes(one) for one in (*grads, x, weight)}
        row = _norm_row("aten::_fused_rms_norm_backward", found[0], read)
        ctx.recorder.custom(row, REDUCTION, read, found)
        return (*found, None)


def _norm_row(name: str, out: Any, read: Mapping[Any, float]) -> CapturedOp:
    own = stored_bytes(out)
    sizes = {"n_bytes": sum(read.values()) + own, "output_bytes": own}
    return CapturedOp(name, "memory", "F", dtype_of([out]), tuple(out.shape)[-16:], fusible=True, **sizes)

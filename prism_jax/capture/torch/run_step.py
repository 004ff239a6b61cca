"""Runs one step of one rank with fake tensors (forward, loss, backward, optimizer), and finds the tensors that a stage hands on.

What GPUs run as one kernel each way and a CPU takes apart stays whole: scaled dot-product attention (dropout inside) and RMSNorm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch.distributed.tensor import DTensor
from torch.nn import functional

from ...core.errors import DataError
from ...workload.captured.chains import KERNEL, REDUCTION
from ...workload.captured.program import CapturedOp
from .contract import Built
from .op_sizes import attention_row, dtype_of, stored_bytes, tensors
from .recorder import Recorder
from .routing import ASSUMPTION as ROUTING

# pyright: reportMissingImports=false


_ATTENTION, _RMS_NORM = functional.scaled_dot_product_attention, functional.rms_norm
MASKED = "Attention with a mask that is a tensor computes all scores, none are skipped."


@contextmanager
def fused_kernels(recorder: Recorder, assumed: set[str]) -> Iterator[None]:
    """Torch with stand-ins for these functions; their assumptions are added to `assumed`."""
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
    """One kernel forward and one backward; the result lies in memory as [batch, token, head, width]."""

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


class StepFacts(NamedTuple):
    """Facts of a step in addition to its rows.

    Attributes:
        needed: events that made gradients of the inputs of the stage.
        sends_bytes: of its output, where the stage has no loss.
        saved_bytes: of tensors that are kept for the backward pass, parameters aside.
        assumptions: about what ran otherwise than it would on a GPU.
    """

    needed: frozenset[int]
    sends_bytes: float
    saved_bytes: float
    assumptions: tuple[str, ...]


def run_step(built: Built, recorder: Recorder, where: str, *, is_first: bool, accumulates: bool) -> StepFacts:
    """Runs the step; its rows are in the recorder.

    Args:
        where: place of the contract, for messages.
        is_first: the stage takes data; the inputs of others are activations, which have gradients.
        accumulates: there are several micro-batches: gradients are added to those of the one before.

    Raises:
        DataError: the loss is no scalar, or nothing has a gradient.
    """
    model = built.model.train()
    inputs = list(built.inputs) if is_first else [_activation(one) for one in built.inputs]
    assumed: set[str] = set()
    kept = _Kept()
    if accumulates:
        for one in model.parameters():
            one.grad = torch.empty_like(one, requires_grad=False) if one.requires_grad else None
    with fused_kernels(recorder, assumed):
        with recorder.phase("F", model), torch.autograd.graph.saved_tensors_hooks(kept.pack, kept.unpack):
            output = model(*inputs)
            loss = built.loss(output) if built.loss is not None else output
        is_end = isinstance(loss, torch.Tensor) and loss.dim() == 0
        if built.loss is not None and not is_end:
            raise DataError(f"{where}: the loss is not a scalar tensor. Return its mean or sum.")
        outputs = [one for one in tensors(loss) if one.requires_grad]
        if not outputs:
            raise DataError(f"{where}: nothing that the model returns has a gradient. Does it use its parameters?")
        gradients = [None if is_end else torch.ones_like(one) for one in outputs]
        with recorder.phase("B", model):
            torch.autograd.backward(outputs, gradients)
        needed: set[int] = set()
        for one in inputs:
            if isinstance(one, torch.Tensor) and one.grad is not None:
                needed |= recorder.producers_of(one.grad)
        if built.update is not None:
            _warm_up(built)
            with recorder.phase("opt", model):
                built.update()
    if recorder.routing.used:
        assumed.add(ROUTING)
    sends = 0.0 if is_end else sum(map(stored_bytes, outputs))
    return StepFacts(frozenset(needed), sends, kept.n_bytes, tuple(sorted(assumed)))


def _warm_up(built: Built) -> None:
    """One update that is not recorded: the first one makes the states of the optimizer."""
    assert built.update is not None
    gradients = [(one, one.grad) for one in built.model.parameters()]
    built.update()
    for one, gradient in gradients:
        one.grad = gradient


def _activation(value: Any) -> Any:
    is_one = isinstance(value, torch.Tensor) and value.dtype.is_floating_point
    return value.detach().requires_grad_() if is_one else value


class _Kept:
    """Sums the storages that the forward pass saves, those of parameters aside."""

    def __init__(self) -> None:
        self.sizes: dict[int, float] = {}
        self.held: list[Any] = []  # so that no storage is at the address of another

    def pack(self, tensor: Any) -> Any:
        if not isinstance(tensor, torch.nn.Parameter) and not isinstance(tensor._base, torch.nn.Parameter):
            local = getattr(tensor, "_local_tensor", tensor)
            self.held.append(local)
            self.sizes[local.untyped_storage()._cdata] = float(prod(local.shape) * local.element_size())
        return tensor

    @staticmethod
    def unpack(tensor: Any) -> Any:
        return tensor

    @property
    def n_bytes(self) -> float:
        return sum(self.sizes.values())

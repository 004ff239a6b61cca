# pyright: reportMissingImports=false
"""One step of one rank with fake tensors: forward, loss, backward, optimizer; and what of it a stage hands on."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import torch

from ...errors import DataError
from .contract import Built
from .recording.fused_kernels import fused_kernels
from .recording.op_sizes import stored_bytes, tensors
from .recording.recorder import Recorder
from .recording.routing import ASSUMPTION as ROUTING


class StepFacts(NamedTuple):
    """What a step shows beside its rows.

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

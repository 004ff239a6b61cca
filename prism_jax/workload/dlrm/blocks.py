"""The two blocks of a recommendation model on one device: tables with their exchange, and the dense part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..._core.lazy_numpy import np
from ...plan.plan import ParallelPlan
from ..base import Block, Comm, Parameters, PlainBlock, SavedTensor
from ..kernels import Kernel, KernelTable
from .dense import dense_kernels
from .exchange import SizeRule, exchange_bytes
from .lookup import LookupKernel
from .parts import EVERYWHERE
from .sizes import DLRMSizes
from .traffic import state_bytes

TABLES, DENSE = "tables", "dense"
INDEX_BYTES = 8.0  # of an index as it comes from the host


class Held(NamedTuple):
    """What the device with the fullest memory holds of the tables that are not copied.

    Attributes:
        n_params: elements.
        element_bytes: bytes of one with its share of the optimizer's state.
    """

    n_params: float
    element_bytes: float


def kernel_of(model: DLRMSizes, plan: ParallelPlan, phase: str) -> LookupKernel:
    """The embedding kernel of a pass of one micro-batch."""
    batch = plan.micro_batch * plan.dp
    return LookupKernel(phase, model.tables, plan.tables, plan.dp, batch, model.optimizer, plan.element_bytes)


def tables_block(model: DLRMSizes, plan: ParallelPlan, rule: SizeRule) -> Block:
    """Lookups, exchange of pooled vectors and of their gradients."""
    forward = kernel_of(model, plan, "F")
    own = forward.parts.lookups
    n_lookups = float((own.batch * own.pooling * own.dim).sum()) / plan.dp
    moved = model_bytes = plan.micro_batch * model.pooled_width * plan.element_bytes
    kernels = [
        Kernel(name, phase, "memory", n_lookups, moved, law=kernel_of(model, plan, phase))
        for phase, name in (("F", "embedding lookup"), ("B", "embedding update"))
    ]
    held = held_by_fullest(model, plan)
    indices = INDEX_BYTES * plan.micro_batch * sum(table.pooling for table in model.tables)
    return PlainBlock(
        KernelTable.of(kernels),
        tuple(_exchange(model, plan, rule)),
        (Parameters(TABLES, held.n_params), Parameters(DENSE, copied_params(model, plan))),
        (SavedTensor("pooled vectors", model_bytes), SavedTensor("indices", 2.0 * indices)),
        backward_bytes=model_bytes + indices,
    )


def dense_block(model: DLRMSizes, plan: ParallelPlan) -> Block:
    """Layers, interaction and loss."""
    samples, wide = float(plan.micro_batch), plan.element_bytes
    inputs = wide * samples * sum(k for _, k, _ in model.products)
    joined = wide * samples * model.joined_width
    return PlainBlock(
        KernelTable.of(dense_kernels(model, samples, wide)),
        (),
        (Parameters(DENSE, float(model.n_dense_params)),),
        (SavedTensor("inputs of the layers", inputs), SavedTensor("vectors that interact", joined)),
        backward_bytes=2.0 * joined,
    )


def _exchange(model: DLRMSizes, plan: ParallelPlan, rule: SizeRule) -> Iterator[Comm]:
    """Pooled vectors to the device of their sample, and gradients back; nothing on one device."""
    if plan.dp == 1:
        return
    parts = kernel_of(model, plan, "F").parts
    values = plan.micro_batch * parts.lookups.dim * parts.vectors * plan.element_bytes
    exchanged = (parts.device != EVERYWHERE) & (parts.is_scattered == 0.0)
    own = np.bincount(parts.device[exchanged], values[exchanged], plan.dp)
    if own.any():
        forward = Comm("ep", "all_to_all", "F", float(exchange_bytes(own, rule)), plan.stride("dp"), plan.dp)
        yield from (forward, forward._replace(phase="B"))
    scattered = float((values * parts.is_scattered).sum())  # of all devices: partial sums of every sample
    if scattered:
        sums = Comm("ep", "reduce_scatter", "F", scattered, plan.stride("dp"), plan.dp)
        yield from (sums, sums._replace(kind="all_gather", phase="B"))


def held_by_fullest(model: DLRMSizes, plan: ParallelPlan) -> Held:
    """Of the tables that are not copied."""
    parts = kernel_of(model, plan, "F").parts
    own, here = parts.lookups, parts.device != EVERYWHERE
    if not here.any():
        return Held(0.0, 4.0)
    params = own.rows * own.dim
    n_bytes = params * own.element_bytes + own.rows * state_bytes(own.dim, model.optimizer)
    held = np.bincount(parts.device[here], n_bytes[here], plan.dp)
    fullest = int(held.argmax())
    n = float(np.bincount(parts.device[here], params[here], plan.dp)[fullest])
    return Held(n, float(held[fullest]) / n)


def copied_params(model: DLRMSizes, plan: ParallelPlan) -> float:
    """Elements of tables that every device has a copy of."""
    parts = kernel_of(model, plan, "F").parts
    here = parts.device == EVERYWHERE
    return float((parts.lookups.rows * parts.lookups.dim)[here].sum())

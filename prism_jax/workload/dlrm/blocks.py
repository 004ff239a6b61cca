"""The two blocks of a recommendation model on one device: tables with their exchange, and the dense part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..._core.lazy_numpy import np
from ..._typing import Flags, Floats
from ...plan.plan import ParallelPlan
from ...plan.state_dtypes import ELEMENT_BYTES
from ..base import Block, Comm, Parameters, PlainBlock, SavedTensor
from ..kernels import Kernel, KernelTable
from .dense import dense_kernels
from .exchange import SizeRule, exchange_bytes
from .law import HostCopy
from .lookup import LookupKernel
from .parts import EVERYWHERE, Parts
from .sizes import DLRMSizes
from .traffic import state_bytes

TABLES, DENSE = "tables", "dense"
FEATURE_BYTES = 4.0  # of a dense feature or a label
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
    model_bytes = plan.micro_batch * model.pooled_width * plan.element_bytes
    kernels = [
        Kernel(name, phase, "memory", n_lookups, model_bytes, law=kernel_of(model, plan, phase))
        for phase, name in (("F", "embedding lookup"), ("B", "embedding update"))
    ]
    held = held_by_fullest(model, plan)
    indices = INDEX_BYTES * plan.micro_batch * sum(table.pooling for table in model.tables)
    if not model.prefetch:
        inputs = indices + FEATURE_BYTES * plan.micro_batch * (model.n_dense + 1.0)  # and a label
        kernels.append(Kernel("copy of the inputs", "F", "memory", law=HostCopy(inputs)))
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
    n = model.n_dense_params + copied_params(model, plan)
    update = Kernel("dense update", "B", "memory", 0.0, n * _update_bytes(model, plan))
    beside = "chunk" if plan.overlap.dp else ""
    sums = Comm("dp", "all_reduce", "B", n * _gradient_bytes(plan), plan.stride("dp"), plan.dp, beside)
    return PlainBlock(
        KernelTable.of((*dense_kernels(model, samples, wide), update)),
        (sums,) if plan.dp > 1 else (),
        (Parameters(DENSE, float(model.n_dense_params)),),
        (SavedTensor("inputs of the layers", inputs), SavedTensor("vectors that interact", joined)),
        backward_bytes=2.0 * joined,
    )


def _exchange(model: DLRMSizes, plan: ParallelPlan, rule: SizeRule) -> Iterator[Comm]:
    """Pooled vectors to the device of their sample, and gradients back; nothing on one device."""
    if plan.dp == 1:
        return
    parts = kernel_of(model, plan, "F").parts
    values = plan.micro_batch * parts.lookups.dim * parts.vectors * plan.element_bytes  # to each other device
    here = (parts.device != EVERYWHERE) & ~parts.is_scattered
    stride, node_size = plan.stride("dp"), plan.tables.node_size
    own = np.bincount(parts.device[here], values[here], plan.dp)
    comms = [Comm("ep", "all_to_all", "F", float(exchange_bytes(own, rule)), stride, plan.dp)]
    if node_size:
        n_node = plan.dp // node_size
        inside = exchange_bytes(own.reshape(n_node, node_size) * n_node, rule).max()
        across = exchange_bytes(_of_nodes(parts, values, here, node_size, n_node), rule)
        inner = Comm("ep", "all_to_all", "F", float(inside), stride, node_size)
        comms = [inner, inner._replace(n_bytes=float(across), stride=stride * node_size, size=n_node)]
    scattered = float((values * parts.is_scattered).sum())  # of all devices: partial sums of every sample
    sums = Comm("ep", "reduce_scatter", "F", scattered, stride, plan.dp)
    for comm in comms if own.any() else ():
        yield from (comm, comm._replace(phase="B"))
    if scattered:
        yield from (sums, sums._replace(kind="all_gather", phase="B"))


def _of_nodes(parts: Parts, values: Floats, here: Flags, node_size: int, n_node: int) -> Floats:
    """[node] bytes that one device of the node sends to its peer in another: sums of a table's parts in a node go once."""
    node = parts.device // node_size
    _, group, n = np.unique(np.stack([parts.table, node]), axis=1, return_inverse=True, return_counts=True)
    once = np.where(parts.is_summed, values / n[group], values)
    return np.asarray(np.bincount(node[here], once[here], n_node), dtype=float)


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


def dense_bytes(model: DLRMSizes, plan: ParallelPlan) -> float:
    """Bytes kept of a dense parameter: itself, its fp32 copy, gradient and state of the optimizer."""
    master = 4.0 if plan.element_bytes < 4.0 else 0.0
    return plan.element_bytes + master + _gradient_bytes(plan) + _state(model)


def _update_bytes(model: DLRMSizes, plan: ParallelPlan) -> float:
    """Traffic of the update of a dense parameter: gradient read, fp32 copy and state read and written, parameter written."""
    master = 8.0 if plan.element_bytes < 4.0 else 4.0
    return _gradient_bytes(plan) + master + 2.0 * _state(model) + plan.element_bytes


def _gradient_bytes(plan: ParallelPlan) -> float:
    own = plan.state_dtypes.grad_reduce
    return plan.element_bytes if own is None else ELEMENT_BYTES[own]


def _state(model: DLRMSizes) -> float:
    """Bytes of the optimizer's state of a dense parameter: one sum of squares, or nothing."""
    return 0.0 if model.optimizer == "sgd" else 4.0

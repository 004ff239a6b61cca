"""DLRMSpec: a recommendation model as two blocks: tables over all devices with their exchange, dense layers on each.

All devices meet in the exchange of pooled vectors, twice a step: a plan has `ep = dp`, one group of devices that step together,
and no independent replicas. Source: arXiv 1906.00091 (DLRM), 2008.13535 (DCNv2), MLPerf Training (both as benchmarks).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...core.arrays import Flags, Floats
from ...core.errors import Problem, SpecError
from ...core.lazy import np
from ...framework.software import FUSED
from ...plan.fields import ELEMENT_BYTES
from ...plan.plan import ParallelPlan
from ..base.kernels import Kernel, KernelTable, stream
from ..base.workload import (
    DENSE as DENSE,
    Block,
    BlockRun,
    Comm,
    Parameters,
    PlainBlock,
    SavedTensor,
    Split,
    WorkloadDefaults,
    uncut,
)
from .lookup_law import HostCopy, state_bytes
from .parts import EVERYWHERE, LookupKernel, Parts
from .sizes import CrossSpec, DLRMSizes, dense_kernels, exchange_bytes
from .tables import EmbeddingTable, Reuse, Uniform, Zipf

TABLES = "tables"
FEATURE_BYTES = 4.0  # of a dense feature or a label
INDEX_BYTES = 8.0  # of an index as it comes from the host


class Held(NamedTuple):
    """Size of the tables on the device with the fullest memory, without the tables that are copied to all devices.

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


def tables_block(model: DLRMSizes, plan: ParallelPlan) -> Block:
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
        tuple(_exchange(model, plan)),
        (Parameters(TABLES, held.n_params), Parameters(DENSE, copied_params(model, plan))),
        (SavedTensor("pooled vectors", model_bytes), SavedTensor("indices", 2.0 * indices)),
        backward_bytes=model_bytes + indices,
    )


def dense_block(model: DLRMSizes, plan: ParallelPlan) -> Block:
    """Makes the block of dense layers, interaction and loss."""
    samples, wide = float(plan.micro_batch), plan.element_bytes
    inputs = wide * samples * sum(k for _, k, _ in model.products)
    joined = wide * samples * model.joined_width
    n = model.n_dense_params + copied_params(model, plan)
    update = stream("dense update", "B", n * _update_bytes(model, plan))
    beside = "chunk" if plan.overlap.dp else ""
    sums = Comm("dp", "all_reduce", "B", n * _gradient_bytes(plan), plan.stride("dp"), plan.dp, beside)
    return PlainBlock(
        KernelTable.of((*dense_kernels(model, samples, wide), update)),
        (sums,) if plan.dp > 1 else (),
        (Parameters(DENSE, float(model.n_dense_params)),),
        (SavedTensor("inputs of the layers", inputs), SavedTensor("vectors that interact", joined)),
        backward_bytes=2.0 * joined,
    )


def _exchange(model: DLRMSizes, plan: ParallelPlan) -> Iterator[Comm]:
    """Pooled vectors to the device of their sample, and gradients back; nothing on one device."""
    if plan.dp == 1:
        return
    parts = kernel_of(model, plan, "F").parts
    values = plan.micro_batch * parts.lookups.dim * parts.vectors * plan.element_bytes  # to each other device
    here = (parts.device != EVERYWHERE) & ~parts.is_scattered
    stride, node_size = plan.stride("dp"), plan.tables.node_size
    own = np.bincount(parts.device[here], values[here], plan.dp)
    comms = [Comm("ep", "all_to_all", "F", float(exchange_bytes(own)), stride, plan.dp)]
    if node_size:
        n_node = plan.dp // node_size
        inside = exchange_bytes(own.reshape(n_node, node_size) * n_node).max()
        across = exchange_bytes(_of_nodes(parts, values, here, node_size, n_node))
        inner = Comm("ep", "all_to_all", "F", float(inside), stride, node_size)
        comms = [inner, inner._replace(n_bytes=float(across), stride=stride * node_size, size=n_node)]
    scattered = float((values * parts.is_scattered).sum())  # of all devices: partial sums of every sample
    sums = Comm("ep", "reduce_scatter", "F", scattered, stride, plan.dp)
    for comm in comms if own.any() else ():
        yield from (comm, comm._replace(phase="B"))
    if scattered:
        yield from (sums, sums._replace(kind="all_gather", phase="B"))


def _of_nodes(parts: Parts, values: Floats, here: Flags, node_size: int, n_node: int) -> Floats:
    """Bytes that one device of the node sends to its peer in another, [node]: sums of a table's parts in a node go once."""
    node = parts.device // node_size
    _, group, n = np.unique(np.stack([parts.table, node]), axis=1, return_inverse=True, return_counts=True)
    once = np.where(parts.is_summed, values / n[group], values)
    return np.asarray(np.bincount(node[here], once[here], n_node), dtype=float)


def held_by_fullest(model: DLRMSizes, plan: ParallelPlan) -> Held:
    """Returns the tables held by the device with the fullest memory, without the copied ones."""
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


@dataclass(frozen=True)
class DLRMSpec(DLRMSizes, WorkloadDefaults):
    """A recommendation model."""

    # --- workload: see `base.Workload` ---

    @property
    def sure_software(self) -> dict[str, str]:
        """Software that is certain: no norms, positions, attention or vocabulary; layers have their activation inside."""
        return dict.fromkeys(("norm", "rope", "activation", "cross_entropy"), FUSED) | {"attention": "flash2"}

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        """Tables, then everything else; one stage."""
        return BlockRun(TABLES, 1, "first", is_unit=False), BlockRun(DENSE, 1)

    def groups(self, plan: ParallelPlan) -> tuple[tuple[str, float], ...]:
        """Dense parameters and copied tables are on every device; other tables are divided among all."""
        return (DENSE, 1), (TABLES, plan.dp * plan.cp)

    def frozen_groups(self, plan: ParallelPlan) -> Mapping[str, float]:
        """Groups of both kinds: blocks reduce and apply gradients in the backward pass, so that nothing is left for the end."""
        return {TABLES: held_by_fullest(self, plan).element_bytes, DENSE: dense_bytes(self, plan)}

    def block(self, kind: str, plan: ParallelPlan) -> Block:
        """One block under a plan."""
        return tables_block(self, plan) if kind == TABLES else dense_block(self, plan)

    def completed(self, plan: ParallelPlan, node_size: int) -> ParallelPlan:
        """The plan with the group of all devices that the tables are spread over, and the devices of it that share a host."""
        apart = node_size if 1 < node_size < plan.dp and plan.dp % node_size == 0 else 0
        if (plan.ep, plan.tables.node_size) == (plan.dp, apart):
            return plan
        return replace(plan, ep=plan.dp, tables=replace(plan.tables, node_size=apart))

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        """Pooled vectors of a micro-batch."""
        return plan.element_bytes * plan.micro_batch * self.pooled_width

    def n_params(self) -> int:
        """Returns the number of parameters of tables and dense layers."""
        return self.n_table_params + self.n_dense_params

    def n_params_active(self) -> int:
        """Dense layers and the rows that a sample reads."""
        return self.n_dense_params + round(sum(table.pooling * table.dim for table in self.tables))

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        """Three times the forward products and sums of a sample."""
        products = 2.0 * sum(k * n for _, k, n in self.products)
        pairs = 2.0 * self.n_vector * self.joined_width if self.interaction == "dot" else 0.0
        return 3.0 * plan.global_batch * (products + pairs + sum(table.pooling * table.dim for table in self.tables))

    def deeper(self, n: int) -> DLRMSpec:
        """Refuses: the layers differ, so that there is no deeper model.

        Raises:
            SpecError: always.
        """
        raise SpecError(f"model {self.name}: layers of a recommendation model differ, so there is no deeper variant")

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        """Returns the parts of the tables alone, which are divided among all devices."""
        return uncut("parts of a layer") | {"ep": Split(0, "devices that tables are spread over", is_fixed=True)}

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        """One stage without parameter sharding; every table that a plan names must be there, on devices that are."""
        if plan.pp > 1:
            yield Problem("pp", f"{plan.pp}, but {self.name} is not cut into stages. Use pp=1.")
        if plan.shard_group > 1 or plan.zero_stage > 0:
            field = "zero_stage" if plan.sharding == "none" else "sharding"
            yield Problem(
                field,
                f"{getattr(plan, field)}, but layers of {self.name} are not sharded. Use zero_stage=0 and sharding=none.",
            )
        if plan.recompute != "none":
            yield Problem("recompute", f"{plan.recompute}, but {self.name} keeps its activations. Use recompute=none.")
        known = {table.name: table for table in self.tables}
        for name, shard in plan.tables.of:
            if name not in known:
                yield Problem("tables", f"{name!r}, but {self.name} has {_some(list(known))}")
            elif max(shard.devices, default=0) >= plan.dp:
                yield Problem("tables", f"{name}: {shard}, but there are devices 0 to {plan.dp - 1}")
            elif shard.n_part > {"row": known[name].rows, "column": known[name].dim}.get(shard.way, shard.n_part):
                yield Problem(
                    "tables", f"{name}: {shard}, but it has {known[name].rows} rows of {known[name].dim} elements"
                )
            elif shard.n_part > plan.dp:
                yield Problem("tables", f"{name}: {shard}, but there are {plan.dp} devices")


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


# Rows of the 26 categorical features of Criteo 1TB, capped at 40 million (mlcommons/training, recommendation_v2/torchrec_dlrm).
CRITEO_ROWS = (
    40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282, 10,
    2_209, 11_938, 155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36,
)  # fmt: skip
# Lookups of a sample in the multi-hot variant (the same, `multi_hot_sizes`).
CRITEO_HOT = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
DIM = 128
# One row in a hundred serves 92% of the lookups (arXiv 2202.12429), which is what this exponent gives of 40 million rows.
# The lookups that the multi-hot variant adds are drawn evenly.
CRITEO_REUSE = Zipf(1.15)


def _tables(pooling: tuple[int, ...], reuse: Reuse) -> tuple[EmbeddingTable, ...]:
    rows_of = enumerate(zip(CRITEO_ROWS, pooling, strict=True))
    return tuple(EmbeddingTable(f"t{number}", rows, DIM, float(hot), reuse=reuse) for number, (rows, hot) in rows_of)


PRESETS = (
    DLRMSpec(
        "dlrm-criteo1tb",
        13,
        (512, 256, 128),
        _tables((1,) * len(CRITEO_ROWS), CRITEO_REUSE),
        (1024, 1024, 512, 256, 1),
        source="MLPerf Training v0.7 to v2.1, DLRM: mlcommons/training, recommendation/dlrm; Criteo 1TB",
    ),
    DLRMSpec(
        "dlrm-dcnv2",
        13,
        (512, 256, 128),
        _tables(CRITEO_HOT, Uniform()),
        (1024, 1024, 512, 256, 1),
        "dcn",
        CrossSpec(3, 512),
        "adagrad",
        source="MLPerf Training v3.0 to v4.1, DLRM-DCNv2: mlcommons/training, recommendation_v2/torchrec_dlrm",
    ),
)
WORDS = {
    "n_dense": "dense features of a sample",
    "bottom": "widths of the layers over the dense features",
    "tables": "embedding tables",
    "tables.name": "name of the table, as in `plan.tables`",
    "tables.rows": "vectors",
    "tables.dim": "elements of a vector",
    "tables.pooling": "mean lookups of a sample; their vectors are summed",
    "tables.element_bytes": "of a stored element",
    "tables.reuse": "how lookups repeat: `uniform`, `zipf(a)`, or shares of lookups by how often their row is read (17 bins)",
    "top": "widths of the layers over the interaction",
    "interaction": "interaction of the vectors: products of all pairs, all of them, or all through a cross network",
    "dcn": "cross network of interaction dcn",
    "dcn.layers": "cross layers",
    "dcn.rank": "rank of a cross layer's matrix; 0: full",
    "optimizer": "optimizer of the tables; dense layers have Adagrad where it is not sgd",
    "prefetch": "inputs are copied to the device while the step before runs; false: in front of the step",
}

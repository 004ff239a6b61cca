"""Blocks of a model chunk, chunks of a pipeline stage, their parameters by the way they are sharded, and how these are gathered.

Counts, and bytes of what is gathered and reduced. A rank of a group of `plan.shard_group` holds its share of the parameters of
a unit (a layer, or embedding and head). They are gathered before both passes, and the gradients reduced and scattered after the
backward one. Blocks (`block_cost.py`), the end of the step (`step_end.py`) and captured programs (`capture/from_job.py`) read
the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..core.arrays import Floats
from ..core.errors import PlanError
from ..plan.fields import ELEMENT_BYTES, updates_shards
from ..plan.optimizers import OPTIMIZERS, has_master
from ..plan.plan import ParallelPlan
from ..workload.base.kernels import Kernel, stream
from ..workload.base.workload import Comm, Parameters, Workload, distinct_runs, frozen_groups, n_body, updates_in_step

ChunkBlocks = tuple[int, ...]
"""Blocks of each kind in a model chunk, in the order of `kinds_of(model)`; chunks that hold the same cost the same."""


@dataclass(frozen=True)
class Splits:
    """Counts that may be uneven.

    Attributes:
        layers: per model chunk.
        micro_batches: per replica.
    """

    layers: tuple[int, ...]
    micro_batches: tuple[int, ...]


@lru_cache(maxsize=256)
def chunk_blocks(model: Workload, plan: ParallelPlan) -> tuple[ChunkBlocks, ...]:
    """Returns the blocks of every model chunk, in model order.

    Raises:
        PlanError: `layer_split` does not match the chunks or the layers.
    """
    layers = layers_of_chunks(n_body(model), plan)
    first, last = 0, len(layers) - 1
    columns = [run._replace(count=0) for run in distinct_runs(model)]
    chunks = [[0] * len(columns) for _ in layers]
    start = 0
    for run in model.layout:
        body = range(start, start + run.count) if run.place == "body" else range(0)
        start += len(body)
        column = columns.index(run._replace(count=0))
        for index, (held, own) in enumerate(zip(chunks, layers, strict=True)):
            fixed = run.count if (run.place, index) in (("first", first), ("last", last)) else 0
            held[column] += fixed + len(range(max(own.start, body.start), min(own.stop, body.stop)))
    return tuple(tuple(held) for held in chunks)


def layers_of_chunks(n_layers: int, plan: ParallelPlan) -> tuple[range, ...]:
    """Layer numbers of every model chunk, in model order.

    Notes:
        Without `plan.layer_split` chunks differ by at most one layer, and those that get one less are taken from the two
        ends in turn (last, first, ...), because embedding and head add to these. So did Llama 3 (arXiv 2407.21783,
        section 3.3.2: one layer fewer on the first and on the last stage).

    Raises:
        PlanError: `layer_split` does not match the chunks or the layers.
    """
    sizes = plan.layer_split or _even_split(n_layers, plan.n_chunk)
    if len(sizes) != plan.n_chunk:
        raise PlanError(
            f"layer_split has {len(sizes)} entries, but pp * virtual_stages = {plan.n_chunk}. Give one count per chunk."
        )
    if sum(sizes) != n_layers:
        raise PlanError(f"layer_split adds up to {sum(sizes)} layers, but the model has {n_layers}")
    starts = [sum(sizes[:chunk]) for chunk in range(plan.n_chunk)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))


def _even_split(n_layers: int, n_chunk: int) -> tuple[int, ...]:
    base, n_extra = divmod(n_layers, n_chunk)
    if n_extra == 0:
        return (base,) * n_chunk
    short = n_chunk - n_extra
    first, last = short // 2, n_chunk - (short - short // 2)
    return tuple(base + 1 if first <= chunk < last else base for chunk in range(n_chunk))


def chunks_of_stage(plan: ParallelPlan, stage: int) -> tuple[int, ...]:
    """Chunks whose parameters live on `stage` under the plan's schedule, in model order."""
    return plan.pipeline_schedule.chunks_of_stage(stage, plan.pp, plan.virtual_stages)


class StageWeights(NamedTuple):
    """Parameters of one device after tensor and expert parallelism, before ZeRO or FSDP; arrays may have leading axes.

    Attributes:
        count: [*plan, group] by the way they are sharded, in the order of `Workload.groups`.
        trained: [*plan, group] of these, those that have gradients.
        updated: [*plan, group] of these, those whose update comes after the blocks; none where measured blocks hold it.
        largest_unit: [*plan] of the largest block among them that is gathered by itself.
        largest_rest: [*plan] of the largest set of parameters of the other blocks that are sharded alike: embedding or head.
        root: [*plan] of the other blocks: embedding, head, final norm.
        shared: [*plan] of tensors that other stages hold copies of (a tied embedding), if they are trained.
        matrices: [matrix, 3] how many, rows and columns of the matrices of layers, where the optimizer works on them.
    """

    count: Floats
    trained: Floats
    updated: Floats
    largest_unit: Floats
    largest_rest: Floats
    root: Floats
    shared: Floats
    matrices: Floats

    @property
    def key(self) -> bytes:
        """Bytes that are equal for stages that hold the same parameters."""
        return b"".join(part.tobytes() for part in self)


def group_splits(model: Workload, plan: ParallelPlan) -> Floats:
    """Ranks of dp x cp among which the workload itself divides the parameters of each group, [group]; may be no whole number."""
    return np.array([split for _, split in model.groups(plan)], dtype=np.float64)


def trained_groups(model: Workload, plan: ParallelPlan) -> Floats:
    """1 where parameters have gradients, 0 where they are frozen, [group]."""
    frozen = frozen_groups(model, plan)
    return np.array([float(name not in frozen) for name, _ in model.groups(plan)])


def sharded(count: Floats, splits: Floats, n_shard: int) -> float:
    """Parameters per device when they are sharded over `n_shard` ranks of dp x cp; [group] counts and splits."""
    return float((count / np.maximum(n_shard / splits, 1.0)).sum())


def sharing_ranks(n_ranks: int, split: float) -> int:
    """Ranks that hold the same parameters, of a group of `n_ranks` of dp x cp among which these are divided `split` ways."""
    return max(round(n_ranks / split), 1)


def state_ranks(plan: ParallelPlan) -> int:
    """Ranks over which gradients or optimizer state are sharded: dp x cp, or an HSDP group."""
    return plan.shard_group if plan.sharding == "hsdp" else plan.dp * plan.cp


def optimizer_ranks(plan: ParallelPlan) -> int:
    """Ranks that share out the optimizer's work and states; 1 where each has all of them."""
    return state_ranks(plan) if plan.shard_group > 1 or plan.zero_stage >= 1 else 1


def optimizer_shares(splits: Floats, plan: ParallelPlan) -> Floats:
    """Share of a device's parameters whose states it keeps and updates, [group]; 1 where nothing is sharded.

    Whole experts below tp are on several ranks of one tp group (a split below 1), among which ZeRO shares their states, too.
    """
    sharded_states = updates_shards(plan) or plan.zero_stage >= 1
    return 1.0 / np.maximum(state_ranks(plan) / splits, 1.0) if sharded_states else np.ones_like(splits)


def block_parameters(model: Workload, plan: ParallelPlan, kind: str) -> Floats:
    """Parameters of a block on one device, shared tensors included, [group]."""
    names = [name for name, _ in model.groups(plan)]
    count = np.zeros(len(names))
    for own in model.block(kind, plan).parameters:
        count[names.index(own.group)] += own.count
    return count


def stage_weights(
    model: Workload, plan: ParallelPlan, chunks: Sequence[ChunkBlocks], stages: Sequence[tuple[int, ...]]
) -> list[StageWeights]:
    """Counts the parameters of every stage.

    Args:
        chunks: blocks of every model chunk.
        stages: chunks that each stage holds.

    Notes:
        A tensor that several blocks share is held once per stage; of two stages that hold it one has a copy, unless
        a bidirectional schedule holds all tensors on both.
    """
    blocks = [(run.is_unit, model.block(run.kind, plan).parameters) for run in distinct_runs(model)]
    works_on_matrices = OPTIMIZERS[plan.optimizer].is_orthogonal
    groups = [name for name, _ in model.groups(plan)]
    trained = trained_groups(model, plan)
    held = []
    for own in stages:
        counts = [sum(chunks[c][i] for c in own) for i in range(len(blocks))]
        weights, tensors = _held(blocks, groups, trained, counts)
        held.append((weights._replace(matrices=_matrices(blocks, counts)) if works_on_matrices else weights, tensors))
    if updates_in_step(model):
        held = [(own._replace(updated=np.zeros_like(own.updated)), tensors) for own, tensors in held]
    once = len(plan.pipeline_schedule.placements(plan.pp, plan.virtual_stages))  # stages that hold every tensor
    copies = [sum(n for name, n in own.items() if sum(name in other for _, other in held) > once) for _, own in held]
    return [own._replace(shared=np.array(n)) for (own, _), n in zip(held, copies, strict=True)]


def _held(
    blocks: Sequence[tuple[bool, Sequence[Parameters]]], groups: list[str], trained: Floats, counts: list[int]
) -> tuple[StageWeights, dict[str, float]]:
    """Parameters of a stage with `counts` of the blocks, and its shared tensors by name."""
    total, largest, rest, root, tensors = np.zeros(len(groups)), 0.0, 0.0, 0.0, dict[str, float]()
    for (is_unit, parameters), n in zip(blocks, counts, strict=True):
        for own in parameters if n else ():
            times = n if not own.shared else 0 if own.shared in tensors else 1
            total[groups.index(own.group)] += times * own.count
            root += 0.0 if is_unit else times * own.count
            rest = rest if is_unit else max(rest, own.count)
            if own.shared:
                tensors[own.shared] = own.count * float(trained[groups.index(own.group)])
        if n and is_unit:
            largest = max(largest, sum(own.count for own in parameters))
    units = (np.array(largest), np.array(rest), np.array(root))
    return StageWeights(total, total * trained, total * trained, *units, np.array(0.0), np.zeros((0, 3))), tensors


def _matrices(blocks: Sequence[tuple[bool, Sequence[Parameters]]], counts: Sequence[int]) -> Floats:
    """Matrices of all layers of a stage, [matrix, 3]; those of the same shape are one row."""
    found: dict[tuple[float, float], float] = {}
    for (_, parameters), n in zip(blocks, counts, strict=True):
        for count, rows, columns in (matrix for own in parameters for matrix in own.matrices):
            found[rows, columns] = found.get((rows, columns), 0.0) + n * count
    return np.array([(n, *shape) for shape, n in found.items() if n], dtype=np.float64).reshape(-1, 3)


def weight_bytes(plan: ParallelPlan, is_unit: bool = True) -> float:
    """Bytes of one parameter as it is gathered.

    Args:
        is_unit: it belongs to a layer, not to embedding or head, which stay in 16 bits under `state_dtypes.fp8_params`.
    """
    return 1.0 if plan.state_dtypes.fp8_params and is_unit else plan.element_bytes


def gradient_bytes(plan: ParallelPlan) -> float:
    """Bytes of one gradient as it is reduced across replicas: as `state_dtypes.grad_reduce` says, or as most software does.

    Notes:
        Megatron-LM reduces fp32 main gradients in bf16 training and fp16 gradients in fp16 training; parameter sharding, and
        software without a master copy, in the parameters' 16-bit type (`PURE` of llm-foundry, `bfSixteen` of fms-fsdp).
    """
    if plan.state_dtypes.grad_reduce is not None:
        return ELEMENT_BYTES[plan.state_dtypes.grad_reduce]
    if plan.dtype == "fp32":
        return 4.0
    return 2.0 if plan.dtype == "fp16" or plan.shard_group > 1 or not has_master(plan) else 4.0


class Gathered(NamedTuple):
    """Parameters of one group of a block on a device.

    Attributes:
        count: after tensor and expert parallelism.
        split: ranks of dp x cp among which the workload itself divides them; may be no whole number.
        frozen_bytes: of one of them, if it has no gradient; None: they are trained.
    """

    count: float
    split: float
    frozen_bytes: float | None = None


def gather_comms(plan: ParallelPlan, counts: Sequence[Gathered], is_unit: bool = True) -> list[Comm]:
    """Communication of one unit of parameters per device.

    Args:
        counts: by group.
        is_unit: as in `weight_bytes`.
    """
    if plan.shard_group == 1:
        return []
    stride, _ = plan.data_group
    comms: list[Comm] = []
    for count, split, frozen in counts:
        wide = weight_bytes(plan, is_unit) if frozen is None or frozen == plan.element_bytes else frozen
        own = _unit(plan, count, wide, round(stride * split), sharing_ranks(plan.shard_group, split))
        comms += own if frozen is None else own[:2]  # what is frozen has no gradients to scatter
    return comms


def copy_kernels(plan: ParallelPlan, counts: Sequence[Gathered], is_unit: bool = True) -> list[Kernel]:
    """Copies between the parameters of a unit and the buffers of `gather_comms`, where a plan has them.

    Notes:
        Before both passes a rank copies its own share into the buffer of the all-gather and, later, all of it out of it;
        after the backward pass the gradients into the buffer of the reduce-scatter, in the format that it adds in.

    Source: PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: `all_gather_copy_in`, `split_with_sizes_copy` and
        `chunk_cat`; the last two run on the stream that computes.
    """
    if plan.shard_group == 1 or not plan.shard_copies:
        return []
    kernels: list[Kernel] = []
    for count, split, frozen in counts:
        size = sharing_ranks(plan.shard_group, split)
        if size == 1 or count == 0.0:
            continue
        wide = weight_bytes(plan, is_unit) if frozen is None else frozen
        moved = 2.0 * wide * count
        for phase in ("F", "B"):
            kernels.append(stream("gather_copy_in", phase, moved / size))
            kernels.append(stream("gather_copy_out", phase, moved))
        if frozen is None:
            n_bytes = (plan.element_bytes + gradient_bytes(plan)) * count
            kernels.append(stream("scatter_copy_in", "B", n_bytes))
    return kernels


def _unit(plan: ParallelPlan, count: float, wide: float, stride: int, size: int) -> list[Comm]:
    if size == 1 or count == 0.0:
        return []
    beside = "chunk" if plan.overlap.dp else ""
    gather = Comm("dp", "all_gather", "F", wide * count, stride, size, beside)
    scatter = gather._replace(kind="reduce_scatter", phase="B", n_bytes=gradient_bytes(plan) * count)
    return [gather, gather._replace(phase="B"), scatter]

"""Work of a stage after its last backward pass (reduction, optimizer, gathering), and hand-overs between stages. Seconds.

Muon's update: a matrix X of m x n, m <= n, is orthogonalised by five Newton-Schulz iterations `A = X X^T; X = a X + (b A + c A
A) X`: three products of 2 m^2 n, 2 m^3 and 2 m^2 n FLOPs in bf16. Code runs them one after another, with casts, scales and sums
of their own: on small models the host's starts of these kernels decide. Who computes what: without sharded states every rank
does all matrices. With them the ranks deal the matrices out, each one whole. Parameters that are sharded themselves (FSDP,
ZeRO-3) are split within every matrix, so that all momenta are gathered in bf16 first (arXiv 2502.16982, section 2.3). ZeRO-1
and 2 cut a list of matrices into equal parts: only those at the cuts are gathered, which is not counted (their authors in
Megatron-LM 1428). Of a stage with fewer matrices than ranks the largest one remains. Tensor-parallel ranks work on the parts
that they hold (Megatron-LM `--muon-tp-mode blockwise`). Source: Keller Jordan, kellerjordan.github.io/posts/muon; arXiv
2502.16982.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats, Values, namespace
from ..framework.software import EAGER
from ..plan.fields import optimizer_on_host
from ..plan.optimizers import eager_bytes, has_master, main_gradient_bytes, moments_bytes, updated_bytes
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base.kernels import Kernel, KernelTable, stream
from ..workload.base.workload import Workload
from .block_cost import BlockCostModel, collective_s, crosses_nodes
from .chunk_cost import bucketed
from .compute import op_seconds
from .efficiency import NEUTRAL, CostCorrection, Efficiency
from .offload import host_update_s, paging_s
from .partition import (
    StageWeights,
    chunk_blocks,
    chunks_of_stage,
    gradient_bytes,
    group_splits,
    optimizer_ranks,
    sharded,
    sharing_ranks,
    stage_weights,
    state_ranks,
    weight_bytes,
)


def edge_seconds(model: Workload, cluster: Cluster, plan: ParallelPlan, correction: CostCorrection = NEUTRAL) -> Floats:
    """Seconds of the edge from chunk q to q + 1, [chunk]; zero on one stage, and for the last chunk."""
    seconds = distance_seconds(model, cluster, plan, correction)
    return namespace(seconds).append(seconds, 0.0)[edge_distances(cluster, plan)]


def edge_distances(cluster: Cluster, plan: ParallelPlan) -> NDArray[np.intp]:
    """Class of the distance between the stages of chunk q and q + 1, [chunk]; -1 on one stage, and for the last chunk."""
    device = np.array(stages(plan), dtype=np.intp) * plan.stride("pp")
    distances = np.full(plan.n_chunk, -1, dtype=np.intp)
    crossed = np.flatnonzero(device[:-1] != device[1:])
    distances[crossed] = cluster.fabric.distances(device[crossed], device[crossed + 1])
    return distances


def distance_seconds(
    model: Workload, cluster: Cluster, plan: ParallelPlan, correction: CostCorrection = NEUTRAL
) -> Floats:
    """Seconds to hand a micro-batch's activations over each class of distance, [distance].

    Notes:
        Every tensor-parallel rank sends its 1/tp of the tokens through its own port. Without sequence parallelism the
        receivers then gather the pieces over NVLink (scatter-gather optimisation, arXiv 2104.04473 section 4.1).
    """
    activation, network = model.boundary_bytes(plan), cluster.fabric
    gather = 0.0
    if plan.tp > 1 and not plan.sequence_parallel:
        gather = (
            collective_s("all_gather", activation, cluster, plan.stride("tp"), plan.tp).seconds * correction.scale_up
        )
    distances, stride = range(network.n_distance), plan.stride("pp")
    sends = [network.send_s(activation / plan.tp, distance, stride) for distance in distances]
    whole = [
        send * correction.comm(network.leaves_node(d))[0] + gather for d, send in zip(distances, sends, strict=True)
    ]
    return namespace(whole).asarray(whole, dtype=float)


def stages(plan: ParallelPlan) -> tuple[int, ...]:
    """Stage of every chunk; of bidirectional schedules, for the first direction."""
    return plan.pipeline_schedule.placements(plan.pp, plan.virtual_stages)[0]


class EndWork(NamedTuple):
    """Work of a stage after its last backward pass, without any overlap; arrays have axes [*plan, stage].

    Attributes:
        reduce_s, gather_s: gradient reduction and gathering of updated parameters.
        reduce_calls, gather_calls: collectives that they are.
        embedding_s: sum of a tied embedding's gradients with the other stage that holds a copy.
        optimizer_s: update of the parameters, memory-bound, and what a step waits on top.
        host_s: update on the host, and pages that come and go: no correction of devices concerns them.
        n_bucket: buckets in which reduction and gathering run during the passes; 0 if they do not.
        n_pass: passes of a whole stage from its first chunk's last micro-batch to the end, during which they run.
    """

    reduce_s: Floats
    gather_s: Floats
    reduce_calls: Floats
    gather_calls: Floats
    embedding_s: Floats
    optimizer_s: Floats
    host_s: Floats
    n_bucket: Floats
    n_pass: Floats


@dataclass(frozen=True)
class StageEnd:
    """Seconds after the last backward pass of a stage [*plan, stage]."""

    compute_s: Floats
    exposed_s: Floats
    hidden_s: Floats


def end_work(cluster: Cluster, plan: ParallelPlan, splits: Floats, weights: StageWeights, eff: Efficiency) -> EndWork:
    """Computes the work of a stage after its last backward pass, as if its first chunk ended last (`n_pass` 1).

    Args:
        splits: [group] as in `partition.weights.group_splits`.
        weights: parameters of the stage.
    """
    work = _uncorrected_end(cluster, plan, splits, [weights], eff)
    return EndWork(*(part[0] for part in _corrected_end(work, cluster, plan, [weights], eff)))


def end_works(blocks: BlockCostModel) -> EndWork:
    """Work [stage] of all stages; stages with the same parameters share it, and corrections share the values they leave alone."""
    model, cluster, plan, eff = blocks.model, blocks.cluster, blocks.plan, blocks.eff
    weights, which = blocks.once("weights", lambda: _distinct_weights(model, plan))
    work = blocks.once(
        ("ends", plan.software.optimizer),
        lambda: _uncorrected_end(cluster, plan, group_splits(model, plan), weights, eff),
    )
    work = work._replace(n_pass=work.n_pass * end_passes(plan))
    return EndWork(*(part[which] for part in _corrected_end(work, cluster, plan, weights, eff)))


def _distinct_weights(model: Workload, plan: ParallelPlan) -> tuple[list[StageWeights], NDArray[np.intp]]:
    """Unlike parameters of stages, and [stage] which of them it holds."""
    held = [chunks_of_stage(plan, stage) for stage in range(plan.pp)]
    keys = [(own.key, own) for own in stage_weights(model, plan, chunk_blocks(model, plan), held)]
    distinct = dict(keys)
    return list(distinct.values()), np.array([[*distinct].index(key) for key, _ in keys])


def _uncorrected_end(
    cluster: Cluster, plan: ParallelPlan, splits: Floats, weights: Sequence[StageWeights], eff: Efficiency
) -> EndWork:
    """Work [weights] without correction and without iterations on matrices."""
    xp, every = namespace(cluster, eff), []
    for own in weights:
        reduce_s, reduce_calls = _reduction_s(cluster, plan, splits, own)
        gather_s, gather_calls = _gathering_s(cluster, plan, splits, own)
        n_updated, on_host = _updated(plan, splits, own), optimizer_on_host(plan)
        hbm_bytes = (1.0 - on_host) * optimizer_bytes(plan) * n_updated
        update_s = hbm_bytes / (cluster.device.hbm_bytes_per_s * eff.memory)
        host_s = host_update_s(cluster, plan, on_host * n_updated) + paging_s(cluster, plan, n_updated)
        n_bucket = float(own.trained.sum()) // plan.bucket_elements if plan.overlap.dp else 0.0
        copies_s = _copies_s(cluster, plan, float(own.shared))
        exchanged = (reduce_s, gather_s, reduce_calls, gather_calls, copies_s)
        every.append((*exchanged, update_s, host_s, n_bucket, 1.0))
    return EndWork(*(xp.stack([xp.asarray(one, dtype=float) for one in part]) for part in zip(*every, strict=True)))


def _corrected_end(
    work: EndWork, cluster: Cluster, plan: ParallelPlan, weights: Sequence[StageWeights], eff: Efficiency
) -> EndWork:
    """Returns the corrected work [weights], with the iterations."""
    xp, correction, update_s = namespace(cluster, eff), eff.correction, work.optimizer_s
    factor, call_s = correction.comm(crosses_nodes(cluster, *plan.data_group))
    if any(len(own.matrices) for own in weights):
        n_sharing = optimizer_ranks(plan)
        made = [orthogonalising_s(cluster, plan, own.matrices, n_sharing, eff) for own in weights]
        gathered = [orthogonal_gathering_s(cluster, plan, own.matrices, n_sharing) * factor for own in weights]
        update_s = update_s + xp.asarray(made, dtype=float) + xp.asarray(gathered, dtype=float)
    idle_s = correction.step_s + correction.network_step_s * log2(max(cluster.n_devices / cluster.node_size, 1.0))
    return work._replace(
        reduce_s=work.reduce_s * factor + work.reduce_calls * call_s,
        gather_s=work.gather_s * factor + work.gather_calls * call_s,
        embedding_s=work.embedding_s * factor,
        optimizer_s=update_s * correction.optimizer + idle_s,
    )


def stage_end(work: EndWork, backward_s: Floats, forward_s: Floats, eff: Efficiency, xp: Any = np) -> StageEnd:
    """Splits the work into exposed and hidden seconds.

    Args:
        backward_s, forward_s: [*plan, stage] of one micro-batch through all chunks of the stage: what reductions (of the last
            micro-batches) and gatherings (before the first of the next step) hide behind.
    """
    share = eff.correction.overlap_window
    reduced = bucketed(work.reduce_s, backward_s * work.n_pass, work.n_bucket, share, xp)
    gathered = bucketed(work.gather_s, forward_s * work.n_pass, work.n_bucket, share, xp)
    hidden = reduced.hidden_s + gathered.hidden_s
    exposed = reduced.exposed_s + gathered.exposed_s + eff.overlap_slowdown * hidden + work.embedding_s
    return StageEnd(work.optimizer_s + work.host_s, exposed, hidden)


def end_passes(plan: ParallelPlan) -> float:
    """Passes of a whole stage in which gradients become ready: of the last micro-batch, unless the schedule interleaves chunks.

    Notes:
        An interleaved schedule runs pp micro-batches through one chunk before it turns to the next: when the first of v chunks
        has its gradients, the others have pp micro-batches to go (arXiv 2104.04473 figure 4), and parameters are gathered chunk
        by chunk in the same way.
    """
    v = plan.virtual_stages
    if v == 1 or plan.schedule_name != "interleaved":
        return 1.0
    return (min(plan.pp, plan.n_micro_batch) * (v - 1) + 1) / v


def optimizer_bytes(plan: ParallelPlan) -> float:
    """HBM traffic of the optimizer per parameter that a device updates.

    Notes:
        38 in mixed precision with Adam: gradient 4, master weight and two moments in and out 24, 16-bit weight 2; the norm of
        gradients reads 4, zeroing writes 4. A 16-bit buffer whose gradients the optimizer wants in fp32 is read and copied first.

        Multi-tensor operations one after another (PyTorch `foreach`) pass over the moments and a temporary again; Adafactor has
        no fused kernel.

    Source: states as in ZeRO (arXiv 1910.02054 section 3.1); operations as in torch/optim/adam.py `_multi_tensor_adam`.
    """
    states = 2.0 * (updated_bytes(plan) + moments_bytes(plan))
    computed = 0.0 if plan.element_bytes < 4.0 and not has_master(plan) else 2.0
    buffer = plan.grad_sum_bytes
    apart = eager_bytes(plan) if plan.software.optimizer == EAGER or plan.optimizer == "adafactor" else 0.0
    read = main_gradient_bytes(plan) if buffer < 4.0 else buffer
    copied = buffer + read if read > buffer else 0.0
    return copied + 2.0 * read + buffer + states + computed + apart


def _updated(plan: ParallelPlan, splits: Floats, weights: StageWeights) -> float:
    """Parameters one device updates after its blocks."""
    if plan.shard_group > 1:
        return sharded(weights.updated, splits, plan.shard_group)
    return sharded(weights.updated, splits, state_ranks(plan)) if plan.zero_stage >= 1 else float(weights.updated.sum())


def _reduction_s(cluster: Cluster, plan: ParallelPlan, splits: Floats, weights: StageWeights) -> tuple[Values, int]:
    """Seconds and calls of the reduction of gradients: reduce-scatter if the optimizer is sharded, else all-reduce.

    Notes:
        Of sharded parameters (HSDP) the gradients are reduced between copies of the sharding group.
    """
    stride, size = plan.data_group
    wide = gradient_bytes(plan)
    if plan.shard_group > 1:
        between = size // plan.shard_group
        n_bytes = wide * sharded(weights.trained, splits, plan.shard_group)
        seconds = collective_s("all_reduce", n_bytes, cluster, stride * plan.shard_group, between).seconds
        return seconds, int(between > 1)
    kind = "reduce_scatter" if plan.zero_stage >= 1 else "all_reduce"
    return _in_buckets(kind, wide, cluster, plan, splits, weights)


def _gathering_s(cluster: Cluster, plan: ParallelPlan, splits: Floats, weights: StageWeights) -> tuple[Values, int]:
    """Seconds and calls: updated parameters back to every rank (ZeRO-1 and 2)."""
    if plan.shard_group > 1 or plan.zero_stage == 0:
        return 0.0, 0
    n = float(weights.trained.sum())
    root = min(float(weights.root), n)
    mean = (weight_bytes(plan) * (n - root) + weight_bytes(plan, is_unit=False) * root) / max(n, 1.0)
    return _in_buckets("all_gather", mean, cluster, plan, splits, weights)


def _in_buckets(
    kind: str, wide: float, cluster: Cluster, plan: ParallelPlan, splits: Floats, weights: StageWeights
) -> tuple[Values, int]:
    """Parameters of `wide` bytes, one collective per bucket and group; without overlap one per group."""
    stride, size = plan.data_group
    total, calls = 0.0, 0
    for count, split in zip(weights.trained.tolist(), splits.tolist(), strict=True):
        n = max(1, ceil(count / plan.bucket_elements)) if plan.overlap.dp else 1
        members = sharing_ranks(size, split)
        total += n * collective_s(kind, wide * count / n, cluster, round(stride * split), members).seconds
        calls += n if members > 1 and count > 0.0 else 0
    return total, calls


def _copies_s(cluster: Cluster, plan: ParallelPlan, count: float) -> Values:
    """Gradients of shared tensors are added up between the first and the last stage."""
    n_bytes = gradient_bytes(plan) * count
    return collective_s("all_reduce", n_bytes, cluster, plan.stride("pp") * (plan.pp - 1), 2).seconds if count else 0.0


MUON_ITERATIONS = 5
# Kernels of one matrix: per iteration three products, two scales and two sums; before and after them two casts, the norm, a
# division, a transposition, the momentum and its look-ahead, decay and update (KellerJordan/Muon, `zeropower_via_newtonschulz5`).
_MUON_STARTS_PER_ITERATION, _MUON_STARTS = 7, 9
# Host time of one operation of PyTorch outside of autograd, in its usual range of 5 to 8 us; `Efficiency.host_launch_s` holds the
# code of modules around a listed kernel, too.
_OPERATION_S = 6e-6
_MUON_BYTES = 2.0  # bf16


def orthogonalising_s(
    cluster: Cluster, plan: ParallelPlan, matrices: Floats, n_sharing: int, eff: Efficiency
) -> Values:
    """Seconds of the iterations on one device.

    Args:
        matrices: [matrix, 3] how many, rows and columns, of a stage.
        n_sharing: ranks that deal them out.
    """
    if not len(matrices):
        return 0.0
    xp, count = namespace(cluster, eff), matrices[:, 0]
    kernels = [_newton_schulz_kernels(float(min(shape)), float(max(shape))) for shape in matrices[:, 1:]]
    table = KernelTable.of(kernel for own in kernels for kernel in own)
    device_s = op_seconds(table, cluster.device, plan.dtype, eff).reshape(len(matrices), -1).sum(axis=1)
    starts = np.array([sum(kernel.n_launch * kernel.count for kernel in own) for own in kernels])
    each_s = xp.maximum(device_s, starts * (_OPERATION_S * plan.software.host_share))
    return xp.maximum((count * each_s).sum() / n_sharing, each_s.max())


def _newton_schulz_kernels(m: float, n: float) -> list[Kernel]:
    """Returns the kernels of one matrix of m x n, m <= n."""
    passes = _MUON_BYTES * MUON_ITERATIONS * (6.0 * m * m + 3.0 * m * n) + 30.0 * m * n
    starts = float(MUON_ITERATIONS * (_MUON_STARTS_PER_ITERATION - 3) + _MUON_STARTS)

    def product(rows: float, columns: float, inner: float) -> Kernel:
        moved = _MUON_BYTES * (rows * inner + inner * columns + rows * columns)
        sizes = {"m": rows, "n": columns, "k": inner, "dtype": "bf16", "count": float(MUON_ITERATIONS)}
        return Kernel("newton_schulz", "B", "gemm", 2.0 * rows * columns * inner, moved, 1.0, **sizes)

    return [
        product(m, m, n),
        product(m, m, m),
        product(m, n, m),
        stream("newton_schulz_passes", "B", passes, starts),
    ]


def orthogonal_gathering_s(cluster: Cluster, plan: ParallelPlan, matrices: Floats, n_sharing: int) -> Values:
    """Seconds in which ranks gather the momenta of a stage's matrices, each of which is split over them."""
    if n_sharing == 1 or plan.shard_group == 1 or not len(matrices):
        return 0.0
    n_bytes = _MUON_BYTES * float(matrices.prod(axis=1).sum())
    return collective_s("all_gather", n_bytes, cluster, plan.data_group[0], n_sharing).seconds

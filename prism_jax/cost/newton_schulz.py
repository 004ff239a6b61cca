"""Muon's update: Newton-Schulz iterations on the momentum of every matrix, and the gathering of sharded momenta. Seconds.

A matrix X of m x n, m <= n, is orthogonalised by five iterations `A = X X^T; X = a X + (b A + c A A) X`: three products of
2 m^2 n, 2 m^3 and 2 m^2 n FLOPs in bf16. Code runs them one after another, with casts, scales and sums of their own: on small
models the host's starts of these kernels decide.

Who computes what: without sharded states every rank does all matrices. With them the ranks deal the matrices out, each one
whole. Parameters that are sharded themselves (FSDP, ZeRO-3) are split within every matrix, so that all momenta are gathered in
bf16 first (arXiv 2502.16982, section 2.3). ZeRO-1 and 2 cut a list of matrices into equal parts: only those at the cuts are
gathered, which is not counted (their authors in Megatron-LM 1428). Of a stage with fewer matrices than ranks the largest one
remains. Tensor-parallel ranks work on the parts that they hold (Megatron-LM `--muon-tp-mode blockwise`).

Source: Keller Jordan, kellerjordan.github.io/posts/muon; arXiv 2502.16982.
"""

from __future__ import annotations

import numpy as np

from ..core.arrays import Floats, Values, namespace
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base.kernels import Kernel, KernelTable
from .block_cost import collective_s
from .compute import op_seconds
from .efficiency import Efficiency

N_ITERATION = 5
# Kernels of one matrix: per iteration three products, two scales and two sums; before and after them two casts, the norm, a
# division, a transposition, the momentum and its look-ahead, decay and update (KellerJordan/Muon, `zeropower_via_newtonschulz5`).
_STARTS_PER_ITERATION, _STARTS = 7, 9
# Host time of one operation of PyTorch outside of autograd, in its usual range of 5 to 8 us; `Efficiency.host_launch_s` holds the
# code of modules around a listed kernel, too.
_OPERATION_S = 6e-6
_PASS_BYTES = 2.0  # bf16


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
    kernels = [_kernels(float(min(shape)), float(max(shape))) for shape in matrices[:, 1:]]
    table = KernelTable.of(kernel for own in kernels for kernel in own)
    device_s = op_seconds(table, cluster.device, plan.dtype, eff).reshape(len(matrices), -1).sum(axis=1)
    starts = np.array([sum(kernel.n_launch * kernel.count for kernel in own) for own in kernels])
    each_s = xp.maximum(device_s, starts * (_OPERATION_S * plan.software.host_share))
    return xp.maximum((count * each_s).sum() / n_sharing, each_s.max())


def _kernels(m: float, n: float) -> list[Kernel]:
    """Returns the kernels of one matrix of m x n, m <= n."""
    passes = _PASS_BYTES * N_ITERATION * (6.0 * m * m + 3.0 * m * n) + 30.0 * m * n
    starts = float(N_ITERATION * (_STARTS_PER_ITERATION - 3) + _STARTS)

    def product(rows: float, columns: float, inner: float) -> Kernel:
        moved = _PASS_BYTES * (rows * inner + inner * columns + rows * columns)
        sizes = {"m": rows, "n": columns, "k": inner, "dtype": "bf16", "count": float(N_ITERATION)}
        return Kernel("newton_schulz", "B", "gemm", 2.0 * rows * columns * inner, moved, 1.0, **sizes)

    return [
        product(m, m, n),
        product(m, m, m),
        product(m, n, m),
        Kernel("newton_schulz_passes", "B", "memory", 0.0, passes, starts),
    ]


def gathering_s(cluster: Cluster, plan: ParallelPlan, matrices: Floats, n_sharing: int) -> Values:
    """Seconds in which ranks gather the momenta of a stage's matrices, each of which is split over them."""
    if n_sharing == 1 or plan.shard_group == 1 or not len(matrices):
        return 0.0
    n_bytes = _PASS_BYTES * float(matrices.prod(axis=1).sum())
    return collective_s("all_gather", n_bytes, cluster, plan.data_group[0], n_sharing).seconds

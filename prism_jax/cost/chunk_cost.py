"""Seconds of one model chunk for one micro-batch: pieces added up, and what of their communication hides behind what compute.

All arithmetic is on arrays with any leading axes (plans, chunks); a single plan has none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..workload.op_table import KERNELS, PHASES
from .chunks import ChunkClass
from .efficiency import Efficiency
from .overlap import Exposure, behind, cut_up
from .piece_cost import KINDS_OF_PIECE, SLOTS, PieceCost
from .step_cost import COMM_AXES, Array

_F, _B, _W = 0, 1, 2
_GEMM, _ATTENTION = KERNELS.index("gemm"), KERNELS.index("attention")
_ALL = slice(None)


@dataclass(frozen=True)
class ChunkCost:
    """Sums over the pieces of a chunk.

    Attributes:
        compute_s: [*plan, kind, compute_class], slowed by what runs beside it.
        comm_s, hidden_s: [*plan, kind, comm_axis].
    """

    compute_s: Array
    comm_s: Array
    hidden_s: Array

    @property
    def forward_s(self) -> Array:
        """[*plan] seconds of a forward pass."""
        return self.compute_s[..., _F, :].sum(axis=-1) + self.comm_s[..., _F, :].sum(axis=-1)

    @property
    def backward_s(self) -> Array:
        """[*plan] seconds of a backward pass, weight gradient included."""
        return self.compute_s[..., _B:, :].sum(axis=(-1, -2)) + self.comm_s[..., _B:, :].sum(axis=(-1, -2))


def pieces_of(chunk: ChunkClass, piece: Callable[[str], PieceCost]) -> PieceCost:
    """Sum of the pieces of a chunk, in model order; `piece` gives one of them by its kind."""
    counts = (int(chunk.has_embedding), chunk.n_dense, chunk.n_moe, int(chunk.has_head))
    parts = [piece(kind).times(count) for kind, count in zip(KINDS_OF_PIECE, counts, strict=True) if count]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def chunk_cost(pieces: PieceCost, tp: ArrayLike, cp: ArrayLike, eff: Efficiency) -> ChunkCost:
    """What shows of a chunk's communication and what it does to the compute beside it; tp and cp [*plan]."""
    compute = pieces.compute_s
    slowed = compute.copy()
    exposed = np.zeros((*compute.shape[:-1], len(COMM_AXES)))
    hidden = np.zeros_like(exposed)
    for slot, (phase, axis, beside) in enumerate(SLOTS):
        seconds = pieces.comm_s[..., slot]
        if not seconds.any():
            continue
        at = (..., PHASES.index(phase), COMM_AXES.index(axis))
        rows, classes = _window(PHASES.index(phase), beside)
        window = compute[..., rows, classes].sum(axis=(-1, -2))
        part = _exposure(seconds, window, beside, tp, cp)
        exposed[at] += part.exposed_s
        hidden[at] += part.hidden_s
        share = part.hidden_s / np.where(window > 0.0, window, 1.0)
        slowed[..., rows, classes] *= 1.0 + eff.overlap_slowdown * share[..., None, None]
    exposed[..., _F, COMM_AXES.index("dp")] += pieces.first_gather_s  # nothing runs in front of it
    return ChunkCost(_at_host_pace(slowed, exposed, pieces.n_launch * eff.host_launch_s), exposed, hidden)


def _at_host_pace(compute: Array, exposed: Array, host_s: Array) -> Array:
    """`compute` stretched where the host needs longer to start the kernels than the device to run them; B and W run as one."""
    paced = compute.copy()
    for rows in (slice(_F, _B), slice(_B, None)):
        busy = compute[..., rows, :].sum(axis=(-1, -2))
        device = busy + exposed[..., rows, :].sum(axis=(-1, -2))
        short = np.maximum(host_s[..., rows].sum(axis=-1) - device, 0.0)
        stretch = 1.0 + np.where(busy > 0.0, short / np.where(busy > 0.0, busy, 1.0), 0.0)
        paced[..., rows, :] *= stretch[..., None, None]
    return paced


def _window(kind: int, beside: str) -> tuple[slice, slice]:
    """Rows and columns of `compute_s` that run at the same time as a communication of phase `kind`."""
    gemm, own = slice(_GEMM, _GEMM + 1), slice(kind, kind + 1)
    match beside:
        case "weight_grad":
            return slice(_W, _W + 1), gemm
        case "input_grad" | "product":
            return own, gemm
        case "attention":
            return own, slice(_ATTENTION, _ATTENTION + 1)
        case "chunk":
            return (slice(_F, _B) if kind == _F else slice(_B, None)), _ALL
        case _:
            return own, _ALL


def _exposure(seconds: Array, window: Array, beside: str, tp: ArrayLike, cp: ArrayLike) -> Exposure:
    match beside:
        case "":
            return Exposure(seconds, np.zeros_like(seconds))
        case "product":
            return cut_up(seconds, window, tp)
        case "attention":  # the first of cp parts is at hand before anything has arrived
            n = np.asarray(cp, dtype=np.float64)
            return behind(seconds, window * (n - 1.0) / n)
        case _:
            return behind(seconds, window)

"""Seconds of one model chunk for one micro-batch: blocks added up, with the communication that hides behind compute.

    exposed = max(0, comm - share window)      hidden = min(comm, share window)      compute += slowdown * hidden

`share` is how much of the window communication can use: all of it where it is queued next to one kernel, `overlap_window` of the
`CostCorrection` for that of data parallelism, whose collectives wait for streams and for each other. `slowdown` is
`Efficiency.overlap_slowdown`: a running collective takes multiprocessors and memory bandwidth from the kernels.

All arithmetic is on arrays with any leading axes (plans, chunks); a single plan has none. It is the same under `numpy` and
`jax.numpy`, so that a calibration differentiates what predictions use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..core.arrays import Floats, is_numpy
from ..core.kernels import COMM_AXES, COMPUTE_CLASSES, PASSES
from ..workload.base.workload import kinds_of
from .block_cost import HIDDEN, SLOTS, BlockCost, BlockCostModel
from .efficiency import Efficiency
from .partition import ChunkBlocks


class Exposure(NamedTuple):
    """Seconds of communication that show, and seconds that run during compute."""

    exposed_s: Floats
    hidden_s: Floats


def behind(comm_s: ArrayLike, window_s: ArrayLike, share: ArrayLike = 1.0, xp: Any = np) -> Exposure:
    """`comm_s` of communication that may run during a share of `window_s` of compute."""
    comm = xp.asarray(comm_s)
    hidden = xp.minimum(comm, share * xp.maximum(xp.asarray(window_s), 0.0))
    return Exposure(comm - hidden, hidden)


def prefetched(
    comm_s: ArrayLike, alone_s: ArrayLike, window_s: ArrayLike, share: ArrayLike = 1.0, xp: Any = np
) -> Exposure:
    """Returns the exposure of communication of which `alone_s` overlaps no compute: the first to arrive, or the last to leave."""
    alone = xp.asarray(alone_s)
    rest = behind(comm_s - alone, window_s, share, xp)
    return Exposure(alone + rest.exposed_s, rest.hidden_s)


def cut_up(
    comm_s: ArrayLike, window_s: ArrayLike, n_piece: ArrayLike, share: ArrayLike = 1.0, xp: Any = np
) -> Exposure:
    """Communication cut into `n_piece` pieces like the compute it belongs to: one piece has nothing to hide behind."""
    comm = xp.asarray(comm_s)
    return prefetched(comm, comm / xp.asarray(n_piece), window_s, share, xp)


def bucketed(
    comm_s: ArrayLike, window_s: ArrayLike, n_bucket: ArrayLike, share: ArrayLike = 1.0, xp: Any = np
) -> Exposure:
    """A gradient reduction in `n_bucket` buckets as they become ready during `window_s` of backward pass.

    Notes:
        The first bucket is ready after 1/n of the window and the last at its end: 1/n of the communication always shows.
        No bucket: nothing hides.
    """
    n = xp.maximum(xp.asarray(n_bucket, dtype=float), 1.0)
    return cut_up(comm_s, xp.asarray(window_s) * (1.0 - 1.0 / n), n, share, xp)


_F, _B, _W = 0, 1, 2
_GEMM, _ATTENTION = COMPUTE_CLASSES.index("gemm"), COMPUTE_CLASSES.index("attention")
_MEMORY = COMPUTE_CLASSES.index("memory")
_PASSES = ((_F,), (_B, _W))  # phases that run as one op where the schedule does not split them
HOST_SHARPNESS = 6.0  # (host^6 + device^6)^(1/6): where both take equally long an op takes 12% longer than either
# The same of passes in which the host waits for the device in every layer: it is never ahead, so that the device stands still
# until the first kernels of a layer are started, and short kernels are not covered by what was started long before. Between the
# longer of the two (6) and their sum (1): where both take equally long 41% longer than either, at half of it 12%.
WAITING_SHARPNESS = 2.0


@dataclass(frozen=True)
class ChunkCost:
    """Sums over the blocks of a chunk.

    Attributes:
        compute_s: [*plan, kind, compute_class], slowed by communication that runs at the same time.
        comm_s, hidden_s: [*plan, kind, comm_axis].
    """

    compute_s: Floats
    comm_s: Floats
    hidden_s: Floats

    @property
    def forward_s(self) -> Floats:
        """Seconds of a forward pass, [*plan]."""
        return self.compute_s[..., _F, :].sum(axis=-1) + self.comm_s[..., _F, :].sum(axis=-1)

    @property
    def backward_s(self) -> Floats:
        """Seconds of a backward pass, weight gradient included, [*plan]."""
        return self.compute_s[..., _B:, :].sum(axis=(-1, -2)) + self.comm_s[..., _B:, :].sum(axis=(-1, -2))


def blocks_of(chunk: ChunkBlocks, kinds: Sequence[str], block: Callable[[str], BlockCost]) -> BlockCost:
    """Sum of the blocks of a chunk, in model order; `block` gives one of them by its kind."""
    runs = [block(kind).times(count) for kind, count in zip(kinds, chunk, strict=True) if count]
    if not runs:  # a stage that was dealt no layer
        return block(kinds[0]).times(0)
    total = runs[0]
    for run in runs[1:]:
        total = total + run
    return total


def chunk_of(blocks: BlockCostModel, chunk: ChunkBlocks) -> BlockCost:
    """Sum of the blocks of a chunk, added up once."""
    if chunk not in blocks.sums:
        blocks.sums[chunk] = blocks_of(chunk, kinds_of(blocks.model), blocks.whole)
    return blocks.sums[chunk]


def chunk_cost(blocks: BlockCost, tp: ArrayLike, cp: ArrayLike, eff: Efficiency, xp: Any = np) -> ChunkCost:
    """Returns the exposed part of a chunk's communication, and the compute that its hidden part slows; tp and cp [*plan].

    Args:
        xp: array library; under `jax.numpy` the constants of `eff` may be traced arrays [*plan].
    """
    compute = blocks.compute_s
    n_class = compute.shape[-1]
    slowed = [[compute[..., kind, c] for c in range(n_class)] for kind in range(len(PASSES))]
    zero = xp.zeros_like(compute[..., 0, 0])
    exposed = [[zero] * len(COMM_AXES) for _ in PASSES]
    hidden = [[zero] * len(COMM_AXES) for _ in PASSES]
    alone_s = {_F: blocks.first_gather_s, _B: blocks.last_scatter_s}
    for slot, (phase, axis, beside) in enumerate(SLOTS):
        seconds = blocks.comm_s[..., slot]
        if is_numpy(xp) and not seconds.any():
            continue
        kind, at = PASSES.index(phase), COMM_AXES.index(axis)
        if beside == HIDDEN:
            hidden[kind][at] = hidden[kind][at] + seconds
            continue
        window = _window(kind, beside, n_class)
        length = sum((compute[..., k, c] for k, c in window), zero)
        if beside == "chunk":
            part = prefetched(seconds, alone_s[kind], length, eff.correction.overlap_window, xp)
        else:
            part = _exposure(seconds, length, beside, tp, cp, xp)
        exposed[kind][at] = exposed[kind][at] + part.exposed_s
        hidden[kind][at] = hidden[kind][at] + part.hidden_s
        slower = 1.0 + eff.overlap_slowdown * part.hidden_s / xp.where(length > 0.0, length, 1.0)
        for k, c in window:
            slowed[k][c] = slowed[k][c] * slower
    paced = _at_host_pace(slowed, exposed, blocks, eff, xp)
    return ChunkCost(*(_table(rows, xp) for rows in (paced, exposed, hidden)))


def _table(rows: list[list[Any]], xp: Any) -> Any:
    """Stacks lists of arrays into [*plan, row, column]."""
    if is_numpy(xp):
        table = np.empty((*np.shape(rows[0][0]), len(rows), len(rows[0])))
        for i, row in enumerate(rows):
            for j, cell in enumerate(row):
                table[..., i, j] = cell
        return table
    return xp.stack([xp.stack(row, axis=-1) for row in rows], axis=-2)


def _at_host_pace(
    compute: list[list[Any]], exposed: list[list[Any]], blocks: BlockCost, eff: Efficiency, xp: Any
) -> list[list[Any]]:
    """Returns `compute` stretched where the host starts kernels too slowly, and the wait of every pass; B and W run as one."""
    paced = [list(row) for row in compute]
    for phases in _PASSES:
        busy = sum(sum(compute[phase]) for phase in phases)
        device = busy + sum(sum(exposed[phase]) for phase in phases)
        launches, waiting = (sum(own[..., phase] for phase in phases) for own in (blocks.n_launch, blocks.n_waiting))
        host = launches * eff.host_launch_s * eff.correction.host
        share = waiting / xp.where(launches > 0.0, launches, 1.0)
        stretch = 1.0 + (_together(device, host, share, xp) - device) / xp.where(busy > 0.0, busy, 1.0)
        for phase in phases:
            paced[phase] = [seconds * stretch for seconds in paced[phase]]
        paced[phases[0]][_MEMORY] = paced[phases[0]][_MEMORY] + 0.5 * eff.correction.micro_batch_s
    return paced


def _together(device: Any, host: Any, waiting: Any, xp: Any) -> Any:
    """Seconds of a pass that the host starts kernel by kernel: the longer of the two, and more where they are close.

    Args:
        waiting: share of the host's work in layers in which it waits for the device.
    """
    longer, shorter = xp.maximum(device, host), xp.minimum(device, host)
    ratio = shorter / xp.where(longer > 0.0, longer, 1.0)
    ahead, behind = (longer * (1.0 + ratio**own) ** (1.0 / own) for own in (HOST_SHARPNESS, WAITING_SHARPNESS))
    return ahead + waiting * (behind - ahead)


def _window(kind: int, beside: str, n_class: int) -> list[tuple[int, int]]:
    """(phase, kernel class) of the compute that runs at the same time as a communication of phase `kind`."""
    match beside:
        case "weight_grad":
            return [(_W, _GEMM)]
        case "input_grad" | "product":
            return [(kind, _GEMM)]
        case "attention":
            return [(kind, _ATTENTION)]
        case "chunk":
            return [(phase, c) for phase in _PASSES[min(kind, _B)] for c in range(n_class)]
        case _:
            return [(kind, c) for c in range(n_class)]


def _exposure(seconds: Any, window: Any, beside: str, tp: ArrayLike, cp: ArrayLike, xp: Any) -> Exposure:
    match beside:
        case "":
            return Exposure(seconds, xp.zeros_like(seconds))
        case "product":
            return cut_up(seconds, window, tp, xp=xp)
        case "attention":  # the first of cp parts is there before anything has arrived
            n = xp.asarray(cp, dtype=float)
            return behind(seconds, window * (n - 1.0) / n, xp=xp)
        case _:
            return behind(seconds, window, xp=xp)

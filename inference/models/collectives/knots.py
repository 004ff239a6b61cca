"""Where messages and groups stand: knots along size, steps along scale.

Curves are held at knots along

    x = log2(bytes) - SLOPE log2(n_gpus),

since what changes with size (protocols, ring against tree) moves partly with the message and partly with its share per GPU.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prism_jax._typing import Floats

from .laws import REFERENCE_GPUS

Ints = NDArray[np.int64]

SLOPE = 0.5  # between features at fixed bytes (0) and at fixed bytes per GPU (1); A100 and GH200 tables do not tell them apart
SPACING = 1.0  # octaves between knots: nccl-tests doubles sizes
BEYOND = 2.0  # octaves of knots beyond the measured sizes, where curves go back to their law
# Octaves over which residuals are alike. Fixed: of reach and size of a residual, curves tell little but their ratio, and a long
# reach makes intervals far too wide. Protocols and algorithms change within an octave or two.
REACH = 2.0
COARSE = 4.0  # octaves between the nodes of what a log tells little of: deviations of settings, restlessness by size
NUGGET = 1e-6  # keeps the factorisation of the knots' correlation stable
ALIKE = 0.1  # doublings between two places with as many GPUs, which still differ


def axis(n_bytes: ArrayLike, n_gpus: ArrayLike) -> Floats:
    """Where a message stands along the knots."""
    return np.log2(np.asarray(n_bytes, float)) - SLOPE * np.log2(np.asarray(n_gpus, float))


def steps(
    from_gpus: ArrayLike, from_nodes: ArrayLike, to_gpus: ArrayLike, to_nodes: ArrayLike
) -> tuple[Floats, Floats]:
    """Doublings from one place to another, and whether (0 or 1) one is in a node and the other across nodes."""
    doubled = np.abs(np.log2(np.asarray(to_gpus, np.float64)) - np.log2(np.asarray(from_gpus, np.float64)))
    across = (np.asarray(from_nodes) > 1) != (np.asarray(to_nodes) > 1)
    return np.maximum(doubled, ALIKE), across.astype(np.float64)


def correlate(knots: Floats) -> Floats:
    """Cholesky factor of the knots' correlation (Matern 3/2)."""
    apart = np.sqrt(3.0) * np.abs(knots[:, None] - knots[None]) / REACH
    correlation = (1.0 + apart) * np.exp(-apart) + NUGGET * np.eye(len(knots))
    return np.asarray(np.linalg.cholesky(correlation), np.float64)


def coarse(knots: Floats) -> Floats:
    """Values at the knots of lines between nodes `COARSE` octaves apart, [knot, node]."""
    node = np.linspace(knots[0], knots[-1], max(2, round((knots[-1] - knots[0]) / COARSE) + 1))
    return np.stack([np.interp(knots, node, one) for one in np.eye(len(node))], axis=1)


def between_knots(knots: Floats, x: Floats) -> tuple[Ints, Floats]:
    """The knot below each of `x`, and the share of the next one; positions outside are moved to the ends."""
    inside = np.clip(x, knots[0], knots[-1])
    below = np.clip(np.floor((inside - knots[0]) / SPACING).astype(np.int64), 0, len(knots) - 2)
    return below, (inside - knots[below]) / SPACING


def doublings(n_gpus: ArrayLike) -> Floats:
    """Doublings of scale above the reference, the measure in which noise grows."""
    return np.log2(np.asarray(n_gpus, float) / REFERENCE_GPUS)

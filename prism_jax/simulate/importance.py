"""Chooses the columns: scrambled Sobol points, shifted towards slow stages, and their weights.

The step is the maximum over many replicas, so its quantiles live far out in a replica's upper tail, and a replica is slow when
one of its stages has a slow GPU or node, or when many are a little slow (short pipelines pass through every stage).
Coordinates: per lane the normal score of its slowest GPU and of that GPU's node, x_l. Proposal and weight:

    q = pi_0 N(0, I) + sum_l pi_l N(s along x_l, I) + pi_a N(s_a along all x_l, I)
    weight = N(0, I) / q = 1 / (pi_0 + sum_k pi_k exp(shift_k . x - |shift_k|^2 / 2))

bounded by 1 / pi_0 (a defensive mixture). The shift grows with the number of (replica, lane) pairs whose maximum is sought.

Where micro-batches hold unlike work (`work.py`), a replica is slow by both: shifted columns draw from tilted tables of work too,
and the exponents of a component add up. Shift and tilt are those of the direction in which a step grows fastest: the more work
varies, the less GPUs are shifted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import ndtri

from ..core.arrays import Floats

NOMINAL_SHARE = 0.25  # pi_0; a single replica keeps most of its columns nominal instead
ALL_LANES_SHARE = 0.25  # pi_a
ALL_LANES_LENGTH = 0.7  # of the shift of one lane: several moderate scores are likelier than one large one
MEDIAN_OF_MAXIMUM = 0.5


@dataclass(frozen=True)
class Design:
    """Peak scores and weights of all columns.

    Attributes:
        peak_score: [chunk, 2, lane, column] normal scores of slowest GPU and its node.
        weight: [chunk, column] mean about one.
        work: [chunk, row, column] factors of the work of micro-batches less one; None where they are alike.
    """

    peak_score: Floats
    weight: Floats
    work: NDArray[np.float32] | None = None


@runtime_checkable
class WorkDraws(Protocol):
    """Draws of the work of micro-batches, as a design needs them; see `work.Work`."""

    @property
    def sd(self) -> float: ...

    def tilted(self, is_tilted: NDArray[np.bool_], length: float, seed: int) -> tuple[NDArray[np.float32], Floats]: ...


def importance_design(
    n_chunk: int,
    n_column: int,
    n_lane: int,
    n_replica: int,
    direction: Floats,
    lane_weight: Floats,
    seed: int,
    work: WorkDraws | None = None,
) -> Design:
    """One independently scrambled Sobol set per chunk.

    Args:
        n_chunk, n_column: independent randomisations, points in each.
        n_lane, n_replica: size of the maximum sought.
        direction: [2] how much a unit of GPU score and of node score lengthens an op; only its direction counts. Zero: no shift.
        lane_weight: [lane] share of the shifted columns that goes to each lane.
        seed: of the scramblings.
        work: of micro-batches, where it varies.
    """
    shape, sd = (n_chunk, n_column, n_lane, n_replica), 0.0 if work is None else work.sd
    found = proposal(*shape, direction, lane_weight, seed, sd)
    drawn, weight = (None, found.weight()) if work is None else found.with_work(work)
    return Design(found.peak_score, weight, drawn)


@dataclass(frozen=True)
class Proposal:
    """Columns drawn from the mixture, before their work is.

    Attributes:
        peak_score: as that of `Design`.
        picked: [chunk, column] component a column was drawn from.
        exponent: [chunk, column, component] log of every component's density over the plain one.
        shares: [component] of the mixture.
        shifts: [component, 2 * lane] of the scores.
        work_length: of the shift that work is tilted by.
        seed: of the scramblings.
    """

    peak_score: Floats
    picked: NDArray[np.intp]
    exponent: Floats
    shares: Floats
    shifts: Floats
    work_length: float
    seed: int

    def weight_of(self, peak_score: Floats) -> Floats:
        """Returns the plain over the mixture's density [column] at peak scores [2, lane, column], wherever they were drawn."""
        score = peak_score.reshape(-1, peak_score.shape[-1]).T
        return 1.0 / (np.exp(_exponent(score, self.shifts)) @ self.shares)

    def weight(self) -> Floats:
        """Returns importance weights [chunk, column] of columns whose work does not vary."""
        return 1.0 / (np.exp(self.exponent) @ self.shares)

    def with_work(self, work: WorkDraws) -> tuple[NDArray[np.float32], Floats]:
        """Returns the work of the columns [chunk, row, column], tilted in the shifted ones, and their weights [chunk, column]."""
        each = [work.tilted(own > 0, self.work_length, self.seed * 1000003 + c) for c, own in enumerate(self.picked)]
        drawn, log_ratio = np.stack([excess for excess, _ in each]), np.stack([ratio for _, ratio in each])
        exponent = self.exponent.copy()
        exponent[..., 1:] += log_ratio[..., None]
        return drawn, replace(self, exponent=exponent).weight()


def proposal(
    n_chunk: int,
    n_column: int,
    n_lane: int,
    n_replica: int,
    direction: Floats,
    lane_weight: Floats,
    seed: int,
    work_sd: float = 0.0,
) -> Proposal:
    """Draws columns for steps to which work adds `work_sd` of their time; other arguments as those of `importance_design`."""
    shares, shifts = _components(n_lane, n_replica, direction, lane_weight, work_sd)
    uniform = np.stack([scrambled_sobol(n_column, 2 * n_lane + 1, seed * 1000003 + c) for c in range(n_chunk)])
    score = ndtri(uniform[..., 1:]).reshape(n_chunk, n_column, 2 * n_lane)
    picked = np.minimum(np.searchsorted(np.cumsum(shares), uniform[..., 0]), len(shares) - 1)
    score = score + shifts[picked]
    exponent = _exponent(score, shifts)
    peak = score.reshape(n_chunk, n_column, 2, n_lane).transpose(0, 2, 3, 1)
    length = shift_length(n_replica) * work_sd / max(float(np.hypot(np.hypot(*direction), work_sd)), 1e-30)
    return Proposal(peak, picked, exponent, shares, shifts, length, seed)


def _exponent(score: Floats, shifts: Floats) -> Floats:
    """Log of the density of every shifted component over the plain one [..., component], at scores [..., 2 * lane]."""
    return score @ shifts.T - 0.5 * (shifts**2).sum(axis=1)


def _components(
    n_lane: int, n_replica: int, direction: Floats, lane_weight: Floats, work_sd: float
) -> tuple[Floats, Floats]:
    """Shares [component] and shifts [component, 2 * lane] of the proposal: nominal, one per lane, all lanes together."""
    norm = float(np.hypot(*direction))
    nominal = max(NOMINAL_SHARE, 1.0 - 0.25 * np.log2(n_replica + 1))
    if norm == 0.0:
        shares = np.ones(1) if work_sd == 0.0 else np.array([nominal, 1.0 - nominal])
        return shares, np.zeros((len(shares), 2 * n_lane))
    together = ALL_LANES_SHARE * (1.0 - nominal) / (1.0 - NOMINAL_SHARE) if n_lane > 1 else 0.0
    length = shift_length(n_replica * n_lane) * (norm / float(np.hypot(norm, work_sd)))
    single = np.einsum("p,lm->lpm", direction / norm * length, np.eye(n_lane))
    every = np.repeat(direction[:, None], n_lane, axis=1) / norm * (ALL_LANES_LENGTH * length / np.sqrt(n_lane))
    shifts = np.concatenate([np.zeros((1, 2, n_lane)), single, every[None]]).reshape(n_lane + 2, -1)
    shares = np.concatenate([[nominal], (1.0 - nominal - together) * lane_weight / lane_weight.sum(), [together]])
    return shares, shifts


def shift_length(n: int) -> float:
    """Score whose exceedance has the probability that the maximum of n exceeds its median: 0.5^(1/n)."""
    return max(float(-ndtri(-np.expm1(np.log(MEDIAN_OF_MAXIMUM) / n))) - 0.3, 0.5)


def effective_tail(weight: Floats, time_s: Floats, threshold_s: float) -> float:
    """Effective number of columns beyond a threshold: (sum w)^2 / sum w^2 over them."""
    tail = weight[time_s >= threshold_s]
    return float(tail.sum() ** 2 / (tail**2).sum()) if tail.size else 0.0


def lane_shares(busy_s: Floats) -> Floats:
    """Share of shifted columns per lane: lanes that are busier are more often the slowest."""
    ratio = busy_s / busy_s.max()
    return np.maximum(ratio, 1e-3) ** 24


N_BIT = 30


def scrambled_sobol(n: int, dimension: int, seed: int) -> Floats:
    """Points [point, dimension] of a Sobol sequence, strictly inside the unit cube, scrambled by matrices and shifts.

    Args:
        n: a power of two.
        dimension: at most 21,201.
        seed: of the scrambling.

    Notes: the points of `scipy.stats.qmc.Sobol`, which takes half a second to import. Directions are those of Joe and Kuo,
        Constructing Sobol sequences with better two-dimensional projections, SIAM J. Sci. Comput. 30 (2008); scrambling as
        Matousek (1998).
    """
    rng, powers = np.random.default_rng(seed).spawn(1)[0], 1 << np.arange(N_BIT)
    shift = rng.integers(2, size=(dimension, N_BIT), dtype=np.uint32) @ powers
    lower = np.tril(rng.integers(2, size=(dimension, N_BIT, N_BIT), dtype=np.uint32), -1) @ powers[::-1] + powers[::-1]
    point = np.broadcast_to(shift, (1, dimension))
    for direction in _sobol_directions(dimension)[:, : n.bit_length() - 1].T:
        odd = np.bitwise_count(lower & direction[:, None]) & 1
        point = np.concatenate([point, point[::-1] ^ (odd @ powers[::-1])])  # in the order of Gray's code
    return np.clip(point / float(1 << N_BIT), 2.0**-40, 1.0 - 2.0**-40, dtype=np.float64)


@lru_cache(maxsize=32)
def _sobol_directions(dimension: int) -> NDArray[np.int64]:
    """Numbers [dimension, bit] below 2^30 by the recurrence of each dimension's polynomial over two elements."""
    with np.load(Path(scipy.__path__[0]) / "stats" / "_sobol_direction_numbers.npz") as file:
        polynomials, initial = file["poly"][:dimension].tolist(), file["vinit"][:dimension]
    numbers = np.ones((dimension, N_BIT), dtype=np.int64)
    for i, polynomial in enumerate(polynomials[1:], 1):
        degree = polynomial.bit_length() - 1
        own = initial[i, :degree].tolist()
        for _ in range(degree, N_BIT):
            following = own[-degree]
            for k in range(1, degree + 1):
                following ^= ((polynomial >> (degree - k)) & 1) * own[-k] << k
            own.append(following)
        numbers[i] = own
    return numbers << np.arange(N_BIT)[::-1]

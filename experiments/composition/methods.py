"""Ways to put independent durations of ops together to the quantiles of a step: FFT algebra, Clark's moments, extreme values.

An op lasts S max_m (1 + sd r) + C (1 + sd' c): the slowest of m members, and its communication. A lane runs op after op, each
after its predecessors; a step is the slowest of n replicas, and the residual of the exchange that ends it.

    sum: convolution          max of independent ones: product of distribution functions          n alike: F^n

All of it is exact where joined paths share no op: series-parallel graphs, here pipelines of one stage. Else ends of lanes depend
on each other, and products of their distribution functions are too small: a step is then predicted too long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import norm

from prism_jax.core.arrays import Floats
from prism_jax.graph.draws import ScoreChain, map_sd, standardised
from prism_jax.simulate.inputs import shared_of
from prism_jax.simulate.program import Program
from prism_jax.variability.score_map import NormalScoreMap

N_GRID = 8192
PER_SD = 400.0  # lattice points per standard deviation of the time that varies most
N_SUB = 4  # cells of a lattice step in which distribution functions are averaged
EULER = 0.5772156649015329


@dataclass(frozen=True)
class Parts:
    """Durations of one kind of op: a maximum over members, and a sum with its communication.

    Attributes:
        compute_s, compute_sd, n_member: seconds, standard deviation over mean of one member, members.
        comm_s, comm_sd: of the communication.
        ends_step: whether it is the exchange that ends the step, whose residual has a law of its own.
    """

    compute_s: float
    compute_sd: float
    n_member: int
    comm_s: float
    comm_sd: float
    ends_step: bool = False


@dataclass(frozen=True)
class Algebra:
    """How a method adds and joins random times.

    Attributes:
        op: duration of parts.
        add: sum of two independent times.
        later: the later of two, taken as independent.
        slowest: of n alike.
        quantile: at a probability.
    """

    op: Callable[[Parts], object]
    add: Callable[[object, object], object]
    later: Callable[[object, object], object]
    slowest: Callable[[object, int], object]
    quantile: Callable[[object, float], float]


def replica(program: Program, algebra: Algebra) -> object:
    """Time of a replica: levels in order, every start the later of the lane's end and the arrivals."""
    graph, cost = program.graph, program.arrays
    call_sd, comm_sd = (np.broadcast_to(np.asarray(own, float), graph.op.shape) for own in (cost.call_sd, cost.comm_sd))
    compute_s, comm_s = graph.compute_s.sum(axis=-1), graph.comm_s.sum(axis=-1) + graph.send_s
    made: dict[Parts, object] = {}
    ends: dict[tuple[int, int], object] = {}
    p2p_sd = float(cost.p2p_sd)

    def of(parts: Parts) -> object:
        if parts not in made:
            made[parts] = algebra.op(parts)
        return made[parts]

    last: list[object | None] = [None] * graph.n_lane
    for level in range(graph.n_level):
        for lane in np.flatnonzero(graph.op[level] >= 0):
            start = last[lane]
            for d in np.flatnonzero(graph.dep_level[level, lane] >= 0):
                arrival = ends[int(graph.dep_level[level, lane, d]), int(graph.dep_lane[level, lane, d])]
                if (lag_s := float(graph.lag_s[level, lane, d])) > 0.0:
                    arrival = algebra.add(arrival, of(Parts(0.0, 0.0, 1, lag_s, p2p_sd)))
                start = arrival if start is None else algebra.later(start, arrival)
            compute, comm = ((s[level, lane], sd[level, lane]) for s, sd in ((compute_s, call_sd), (comm_s, comm_sd)))
            one, sd, other, other_sd = (round(float(x), 12) for x in (*compute, *comm))
            duration = of(Parts(one, sd, program.n_member, other, other_sd))
            last[lane] = ends[level, int(lane)] = duration if start is None else algebra.add(start, duration)
    found = None
    for lane, end in enumerate(last):
        if end is not None:
            after = algebra.add(
                end, of(Parts(float(graph.end_compute_s[lane] + graph.end_comm_s[lane]), 0.0, 1, 0.0, 0.0))
            )
            found = after if found is None else algebra.later(found, after)
    assert found is not None
    return found


def step_quantiles(program: Program, algebra: Algebra, probs: Sequence[float]) -> Floats:
    """Quantiles of the step, seconds: the slowest replica and the residual of the exchange that ends the step."""
    slowest = algebra.slowest(replica(program, algebra), program.n_replica)
    shared = shared_of(program, np.zeros(1))
    if shared.end_call.cv > 0 and shared.end_s[0] > 0:
        sd = map_sd(NormalScoreMap.from_family(shared.end_call))
        parts = Parts(0.0, 0.0, 1, float(shared.end_s[0]), sd, ends_step=True)
        rest = Parts(-float(shared.end_s[0]), 0.0, 1, 0.0, 0.0)
        slowest = algebra.add(algebra.add(slowest, algebra.op(parts)), algebra.op(rest))
    return np.array([algebra.quantile(slowest, p) for p in probs])


# ---- moments: sums exactly, the later of two by Clark (1961), the slowest of n by Clark's pairs or by extreme values


@dataclass(frozen=True)
class Moments:
    """A time by its mean and standard deviation, seconds."""

    mean: float
    sd: float


def clark(program: Program) -> Algebra:
    """Clark's approximation: everything is normal; n alike are joined two by two."""
    return _by_moments(_clark_slowest)


def extreme_values(program: Program) -> Algebra:
    """Clark's where few are joined; of n alike, the Gumbel limit of normal ones."""
    return replace(_by_moments(_gumbel_slowest), slowest=_as_gumbel, quantile=_gumbel_quantile)


def _by_moments(slowest: Callable[[Moments, int], Moments]) -> Algebra:
    def op(parts: Parts) -> Moments:
        members = slowest(Moments(parts.compute_s, parts.compute_s * parts.compute_sd), parts.n_member)
        return _sum(members, Moments(parts.comm_s, parts.comm_s * parts.comm_sd))

    return Algebra(op, _sum, later_of, slowest, lambda own, p: own.mean + own.sd * float(ndtri(p)))  # pyright: ignore


def _sum(one: Moments, other: Moments) -> Moments:
    return Moments(one.mean + other.mean, float(np.hypot(one.sd, other.sd)))


def later_of(one: Moments, other: Moments) -> Moments:
    """Mean and standard deviation of the later of two independent normal times (Clark, 1961, equations 2 and 3)."""
    spread = float(np.hypot(one.sd, other.sd))
    if spread == 0.0:
        return one if one.mean >= other.mean else other
    alpha = (one.mean - other.mean) / spread
    upper, lower, density = ndtr(alpha), ndtr(-alpha), norm.pdf(alpha)
    mean = one.mean * upper + other.mean * lower + spread * density
    d1, d2 = one.mean - mean, other.mean - mean
    variance = (one.sd**2 + d1**2) * upper + (other.sd**2 + d2**2) * lower + (d1 + d2) * spread * density
    return Moments(float(mean), float(np.sqrt(max(variance, 0.0))))


def _clark_slowest(own: Moments, n: int) -> Moments:
    """The slowest of n alike, by doubling."""
    found, double = None, own
    while n:
        if n & 1:
            found = double if found is None else later_of(found, double)
        n, double = n >> 1, later_of(double, double)
    assert found is not None
    return found


def _gumbel(own: Moments, n: int) -> tuple[float, float]:
    """Location and scale of the Gumbel limit of the slowest of n normal times; at n = 1, 2 it is far off."""
    level = float(ndtri(1.0 - 1.0 / n))
    return own.mean + own.sd * level, own.sd / (n * float(norm.pdf(level)))


def _gumbel_slowest(own: Moments, n: int) -> Moments:
    if n < 3 or own.sd == 0.0:
        return _clark_slowest(own, n)
    location, scale = _gumbel(own, n)
    return Moments(location + EULER * scale, float(np.pi / np.sqrt(6.0)) * scale)


@dataclass(frozen=True)
class Gumbel(Moments):
    """A slowest one, by the moments of its Gumbel law."""


def _as_gumbel(own: Moments, n: int) -> Moments:
    found = _gumbel_slowest(own, n)
    return found if n < 3 else Gumbel(found.mean, found.sd)


def _gumbel_quantile(own: Moments, p: float) -> float:
    if not isinstance(own, Gumbel):
        return own.mean + own.sd * float(ndtri(p))
    scale = own.sd * float(np.sqrt(6.0) / np.pi)
    return own.mean + scale * (-float(np.log(-np.log(p))) - EULER)


# ---- lattice distributions


@dataclass(frozen=True)
class Lattice:
    """A time on a lattice.

    Attributes:
        center: of the grid, in lattice steps from zero; its index is `N_GRID // 2`.
        mass: [N_GRID].
    """

    center: int
    mass: Floats

    @cached_property
    def spectrum(self) -> np.ndarray:
        return np.fft.rfft(self.mass)


def fft(program: Program) -> Algebra:
    """Distributions on one lattice: sums by FFT, the later of two by the product of distribution functions, n alike by F^n."""
    step = _widest(program) / PER_SD
    compute, comm, end = program.compute_residual, program.comm_residual, None
    if program.end_call.cv > 0:
        end = standardised(NormalScoreMap.from_family(program.end_call))

    def op(parts: Parts) -> Lattice:
        members = _of_factor(parts.compute_s, parts.compute_sd, compute, parts.n_member, step)
        chain = end if parts.ends_step else comm
        return add(members, _of_factor(parts.comm_s, parts.comm_sd, chain, 1, step))

    def add(one: Lattice, other: Lattice) -> Lattice:
        mass = np.fft.fftshift(np.fft.irfft(one.spectrum * other.spectrum, N_GRID))
        return _centered(Lattice(one.center + other.center, np.maximum(mass, 0.0)))

    def later(one: Lattice, other: Lattice) -> Lattice:
        first, second = (one, other) if one.center >= other.center else (other, one)
        shift = first.center - second.center
        if shift >= N_GRID:
            return first
        below = np.cumsum(second.mass)
        moved = np.concatenate([below[shift:], np.full(shift, below[-1])])
        return _centered(Lattice(first.center, np.diff(np.cumsum(first.mass) * moved, prepend=0.0)))

    def slowest(own: Lattice, n: int) -> Lattice:
        return _centered(Lattice(own.center, np.diff(np.cumsum(own.mass) ** n, prepend=0.0)))

    def quantile(own: Lattice, p: float) -> float:
        upto = np.cumsum(own.mass) - 0.5 * own.mass
        at = np.interp(p * own.mass.sum(), upto, np.arange(N_GRID) - N_GRID // 2)
        return float(step * (own.center + at))

    return Algebra(op, add, later, slowest, quantile)  # pyright: ignore


def _widest(program: Program) -> float:
    """Largest standard deviation of all times that are put together, seconds; joins have smaller ones than their parts."""
    plain, seen = clark(program), [0.0]

    def noted(function: Callable[..., object]) -> Callable[..., object]:
        def own(*given: object) -> object:
            found = function(*given)
            assert isinstance(found, Moments)
            seen.append(found.sd)
            return found

        return own

    step_quantiles(program, replace(plain, op=noted(plain.op), add=noted(plain.add), later=noted(plain.later)), [0.5])
    return max(seen)


def _of_factor(seconds: float, sd: float, chain: ScoreChain | None, n: int, step: float) -> Lattice:
    """The slowest of n times `seconds (1 + sd r)`, as expectations of hats around lattice points, which keep the mean."""
    point = np.zeros(N_GRID)
    if sd == 0.0 or chain is None or seconds <= 0.0:
        low = int(np.floor(seconds / step))
        share = seconds / step - low
        point[N_GRID // 2 : N_GRID // 2 + 2] = 1.0 - share, share
        return Lattice(low, point)
    middle = seconds * (1.0 + sd * float(chain(np.array([ndtri(0.5 ** (1.0 / n))]))[0]))
    center = round(middle / step)
    cell = (np.arange(-N_SUB, N_GRID * N_SUB) + 0.5) / N_SUB - N_GRID // 2 + center
    score = chain.inverse((cell * step / seconds - 1.0) / sd)
    mean = (ndtr(score) ** n).reshape(-1, N_SUB).mean(axis=1)
    mass = np.diff(mean)
    mass[0] += mean[0]
    mass[-1] += 1.0 - mean[-1]
    return _centered(Lattice(center, np.maximum(mass, 0.0)))


def _centered(own: Lattice) -> Lattice:
    """The same with a mass of one, and its mean in the middle of the grid; tails beyond it are less than rounding.

    Notes: joins square what a mass is off one.
    """
    index, own_mass = np.arange(N_GRID) - N_GRID // 2, own.mass / own.mass.sum()
    shift = round(float(own_mass @ index))
    if abs(shift) < N_GRID // 64:
        return Lattice(own.center, own_mass)
    mass = np.zeros(N_GRID)
    if shift > 0:
        mass[: N_GRID - shift] = own_mass[shift:]
    else:
        mass[-shift:] = own_mass[: N_GRID + shift]
    return Lattice(own.center + shift, mass)


METHODS = {"FFT": fft, "Clark": clark, "extreme values": extreme_values}

"""Draws what still varies from step to step once every GPU's slowdown is known, and the slowest GPU of a node per kind of work.

The mean and spread of that GPU are all that an assignment changes in the duration of an op. An op lasts v_m (1 + sd r) on GPU m,
with v_m its persistent factor over the op's mix of kernel classes and r its residual; the group waits for the slowest. The
maximum's mean and standard deviation are integrated on the host in float64, once per node. The simulation then adds the same
standardised noise to every assignment: exact where the GPUs of a group are alike, exact in mean and variance where they are not.

A replica has noise of its own, made from its index: residuals of its ops, its links, and the work of its micro-batches. All
replicas of a step share the network regime, the residual of the final communication, the step factor, the popularity of experts
and stalls. The shared part is cheap, so that every simulated step is shown with several of its factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import ndtri
from jax.scipy.stats import norm
from jaxtyping import Float, Int32, Key
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri as host_ndtri

from ..core.arrays import Floats
from ..graph.draws import ScoreChain, both, exponential_pairs, key_words, normal_pairs, normals, word_pairs
from ..simulate.columns import highest_of
from ..simulate.inputs import regime_factors
from ..simulate.program import Program
from ..simulate.replica_maximum import latin_hypercube
from ..simulate.work import Work
from ..variability.score_map import NormalScoreMap
from .fleet import MeasuredFleet

RESIDUAL_SCORES = np.linspace(-9.0, 9.0, 1801)
GRID_SCORES = np.linspace(-6.5, 8.0, 146)  # of the slowest member; F from 4e-11 to 1 - 6e-16
BLOCK = 4096  # nodes at a time


@dataclass(frozen=True)
class Residual:
    """Standardised call residual as a function of a normal score."""

    value: Floats  # at RESIDUAL_SCORES, increasing

    @classmethod
    def of(cls, chain: ScoreChain | None) -> Residual | None:
        """Host form of a chain."""
        if chain is None:
            return None
        z = RESIDUAL_SCORES
        value = float(chain.offset) + float(chain.slope) * z
        for knot, bend in zip(np.asarray(chain.knots), np.asarray(chain.bends), strict=True):
            value = value + float(bend) * np.maximum(z - float(knot), 0.0)
        return cls(np.maximum.accumulate(value + 1e-12 * z))

    def slowest(self, factor: Floats, sd: float) -> tuple[Floats, Floats]:
        """Mean and standard deviation [node] of max over members of factor (1 + sd r); factor [node, member]."""
        top = factor.max(axis=-1)
        y = np.interp(GRID_SCORES, RESIDUAL_SCORES, self.value)  # in residuals of the slowest
        x = 1.0 + sd * y
        below = np.ones((len(factor), len(y)))
        for m in range(factor.shape[-1]):
            own = (x * (top / factor[:, m])[:, None] - 1.0) / sd
            below *= ndtr(np.interp(own, self.value, RESIDUAL_SCORES))
        mean = y[-1] - np.trapezoid(below, y, axis=-1)
        square = y[-1] ** 2 - 2.0 * np.trapezoid(below * y, y, axis=-1)
        return top * (1.0 + sd * mean), top * sd * np.sqrt(np.maximum(square - mean**2, 0.0))

    def of_alike(self, n: int) -> tuple[float, float]:
        """Mean and standard deviation of the largest of `n` residuals, by the same rule."""
        sd = 1e-3  # cancels
        mean, spread = self.slowest(np.ones((1, n)), sd)
        return float((mean[0] - 1.0) / sd), float(spread[0] / sd)


def slowest_tables(
    fleet: MeasuredFleet, parts: Sequence[tuple[int, ...]], share: Floats, sd: Floats, residual: Residual | None
) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the slowest GPU's factor, [row, node, part].

    Args:
        fleet: factors.
        parts: GPUs of a node that belong to one group.
        share: [row, compute_class] mix of a kind of work, adding up to one.
        sd: [row] standard deviation of its call residual over its mean.
        residual: None if nothing varies from call to call.
    """
    shape = (len(share), fleet.n_node, len(parts))
    loc, scale = np.empty(shape), np.zeros(shape)
    for p, gpus in enumerate(parts):
        for row in range(len(share)):
            factor = np.sort(np.einsum("c,cnm->nm", share[row], fleet.factor[:, :, list(gpus)]), axis=-1)
            if residual is None or sd[row] <= 0.0:
                loc[row, :, p] = factor[:, -1]
                continue
            alike, where = np.unique(factor, axis=0, return_inverse=True)
            blocks = [residual.slowest(alike[i : i + BLOCK], sd[row]) for i in range(0, len(alike), BLOCK)]
            loc[row, :, p], scale[row, :, p] = (np.concatenate(part)[where] for part in zip(*blocks, strict=True))
    return loc, scale


def peak_table(fleet: MeasuredFleet, parts: Sequence[tuple[int, ...]], compute_class: int) -> Floats:
    """Slowest persistent factor [node, part] in one compute class, for work without residual."""
    return np.stack([fleet.factor[compute_class][:, list(gpus)].max(axis=-1) for gpus in parts], axis=-1)


def slower_of(loc: tuple[Array, Array], scale: tuple[Array, Array]) -> tuple[Array, Array]:
    """Mean and standard deviation of the larger of two independent normals (Clark, 1961, equations 2 and 3)."""
    (m1, m2), (s1, s2) = loc, scale
    spread = jnp.sqrt(jnp.maximum(s1 * s1 + s2 * s2, 1e-20))
    alpha = (m1 - m2) / spread
    upper, lower, density = norm.cdf(alpha), norm.cdf(-alpha), norm.pdf(alpha)
    mean = m1 * upper + m2 * lower + spread * density
    d1, d2 = m1 - mean, m2 - mean  # moments about the mean: no cancellation in float32
    variance = (s1 * s1 + d1 * d1) * upper + (s2 * s2 + d2 * d2) * lower + (d1 + d2) * spread * density
    return mean, jnp.sqrt(jnp.maximum(variance, 1e-20))  # not zero, where its slope is infinite


def rows_of(seconds: Floats, sd: Floats) -> tuple[Floats, Floats, NDArray[np.int32]]:
    """Distinct mixes of kernel classes, their residual spread, and which one every kind of work has.

    Args:
        seconds: [kind, compute_class] busy seconds.
        sd: [kind] residual standard deviation over mean.
    """
    total = seconds.sum(axis=-1, keepdims=True)
    share = np.where(total > 0, seconds / np.where(total > 0, total, 1.0), 1.0 / seconds.shape[-1])
    rounded = np.column_stack([np.round(share, 5), np.where(total[:, 0] > 0, np.round(sd, 7), 0.0)])
    _, first, row = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    return share[first], np.where(total[first, 0] > 0, sd[first], 0.0), row.astype(np.int32)


N_SHARED = 8  # step factors shown with every simulated step


class ReplicaNoise(eqx.Module):
    """Noise of some replicas.

    Attributes:
        compute: [replica, level, lane, sample] standardised residual of the slowest GPU; None where nothing varies.
        comm: [replica, level, lane, sample] standardised residual of communication; None where nothing varies.
        network: [replica, axis, lane, sample] factor of regime and links; one lane where links do not vary.
        work: [replica, row, sample] factors less one of the work of micro-batches; None where they hold the same.
    """

    compute: Float[Array, "replica level lane sample"] | None
    comm: Float[Array, "replica level lane sample"] | None
    network: Float[Array, "replica axis lane sample"]
    work: Float[Array, "replica row sample"] | None = None


class SharedNoise(eqx.Module):
    """Noise that the replicas of a step share.

    Attributes:
        regime: [axis, sample] network regime.
        add_s: [sample, factor] residual of the final communication.
        times: [sample, factor] step factor and stalls.
    """

    regime: Float[Array, "axis sample"]
    add_s: Float[Array, "sample factor"]
    times: Float[Array, "sample factor"]


class WorkNoise(eqx.Module):
    """Draws of the work of micro-batches, on the device.

    Attributes:
        row: per source, [unit, entry] rows that its draws set.
        excess: per source, [drawn, entry] equally likely factors less one.
        of_steps: [step, replica, row] of the first rows where replicas share out the documents of a step.
        n_row: factors of a replica.
    """

    row: tuple[Int32[Array, "unit entry"], ...]
    excess: tuple[Float[Array, "drawn entry"], ...]
    of_steps: Float[Array, "step replica row"] | None
    n_row: int = eqx.field(static=True)


class NoiseModel(eqx.Module):
    """Model of a replica's noise.

    Attributes:
        compute, comm: standardised residuals of a normal score.
        link: per network axis, factor of a group's links.
        shift, scale: mean and standard deviation of the largest of `n_member` compute residuals.
        n_level, n_lane, n_member, n_node, varying_links: of the program.
        work: of micro-batches; None where they hold the same.
    """

    compute: ScoreChain | None
    comm: ScoreChain | None
    link: tuple[ScoreChain, ...]
    shift: float
    scale: float
    n_level: int = eqx.field(static=True)
    n_lane: int = eqx.field(static=True)
    n_member: int = eqx.field(static=True)
    n_node: int = eqx.field(static=True)
    varying_links: bool = eqx.field(static=True)
    work: WorkNoise | None


@dataclass(frozen=True)
class Draws:
    """A source of draws: a key, a number of steps.

    Attributes:
        key: typed PRNG key; the same key gives the same steps for every assignment.
        n_sample: simulated steps, even.
    """

    key: Key[Array, ""]
    n_sample: int


def noise_model(program: Program, n_level: int, work: Work | None, *, links_drawn: bool = True) -> NoiseModel:
    """The noise of a lowered job whose longest variant has `n_level` levels and that `work`; measured links are not drawn."""
    residual = Residual.of(program.compute_residual)
    shift, scale = (0.0, 1.0) if residual is None else residual.of_alike(program.n_member)
    return NoiseModel(
        compute=program.compute_residual,
        comm=program.comm_residual,
        link=program.link,
        shift=shift,
        scale=scale,
        n_level=n_level,
        n_lane=program.n_lane,
        n_member=program.n_member,
        n_node=program.n_node,
        varying_links=program.varying_links and links_drawn,
        work=None if work is None else _work_noise(work),
    )


def _work_noise(work: Work) -> WorkNoise:
    """Returns the draws of work from the tables of the host."""
    row = tuple(jnp.asarray(source.row, jnp.int32) for source in work.sources)
    excess = tuple(jnp.asarray(source.excess, float) for source in work.sources)
    of_steps = None if work.of_steps is None else jnp.asarray(work.of_steps, float)
    return WorkNoise(row, excess, of_steps, work.n_row)


def shared_noise(program: Program, draws: Draws) -> SharedNoise:
    """Latin hypercube of what replicas share."""
    rng = np.random.default_rng(np.asarray(key_words(jax.random.fold_in(draws.key, crc32(b"shared")))).tolist())
    n, many = draws.n_sample, draws.n_sample * N_SHARED
    score = host_ndtri(latin_hypercube(1, n, rng)[0])
    regime = regime_factors(program, score)  # [sample, axis]
    tree = program.job.variability
    popularity = None if program.work is None else program.work.popularity
    u = latin_hypercube(2 + len(tree.stalls) + (popularity is not None), many, rng)
    add, times = np.zeros((n, N_SHARED)), NormalScoreMap.from_family(tree.step)(host_ndtri(u[1]))
    if program.end_call.cv > 0:
        end_s = float(program.graph.end_comm_s.max()) * regime[:, -1]
        call = NormalScoreMap.from_family(program.end_call)(host_ndtri(u[0])) - 1.0
        add = end_s[:, None] * call.reshape(n, N_SHARED)
    if popularity is not None:
        times = times * popularity.score_map(host_ndtri(u[-1]))
    for stall, own in zip(tree.stalls, u[2 : 2 + len(tree.stalls)], strict=True):
        times = times * (1.0 + _stall(own, stall.prob(program.job.plan.n_devices), stall.mean_fraction))
    return SharedNoise(*(jnp.asarray(x, float) for x in (regime.T, add, times.reshape(n, N_SHARED))))


def _stall(u: Floats, prob: float, mean_fraction: float) -> Floats:
    """Extra time over the step's: exponential with probability `prob`, from one uniform."""
    if prob == 0.0:
        return np.zeros_like(u)
    return np.where(u < prob, -mean_fraction * np.log(np.maximum(u / prob, 1e-12)), 0.0)


def replica_noise(
    model: NoiseModel, key: Key[Array, ""], replica: Int32[Array, ""], regime: Float[Array, "axis sample"]
) -> ReplicaNoise:
    """Noise of one replica, the first of one; pure, made of the replica's index."""
    of_step, key = key, jax.random.fold_in(key, replica)
    n_sample = regime.shape[-1]
    words_key = key_words(jax.random.fold_in(key, crc32(b"call")))

    def level(index: Array) -> tuple[Array | None, Array | None]:
        words = word_pairs(words_key, index, 2, model.n_lane, n_sample // 2)
        compute = None if model.compute is None else _largest(model, words[0])
        comm = None if model.comm is None else model.comm(both(normal_pairs(words)[1]))
        return compute, comm

    compute, comm = lax.map(level, jnp.arange(model.n_level, dtype=jnp.int32))
    work = None if model.work is None else _work(model.work, of_step, replica, n_sample)
    return jax.tree.map(lambda x: x[None], ReplicaNoise(compute, comm, _network(model, key, regime), work))


def _work(model: WorkNoise, key: Array, replica: Array, n_sample: int) -> Float[Array, "row sample"]:
    """Returns factors less one of one replica, under the key of all."""
    key = jax.random.fold_in(key, crc32(b"work"))
    excess = jnp.zeros((model.n_row, n_sample), model.excess[0].dtype)
    for number, (row, table) in enumerate(zip(model.row, model.excess, strict=True)):
        own = jax.random.fold_in(jax.random.fold_in(key, number), replica)
        drawn = table[jax.random.randint(own, (row.shape[0], n_sample), 0, table.shape[0])]
        excess = excess.at[row].set(jnp.swapaxes(drawn, 1, 2))
    if model.of_steps is None:
        return excess
    step = jax.random.randint(key, (n_sample,), 0, model.of_steps.shape[0])
    return excess.at[: model.of_steps.shape[-1]].set(model.of_steps[step, replica].T)


def _largest(model: NoiseModel, words: Array) -> Float[Array, "lane sample"]:
    """Standardised largest of `n_member` residuals, straight from its distribution."""
    assert model.compute is not None
    if model.n_member == 1:
        score = both(normal_pairs(words))
    else:
        score = -ndtri(-jnp.expm1(-both(exponential_pairs(words)) / model.n_member))
    return (model.compute(score) - model.shift) / model.scale


def _network(model: NoiseModel, key: Array, regime: Float[Array, "axis sample"]) -> Float[Array, "axis lane sample"]:
    if not model.varying_links:
        return regime[:, None, :]
    link_key = key_words(jax.random.fold_in(key, crc32(b"link")))
    score = normals(link_key, 1, model.n_lane, regime.shape[-1])[0]
    worst = highest_of(score, model.n_node)
    return regime[:, None, :] * jnp.stack([chain(worst) for chain in model.link])

"""What still varies from step to step once every GPU's slowdown is known, drawn once and used for every assignment.

A replica has noise of its own, made from its index: residuals of its ops and its links. All replicas of a step share the network
regime, the residual of the final communication, the step factor and stalls. The shared part is cheap, so that every simulated
step is shown with several of its factors.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import log_ndtr, ndtri
from jaxtyping import Float, Int32, Key
from scipy.special import ndtri as host_ndtri

from .._typing import Floats
from ..graph.random import both, exponential_pairs, key_words, normal_pairs, normals, word_pairs
from ..graph.score import ScoreChain
from ..simulate.inputs import regime_factors
from ..simulate.program import Program
from ..simulate.replica_maximum import latin_hypercube
from ..variability.score_map import NormalScoreMap
from .slowest import Residual

N_SHARED = 8  # step factors shown with every simulated step


class ReplicaNoise(eqx.Module):
    """Noise of some replicas.

    Attributes:
        compute: [replica, level, lane, sample] standardised residual of the slowest GPU; None where nothing varies.
        comm: [replica, level, lane, sample] standardised residual of communication; None where nothing varies.
        network: [replica, axis, lane, sample] factor of regime and links; one lane where links do not vary.
    """

    compute: Float[Array, "replica level lane sample"] | None
    comm: Float[Array, "replica level lane sample"] | None
    network: Float[Array, "replica axis lane sample"]


class SharedNoise(eqx.Module):
    """What the replicas of a step share.

    Attributes:
        regime: [axis, sample] network regime.
        add_s: [sample, factor] residual of the final communication.
        times: [sample, factor] step factor and stalls.
    """

    regime: Float[Array, "axis sample"]
    add_s: Float[Array, "sample factor"]
    times: Float[Array, "sample factor"]


class NoiseModel(eqx.Module):
    """How a replica's noise is made.

    Attributes:
        compute, comm: standardised residuals of a normal score.
        link: per network axis, factor of a group's links.
        shift, scale: mean and standard deviation of the largest of `n_member` compute residuals.
        n_level, n_lane, n_member, n_node, varying_links: of the program.
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


@dataclass(frozen=True)
class Draws:
    """A source of draws: a key, a number of steps.

    Attributes:
        key: typed PRNG key; the same key gives the same steps for every assignment.
        n_sample: simulated steps, even.
    """

    key: Key[Array, ""]
    n_sample: int


def noise_model(program: Program, n_level: int) -> NoiseModel:
    """The noise of a lowered job whose longest variant has `n_level` levels."""
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
        varying_links=program.varying_links,
    )


def shared_noise(program: Program, draws: Draws) -> SharedNoise:
    """Latin hypercube of what replicas share."""
    rng = np.random.default_rng(np.asarray(key_words(jax.random.fold_in(draws.key, crc32(b"shared")))).tolist())
    n, many = draws.n_sample, draws.n_sample * N_SHARED
    score = host_ndtri(latin_hypercube(1, n, rng)[0])
    regime = regime_factors(program, score)  # [sample, axis]
    tree = program.job.variability
    u = latin_hypercube(2 + len(tree.stalls), many, rng)
    add, times = np.zeros((n, N_SHARED)), NormalScoreMap.from_family(tree.step)(host_ndtri(u[1]))
    if program.end_call.cv > 0:
        end_s = float(program.graph.end_comm_s.max()) * regime[:, -1]
        call = NormalScoreMap.from_family(program.end_call)(host_ndtri(u[0])) - 1.0
        add = end_s[:, None] * call.reshape(n, N_SHARED)
    for stall, own in zip(tree.stalls, u[2:], strict=True):
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
    key = jax.random.fold_in(key, replica)
    n_sample = regime.shape[-1]
    words_key = key_words(jax.random.fold_in(key, crc32(b"call")))

    def level(index: Array) -> tuple[Array | None, Array | None]:
        words = word_pairs(words_key, index, 2, model.n_lane, n_sample // 2)
        compute = None if model.compute is None else _largest(model, words[0])
        comm = None if model.comm is None else model.comm(both(normal_pairs(words)[1]))
        return compute, comm

    compute, comm = lax.map(level, jnp.arange(model.n_level, dtype=jnp.int32))
    return jax.tree.map(lambda x: x[None], ReplicaNoise(compute, comm, _network(model, key, regime)))


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
    worst = -ndtri(-jnp.expm1(log_ndtr(score) / model.n_node))
    return regime[:, None, :] * jnp.stack([chain(worst) for chain in model.link])

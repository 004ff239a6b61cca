"""Assignments as doubly stochastic matrices (Gumbel-Sinkhorn, Mena et al., ICLR 2018).

Moved by pathwise gradients of the smoothed objective, rounded by linear assignment.

A seat then holds a mixture of nodes: the mean and spread of its slowest GPU's factor are the mixtures of theirs.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Key
from scipy.optimize import linear_sum_assignment

from ...objective import PlanObjective
from ..evaluator import Assignments, Problem, Stored, Tables, columns, finished
from ..tables import NodeTables
from .descend import descend

N_ITERATION = 30  # of Sinkhorn's normalisation
LEARNING_RATE = 0.3
WARM, COOL = 1.0, 0.1  # temperature of the matrix, from first to last step
GUMBEL = 0.1  # noise on the scores, so that ties break
START_SCORE = 4.0  # of the assignment it starts from: 30 % of the mass among 128 nodes
N_SAMPLE = 32  # simulated steps a gradient is taken on


def relaxed(
    problem: Problem, kept: Stored, start: Assignments, objective: PlanObjective, *, key: Key[Array, ""], n_step: int
) -> Assignments:
    """The rounded assignment after `n_step` gradient steps from `start` [seat]."""
    n = problem.fleet.n_node
    few = few_samples(kept)
    logits = jnp.asarray(START_SCORE * (np.asarray(start)[:, None] == np.arange(n)), float)
    heat = jnp.asarray(np.geomspace(WARM, COOL, max(n_step, 1)), float)

    def gradient(scores: Array, step: int) -> Array:
        return _gradient(problem.tables, few, scores, objective, heat[step], jax.random.fold_in(key, step))

    logits = descend(gradient, logits, n_step, LEARNING_RATE)
    _, node = linear_sum_assignment(-np.asarray(logits, np.float64))
    return np.asarray(node, dtype=np.int32)


def sinkhorn(scores: Float[Array, "seat node"], n: int = N_ITERATION) -> Float[Array, "seat node"]:
    """Doubly stochastic matrix of scores, rows and columns normalised in turn on log scale."""

    def once(_: Array, log_p: Array) -> Array:
        log_p = log_p - jax.nn.logsumexp(log_p, axis=1, keepdims=True)
        return log_p - jax.nn.logsumexp(log_p, axis=0, keepdims=True)

    return jnp.exp(lax.fori_loop(0, n, once, scores))


def few_samples(kept: Stored) -> Stored:
    """The first samples of every array, whose sample axis is the last but for the shared factors."""
    cut = jax.tree.map(lambda x: x[..., :N_SAMPLE], (kept.replicas, kept.shared.regime))
    return Stored(cut[0], type(kept.shared)(cut[1], kept.shared.add_s[:N_SAMPLE], kept.shared.times[:N_SAMPLE]))


@eqx.filter_jit
def _gradient(
    tables: Tables,
    kept: Stored,
    logits: Float[Array, "seat node"],
    objective: PlanObjective,
    temperature: Float[Array, ""],
    key: Key[Array, ""],
) -> Float[Array, "seat node"]:
    """Gradient of the log of the smoothed objective."""
    noise = GUMBEL * jax.random.gumbel(key, logits.shape, logits.dtype)

    def log_value(logits: Array) -> Array:
        mixed = eqx.tree_at(lambda t: t.nodes, tables, _mixed(tables.nodes, sinkhorn((logits + noise) / temperature)))
        seats = jnp.arange(logits.shape[0], dtype=jnp.int32)
        return jnp.log(objective.smoothed(finished(columns(mixed, kept, seats), kept.shared)))

    gradient = jax.grad(log_value)(logits)
    return gradient / jnp.maximum(jnp.abs(gradient).max(), 1e-20)


def _mixed(nodes: NodeTables, share: Float[Array, "seat node"]) -> NodeTables:
    """One imagined node per seat; the dummy stays itself."""
    n = share.shape[0]
    whole = jnp.zeros((n + 1, n + 1), share.dtype).at[:n, :n].set(share).at[n, n].set(1.0)
    return NodeTables(
        jnp.einsum("sn,rnp->rsp", whole, nodes.loc),
        jnp.einsum("sn,rnp->rsp", whole, nodes.scale),
        jnp.einsum("sn,np->sp", whole, nodes.peak),
    )

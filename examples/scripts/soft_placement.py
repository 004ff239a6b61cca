"""Places slow nodes by gradient: soft permutations (Sinkhorn) of nodes over slots follow the slope of the p95 step time (Adam)."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.optimize import linear_sum_assignment

from prism_jax import load_job, place_nodes, step_time

plan = {"tp": 8, "pp": 4, "dp": 8, "micro_batch": 1, "global_batch": 128, "seq_len": 8192, "sequence_parallel": True}
job, rng = load_job({"model": "llama-3-70b", "cluster": "dgx-h100", "plan": plan}), np.random.default_rng(0)
node = 1.0 + 0.08 * rng.random(32) ** 3  # measured slowdown of every node, 8 GPUs each
noise = 1.0 + 0.01 * rng.standard_normal((2, 256, 64)).astype(np.float32)  # GPUs in 64 steps: to choose by, to judge by


@jax.jit
def p95(of_slot, noise):  # seconds, where slot k holds nodes of slowdown of_slot[k]
    return jnp.quantile(step_time(job, jnp.repeat(of_slot, 8)[:, None] * noise), 0.95)


def permutation(logits):  # [slot, node] shares; all rows and columns sum to one
    for _ in range(20):
        logits = logits - jax.nn.logsumexp(logits, axis=0)
        logits = logits - jax.nn.logsumexp(logits, axis=1, keepdims=True)
    return jnp.exp(logits)


slope, adam, best = jax.jit(jax.grad(lambda logits: p95(permutation(logits) @ node, noise[0]))), optax.adam(1.0), []
for start in range(6):
    logits = jnp.asarray(rng.standard_normal((32, 32)), jnp.float32)
    state = adam.init(logits)
    for _ in range(100):
        update, state = adam.update(slope(logits), state)
        logits = optax.apply_updates(logits, update)
    chosen = linear_sum_assignment(-np.asarray(permutation(logits)))[1]
    best = min(best, [float(p95(node[chosen], noise[0])), chosen], key=lambda found: found[:1] or [np.inf])
annealed = list(place_nodes(job, {"all": dict(enumerate(np.repeat(node, 8)))}).assignment)
random = min((rng.permutation(32) for _ in range(256)), key=lambda own: float(p95(node[own], noise[0])))
for name, own in (("gradient", best[1]), ("prism-jax place", annealed), ("best of 256 random", random)):
    print(f"{name:20} p95 {p95(node[own], noise[1]):.4f} s in steps that chose nothing")

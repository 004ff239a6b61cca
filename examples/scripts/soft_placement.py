"""Places slow nodes by gradient: soft permutations (Sinkhorn) of nodes follow the slope of the p95 step time (Adam)."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.optimize import linear_sum_assignment

from prism_jax import load_job, place_nodes, step_time

plan = {"tp": 8, "pp": 4, "dp": 8, "micro_batch": 1, "global_batch": 128, "seq_len": 8192, "sequence_parallel": True}
job, rng = load_job({"model": "llama-3-70b", "cluster": "dgx-h100", "plan": plan}), np.random.default_rng(0)
node = 1.0 + 0.08 * rng.random(32) ** 3  # measured slowdown of every node, 8 GPUs each
choose, judge = (1.0 + 0.01 * rng.standard_normal((256, n), np.float32) for n in (128, 1024))  # GPUs in steps


@jax.jit
def p95(of_slot, noise):  # seconds, where slot k holds nodes of slowdown of_slot[k]
    return jnp.quantile(step_time(job, jnp.repeat(of_slot, 8)[:, None] * noise), 0.95)


def permutation(logits):  # [slot, node] shares; all rows and columns sum to one
    for _ in range(20):
        logits = logits - jax.nn.logsumexp(logits, axis=0)
        logits = logits - jax.nn.logsumexp(logits, axis=1, keepdims=True)
    return jnp.exp(logits)


logits, adam = jnp.asarray(rng.standard_normal((32, 32, 32)), jnp.float32), optax.adam(1.0)  # 32 starts at once
slope = jax.grad(lambda own, hardness: p95(permutation(hardness * own) @ node, choose))
slopes, state = jax.jit(jax.vmap(slope, in_axes=(0, None))), adam.init(logits)
for step in range(100):
    update, state = adam.update(slopes(logits, 1.0 + step / 100), state)
    logits = optax.apply_updates(logits, update)
rounded = [linear_sum_assignment(-np.asarray(permutation(own)))[1] for own in logits]
found = {"gradient": min(rounded, key=lambda own: float(p95(node[own], choose)))}
found["annealed"] = list(place_nodes(job, {"all": dict(enumerate(np.repeat(node, 8)))}).assignment)
found["random"] = min((rng.permutation(32) for _ in range(256)), key=lambda own: float(p95(node[own], choose)))
for name, own in found.items():
    print(f"{name:10} p95 {p95(node[own], judge):.4f} s in steps that chose nothing")

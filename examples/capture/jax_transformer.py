"""A transformer in JAX with data, fully sharded and tensor parallelism, to be captured:

    prism-jax capture examples/capture/jax_transformer.py:train_step --world 1024 -o step.capture.gz

`train_step` is a function without arguments that returns the jitted step and its arguments, as shapes with shardings: nothing of
their size is ever allocated. Layers are scanned, so that one of them is compiled; fused attention is left out, since the step is
compiled on a machine without a GPU. `build` makes other models and other meshes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

Arrays = dict[str, jax.Array]
DATA = ("dp", "fsdp")  # dimensions of the mesh that samples are divided over


@dataclass(frozen=True)
class Model:
    """Sizes of a decoder (causal) or encoder; `n_experts` 0 is a dense MLP, gated ones have rotary positions."""

    n_layers: int = 32
    hidden: int = 4096
    n_heads: int = 32
    kv_heads: int = 32
    ffn: int = 11008
    vocab: int = 32000
    gated: bool = True
    causal: bool = True
    n_experts: int = 0
    top_k: int = 2


def shapes(model: Model) -> dict[str, tuple[tuple[int, ...], P]]:
    """Parameters: shape, and how the mesh divides it (fsdp one dimension, tp another)."""
    layers, d, kv = model.n_layers, model.hidden, model.kv_heads
    head, queries = d // model.n_heads, model.n_heads // model.kv_heads
    experts, n_in = model.n_experts, 2 if model.gated else 1
    some = (layers, experts) if experts else (layers,)
    none = (None,) * len(some)
    found = {
        "embedding": ((model.vocab, d), P("tp", "fsdp")),
        "head": ((d, model.vocab), P("fsdp", "tp")),
        "final_norm": ((d,), P()),
        "norms": ((layers, 2, d), P()),
        "qkv": ((layers, d, kv, queries + 2, head), P(None, "fsdp", "tp")),
        "out": ((layers, kv, queries, head, d), P(None, "tp", None, None, "fsdp")),
        "mlp_in": ((*some, d, n_in, model.ffn), P(*none, "fsdp", None, "tp")),
        "mlp_out": ((*some, model.ffn, d), P(*none, "tp", "fsdp")),
    }
    return found | ({"router": ((layers, d, experts), P(None, "fsdp"))} if experts else {})


def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Root mean square norm over the last dimension, in fp32."""
    wide = x.astype(jnp.float32)
    scaled = wide * jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + 1e-6)
    return (scaled * scale).astype(x.dtype)


def rotated(x: jax.Array) -> jax.Array:
    """Rotary positions of [batch, position, ..., head]."""
    half = x.shape[-1] // 2
    angle = jnp.arange(x.shape[1])[:, None] / 10_000 ** (jnp.arange(half) / half)
    angle = angle.reshape(1, x.shape[1], *(1,) * (x.ndim - 3), half)
    cos, sin, one, two = jnp.cos(angle), jnp.sin(angle), x[..., :half], x[..., half:]
    return jnp.concatenate([one * cos - two * sin, two * cos + one * sin], axis=-1).astype(x.dtype)


def attention(model: Model, x: jax.Array, layer: Arrays) -> jax.Array:
    """Grouped attention over the whole square of scores."""
    qkv = jnp.einsum("bsd,dgqk->bsgqk", x, layer["qkv"])
    q, k, v = qkv[..., :-2, :], qkv[..., -2, :], qkv[..., -1, :]
    if model.gated:
        q, k = rotated(q), rotated(k)
    scores = jnp.einsum("bsgqk,btgk->bgqst", q, k) * (q.shape[-1] ** -0.5)
    if model.causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    mixed = jnp.einsum("bgqst,btgk->bsgqk", jax.nn.softmax(scores, axis=-1), v)
    return jnp.einsum("bsgqk,gqkd->bsd", mixed, layer["out"])


def mlp(model: Model, x: jax.Array, w_in: jax.Array, w_out: jax.Array, experts: str = "") -> jax.Array:
    """One MLP, or one for each expert (dimension 1 of x, 0 of the weights)."""
    inner = jnp.einsum(f"b{experts}sd,{experts}dcf->b{experts}scf", x, w_in)
    inner = jax.nn.silu(inner[..., 0, :]) * inner[..., 1, :] if model.gated else jax.nn.gelu(inner[..., 0, :])
    return jnp.einsum(f"b{experts}sf,{experts}fd->b{experts}sd", inner, w_out)


def mixture(model: Model, x: jax.Array, layer: Arrays) -> jax.Array:
    """Experts take the tokens of a sequence that rate them highest, all as many (expert choice, arXiv 2202.09368)."""
    n = x.shape[1] * model.top_k // model.n_experts
    gates = jax.nn.softmax(jnp.einsum("bsd,de->bse", x, layer["router"]).astype(jnp.float32), axis=-1)
    weight, chosen = jax.lax.top_k(gates.swapaxes(1, 2), n)  # [batch, expert, n]
    taken = jax.vmap(lambda rows, which: rows[which])(x, chosen)
    done = mlp(model, taken, layer["mlp_in"], layer["mlp_out"], "e") * weight[..., None].astype(x.dtype)
    return jax.vmap(lambda rows, which, what: rows.at[which].add(what))(jnp.zeros_like(x), chosen, done)


def forward(model: Model, mesh: Any, again: bool, weights: Arrays, tokens: jax.Array) -> jax.Array:
    """Mean loss of the next token (of the token itself where nothing is hidden)."""
    on = partial(jax.lax.with_sharding_constraint)
    rows = NamedSharding(mesh, P(DATA))
    weights = jax.tree.map(lambda w: w.astype(jnp.bfloat16), weights)

    def block(x: jax.Array, layer: Arrays) -> tuple[jax.Array, None]:
        x = on(x + attention(model, norm(x, layer["norms"][0]), layer), rows)
        y = norm(x, layer["norms"][1])
        y = mixture(model, y, layer) if model.n_experts else mlp(model, y, layer["mlp_in"], layer["mlp_out"])
        return on(x + y, rows), None

    layers = {name: weights[name] for name in weights if name not in ("embedding", "head", "final_norm")}
    x = on(weights["embedding"][tokens], rows)
    x, _ = jax.lax.scan(jax.checkpoint(block) if again else block, x, layers)
    logits = jnp.einsum("bsd,dv->bsv", norm(x, weights["final_norm"]), weights["head"]).astype(jnp.float32)
    logits = on(logits, NamedSharding(mesh, P(DATA, None, "tp")))
    target = jax.nn.one_hot(jnp.roll(tokens, -1, axis=1) if model.causal else tokens, model.vocab, dtype=jnp.float32)
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - jnp.sum(target * logits, axis=-1))


def build(
    model: Model, *, dp: int = 1, fsdp: int = 1, tp: int = 1, batch: int, seq_len: int, again: bool = False
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The jitted step (loss, gradients, Adam) and its arguments.

    Args:
        batch: sequences of a step, of all devices.
        again: whether the forward pass of a layer is computed again in its backward pass.
    """
    mesh = jax.make_mesh((dp, fsdp, tp), ("dp", "fsdp", "tp"), axis_types=(AxisType.Auto,) * 3)

    def step(state: dict[str, Arrays], tokens: jax.Array) -> tuple[dict[str, Arrays], jax.Array]:
        loss, grads = jax.value_and_grad(partial(forward, model, mesh, again))(state["params"], tokens)
        mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mu"], grads)
        nu = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, state["nu"], grads)
        params = jax.tree.map(lambda w, m, v: w - 1e-4 * m / (jnp.sqrt(v) + 1e-8), state["params"], mu, nu)
        return {"params": params, "mu": mu, "nu": nu}, loss

    weights = {
        name: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))
        for name, (shape, spec) in shapes(model).items()
    }
    state = {"params": weights, "mu": weights, "nu": weights}
    tokens = jax.ShapeDtypeStruct((batch, seq_len), jnp.int32, sharding=NamedSharding(mesh, P(DATA)))
    kept = jax.tree.map(lambda w: w.sharding, state)
    return jax.jit(step, donate_argnums=0, out_shardings=(kept, None)), (state, tokens)


def train_step() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Llama 2 7B on all devices there are: tensor parallel by 8 where they allow it, fully sharded over the rest."""
    n = jax.device_count()
    tp = 8 if n % 8 == 0 else 1
    return build(Model(), fsdp=n // tp, tp=tp, batch=n // tp, seq_len=4096)

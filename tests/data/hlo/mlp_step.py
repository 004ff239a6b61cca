"""A step that is captured in tests: four layers of an MLP, fully sharded by 2 and tensor parallel by 4, rematerialised."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

LAYERS, WIDTH, INNER, LENGTH = 4, 16, 64, 8
samples_per_step, tokens_per_sample = 4, LENGTH


def _mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((jax.device_count() // 4, 4), ("fsdp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)


@jax.checkpoint
def _layer(x, weights):
    mesh = _mesh()
    inner = jax.lax.with_sharding_constraint(jax.nn.gelu(x @ weights["up"]), NamedSharding(mesh, P("fsdp", None, "tp")))
    return jax.lax.with_sharding_constraint(x + inner @ weights["down"], NamedSharding(mesh, P("fsdp"))), None


def _loss(weights, x):
    weights = jax.tree.map(lambda w: w.astype(jnp.bfloat16), weights)
    y, _ = jax.lax.scan(_layer, x, weights)
    return jnp.mean(y.astype(jnp.float32) ** 2)


@jax.jit
def train_step(weights, x):
    loss, grads = jax.value_and_grad(_loss)(weights, x)
    return loss, jax.tree.map(lambda w, g: w - 1e-3 * g, weights, grads)


def example_args():
    mesh = _mesh()
    up = jax.ShapeDtypeStruct((LAYERS, WIDTH, INNER), jnp.float32, sharding=NamedSharding(mesh, P(None, "fsdp", "tp")))
    down = jax.ShapeDtypeStruct(
        (LAYERS, INNER, WIDTH), jnp.float32, sharding=NamedSharding(mesh, P(None, "tp", "fsdp"))
    )
    x = jax.ShapeDtypeStruct((samples_per_step, LENGTH, WIDTH), jnp.bfloat16, sharding=NamedSharding(mesh, P("fsdp")))
    return {"up": up, "down": down}, x


def without_arguments():
    return train_step, example_args()


def takes_arguments(x):
    return x


def raises():
    raise ValueError("no such layer")


def returns_a_number():
    return 3

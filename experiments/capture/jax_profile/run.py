"""Does a capture hold what a step does when it runs? Collectives and products of a JAX job on 8 CPU devices.

python experiments/capture/jax_profile/run.py

`step.py` is captured in a process of its own, from shapes alone. Then it is run here under `jax.profiler`. For every device
and step, the collectives and products that the profile saw are counted by operation and shape of the result, and compared
with those that the capture says will run.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parents[2]))
N_DEVICES, N_STEPS = 8, 3
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={N_DEVICES}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import xplane  # noqa: E402
from step import train_step  # noqa: E402

from experiments.common import check  # noqa: E402
from prism_jax.capture.front_end import FRONT_ENDS, CaptureRequest  # noqa: E402
from prism_jax.capture.hlo.collectives import base_opcode  # noqa: E402
from prism_jax.capture.hlo.parse import read_hlo  # noqa: E402
from prism_jax.capture.hlo.rows import products_in  # noqa: E402
from prism_jax.capture.hlo.walk import ModuleWalk  # noqa: E402

Seen = Counter[tuple[str, tuple[tuple[int, ...], ...]]]


def captured(folder: Path) -> tuple[Seen, Seen]:
    """Collectives and products of a step, by operation and shape, as the capture has them."""
    text = folder / "step.txt"
    request = CaptureRequest(f"{HERE / 'step.py'}:train_step", world=N_DEVICES, options={"keep": str(text)})
    FRONT_ENDS.named("jax").capture(request)
    module = read_hlo(text)
    collectives, products = Seen(), Seen()
    for visit in ModuleWalk(module).visits():
        one = visit.instruction
        dims = tuple(shape.dims for shape in one.shapes)
        if base_opcode(one):
            collectives[one.opcode, dims] += visit.times
        elif any(True for _ in products_in(module, visit.computation, one)):
            products[one.opcode, dims] += visit.times
    return collectives, products


def recorded(folder: Path) -> tuple[Path, set[str]]:
    """The profile of `N_STEPS` steps; and names of instructions of the module that ran in which a product is fused."""
    step, args = train_step()
    compiled = step.lower(*args).compile()
    state, tokens = jax.tree.map(_array, args)
    state, loss = compiled(state, tokens)
    jax.block_until_ready(loss)
    with jax.profiler.trace(str(folder)):
        for _ in range(N_STEPS):
            state, loss = compiled(state, tokens)
        jax.block_until_ready(loss)
    ran = folder / "ran.txt"
    ran.write_text(compiled.as_text())
    module = read_hlo(ran)
    fused = {
        one.name
        for computation in module.computations.values()
        for one in computation.instructions.values()
        if one.opcode in ("dot", "fusion", "custom-call") and any(True for _ in products_in(module, computation, one))
    }
    return next(folder.rglob("*.xplane.pb")), fused


def _array(like: jax.ShapeDtypeStruct) -> jax.Array:
    value = 1 if jnp.issubdtype(like.dtype, jnp.integer) else 0.01
    return jax.device_put(jnp.full(like.shape, value, like.dtype), like.sharding)


def seen(profile: Path, fused: set[str]) -> dict[int, tuple[Seen, Seen]]:
    """Device -> collectives and products of all steps, by the profile's own names and shapes."""
    shapes = xplane.shapes(profile, "jit_step")
    found = {}
    for device, counts in xplane.runs(profile, "jit_step").items():
        collectives, products = Seen(), Seen()
        for name, n in counts.items():
            opcode, dims = shapes[name]
            if opcode.removesuffix("-start").startswith(("all-", "reduce-scatter", "collective-")):
                collectives[opcode, dims] += n
            elif name in fused:
                products[opcode, dims] += n
        found[device] = collectives, products
    return found


def main() -> int:
    """Prints both sides of what differs; exit code 1 where anything does."""
    with tempfile.TemporaryDirectory() as folder:
        expected = captured(Path(folder))
        profile, fused = recorded(Path(folder) / "profile")
        found = seen(profile, fused)
    figures = {"devices": {"seen": float(len(found))}}
    for index, what in enumerate(("collectives", "products")):
        whole = Seen({key: n * N_STEPS for key, n in expected[index].items()})
        differ = sum(sum(((whole - one[index]) + (one[index] - whole)).values()) for one in found.values())
        figures[what] = {"kinds": float(len(whole)), "runs": float(whole.total()), "differ": float(differ)}
        told = f"{whole.total()} runs a device in {N_STEPS} steps; {differ} differ on {len(found)} devices"
        print(f"{what}: {len(whole)} shapes, {told}")
        for key, n in sorted(whole.items()):
            print(f"    {n:4} {key[0]:20} {' '.join(str(list(dims)) for dims in key[1])}")
    return check(figures, HERE / "expected.json")


if __name__ == "__main__":
    sys.exit(main())

"""Steps of the JAX example on one GPU: seconds of every step, and the program that XLA compiled for it. Needs JAX with a GPU.

python experiments/capture/measured_gpu/measure_jax.py FOLDER [--steps 50]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples" / "capture"))

from jax_transformer import Model, build  # pyright: ignore[reportMissingImports]

WARM_UP = 10
MODELS = {
    "gpt2": (Model(12, 768, 12, 12, 3072, 50304, gated=False), 8, 1024),
    "bert_large": (Model(24, 1024, 16, 16, 4096, 30528, gated=False, causal=False), 8, 512),
}


def gpt2() -> Any:
    """The step of GPT-2 and its arguments, to be captured on any machine."""
    return _step("gpt2")


def bert_large() -> Any:
    """The same of BERT-large."""
    return _step("bert_large")


def _step(name: str) -> Any:
    model, batch, seq_len = MODELS[name]
    return build(model, batch=batch, seq_len=seq_len)


def filled(shape: Any, rng: np.random.Generator) -> jax.Array:
    """Random values of that shape: tokens, or small weights."""
    if np.issubdtype(shape.dtype, np.integer):
        return jax.device_put(rng.integers(0, 30_000, shape.shape).astype(shape.dtype), shape.sharding)
    return jax.device_put((0.02 * rng.standard_normal(shape.shape)).astype(shape.dtype), shape.sharding)


def measured(name: str, folder: Path, n_steps: int) -> dict[str, float]:
    """Seconds of steps, each awaited, and of all of them in a row; writes the compiled program."""
    step, shapes = _step(name)
    compiled = step.lower(*shapes).compile()
    (folder / f"{name}.hlo.txt").write_text(compiled.as_text(), encoding="utf-8")
    rng = np.random.default_rng(0)
    state, tokens = jax.tree.map(lambda shape: filled(shape, rng), shapes)
    for _ in range(WARM_UP):
        state, loss = compiled(state, tokens)
    jax.block_until_ready(loss)
    begun = time.perf_counter()
    for _ in range(n_steps):
        state, loss = compiled(state, tokens)
    jax.block_until_ready(loss)
    in_a_row = (time.perf_counter() - begun) / n_steps
    seconds = []
    for _ in range(n_steps):
        begun = time.perf_counter()
        state, loss = compiled(state, tokens)
        jax.block_until_ready(loss)
        seconds.append(time.perf_counter() - begun)
    cost = compiled.cost_analysis() or {}
    about = {key: float(value) for key, value in cost.items() if key in ("flops", "bytes accessed")}
    return {
        "p50_s": in_a_row,
        "awaited_p50_s": float(np.median(seconds)),
        "awaited_p95_s": float(np.quantile(seconds, 0.95)),
    } | about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=50)
    asked = parser.parse_args()
    found = {"gpu": jax.devices()[0].device_kind, "jax": jax.__version__, "steps": {}}
    for name in MODELS:
        found["steps"][name] = measured(name, asked.folder, asked.steps)
        print(name, found["steps"][name], flush=True)
        (asked.folder / "measured_jax.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

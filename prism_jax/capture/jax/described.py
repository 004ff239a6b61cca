"""What the arguments of a step say of the job: its mesh, its samples, its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from types import ModuleType
from typing import Any

from ...workload.captured.program import USUAL_ROLES
from .contract import Step

_STATE_OF_OPTIMIZERS = ("mu", "nu", "opt", "opt_state", "optimizer", "momentum", "ema", "grads", "trace")


def described(step: Step, module: ModuleType | None) -> dict[str, Any]:
    """Plain values for JSON: axes, samples_per_step, tokens_per_sample, guessed, n_parameters, versions.

    Args:
        module: the user's file, whose `samples_per_step`, `tokens_per_sample` and `n_parameters` come first.
    """
    from importlib.metadata import version

    import jax

    leaves = list(_leaves((step.args, step.kwargs)))
    samples, tokens, guessed = _samples(leaves)
    if stated := getattr(module, "samples_per_step", None):
        samples, tokens, guessed = int(stated), int(getattr(module, "tokens_per_sample", 0)), ""
    return {
        "axes": _axes(leaves),
        "samples_per_step": samples,
        "tokens_per_sample": tokens,
        "guessed": guessed,
        "n_parameters": float(getattr(module, "n_parameters", 0) or _parameters(step)),
        "versions": {"jax": jax.__version__, "jaxlib": version("jaxlib")},
    }


def _leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """Paths and arrays of arguments."""
    import jax

    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
            yield jax.tree_util.keystr(path), leaf


def _axes(leaves: list[tuple[str, Any]]) -> dict[str, int]:
    """Dimensions of the mesh of the shardings; of several meshes the one with the most devices, then dimensions."""
    meshes: list[Mapping[str, int]] = []
    for _, leaf in leaves:
        mesh = getattr(getattr(leaf, "sharding", None), "mesh", None)
        if mesh is not None:
            meshes.append({str(name): int(size) for name, size in mesh.shape.items()})
    return dict(max(meshes, key=lambda sizes: (prod(sizes.values()), len(sizes)), default={}))


def _samples(leaves: list[tuple[str, Any]]) -> tuple[int, int, str]:
    """Samples of a step, tokens of each, and what tells them: the first argument of whole numbers, or the last of all."""
    import jax.numpy as jnp

    arrays = [(path, leaf) for path, leaf in leaves if len(leaf.shape) >= 1]
    whole = [(path, leaf) for path, leaf in arrays if jnp.issubdtype(leaf.dtype, jnp.integer) and leaf.shape[0] > 1]
    if whole:
        path, leaf = max(whole, key=lambda one: prod(one[1].shape))
        return leaf.shape[0], leaf.shape[1] if len(leaf.shape) == 2 else 0, f"the argument {path[:80]}"
    if arrays:
        path, leaf = arrays[-1]
        return max(leaf.shape[0], 1), leaf.shape[1] if len(leaf.shape) == 3 else 0, f"the argument {path[:80]}"
    return 1, 0, "nothing"


def _parameters(step: Step) -> float:
    """Of the first argument, without the state of the optimizer: elements that a rank computes with, tensor-parallel shares."""
    import jax.numpy as jnp

    total = 0.0
    for path, leaf in _leaves(step.args[:1]):
        words = path.replace("]", ".").replace("[", ".").replace("'", "").lower().split(".")
        if not jnp.issubdtype(leaf.dtype, jnp.floating) or any(word in _STATE_OF_OPTIMIZERS for word in words):
            continue
        total += prod(leaf.shape) / _divided(leaf)
    return total


def _divided(leaf: Any) -> int:
    """In how many parts tensor and expert parallelism divide an array."""
    sharding = getattr(leaf, "sharding", None)
    spec, mesh = getattr(sharding, "spec", ()), getattr(sharding, "mesh", None)
    names = [name for entry in spec for name in (entry if isinstance(entry, tuple) else (entry,)) if name]
    sizes = {} if mesh is None else mesh.shape
    return prod(int(sizes[name]) for name in names if USUAL_ROLES.get(str(name).lower(), "") in ("tp", "ep"))

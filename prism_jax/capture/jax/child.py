"""Compiles a user's step in a process of its own.

`python -m prism_jax.capture.jax.child FILE NAME FOLDER` writes about.json and step.txt. It runs the user's file, with the
virtual devices that its environment asks for, and nothing of the step itself. The file defines either a jitted function and,
next to it, `example_args` (a tuple, or a function that returns one) and perhaps `example_kwargs`; or a function without
arguments that returns `(jitted, args)`, `(jitted, args, kwargs)`, or what `jitted.lower(...)` gives. The arguments of a step
say of the job its mesh, its samples and its parameters.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

from ...core.errors import DataError, PrismError
from ...workload.captured.program import USUAL_ROLES
from ..front_end import load_function, user_errors

REMEDY = (
    "Give a jitted function with example_args next to it, or a function without arguments that returns the jitted step and "
    "its arguments."
)


@dataclass(frozen=True)
class LoweredStep:
    """A step that can be lowered.

    Attributes:
        lower: gives what can be compiled, or what was.
        args, kwargs: arrays, or `jax.ShapeDtypeStruct`s with shardings.
    """

    lower: Callable[[], Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def step_of(path: Path, name: str, found: Callable[..., Any], module: ModuleType | None) -> LoweredStep:
    """The step that `found`, called `name` in the file, stands for.

    Raises:
        DataError: it is none of the forms above; or the user's code raises.
    """
    if hasattr(found, "lower"):
        return _beside(path, name, found, module)
    if _needs_arguments(found):
        raise DataError(f"{path}: {name} takes arguments, but is not jitted. {REMEDY}")
    with user_errors(path, f"calling {name}"):
        given = found()
    if hasattr(given, "compile") or hasattr(given, "memory_analysis"):
        return LoweredStep(lambda: given)
    parts: tuple[Any, ...] = given if isinstance(given, tuple) else ()
    if not 2 <= len(parts) <= 3 or not hasattr(parts[0], "lower"):
        raise DataError(
            f"{path}: {name} returns {type(given).__name__}, whose first element is no jitted function. {REMEDY}"
        )
    return _jitted(path, name, parts[0], parts[1], parts[2] if len(parts) > 2 else {})


def _needs_arguments(found: Callable[..., Any]) -> bool:
    return any(
        one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        for one in inspect.signature(found).parameters.values()
    )


def _beside(path: Path, name: str, found: Callable[..., Any], module: ModuleType | None) -> LoweredStep:
    given = getattr(module, "example_args", None)
    if given is None:
        raise DataError(f"{path}: {name} is jitted, but the file has no example_args. {REMEDY}")
    kwargs = getattr(module, "example_kwargs", {})
    with user_errors(path, "calling example_args"):
        given = given() if callable(given) else given
        kwargs = kwargs() if callable(kwargs) else kwargs
    return _jitted(path, name, found, given, kwargs)


def _jitted(path: Path, name: str, jitted: Any, args: Any, kwargs: Any) -> LoweredStep:
    if not isinstance(args, (tuple, list)) or not isinstance(kwargs, Mapping):
        raise DataError(f"{path}: the arguments of {name} are {type(args).__name__}, but must be a tuple. {REMEDY}")
    return LoweredStep(lambda: jitted.lower(*args, **kwargs), tuple(args), dict(kwargs))


_STATE_OF_OPTIMIZERS = ("mu", "nu", "opt", "opt_state", "optimizer", "momentum", "ema", "grads", "trace")


def described(step: LoweredStep, module: ModuleType | None) -> dict[str, Any]:
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
    """Samples of a step, tokens of each, and the argument they are read from: the first of whole numbers, or the last of all."""
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


def _parameters(step: LoweredStep) -> float:
    """Returns the elements of the first argument, without optimizer state, that a rank computes with; tensor-parallel shares."""
    import jax.numpy as jnp

    total = 0.0
    for path, leaf in _leaves(step.args[:1]):
        words = path.replace("]", ".").replace("[", ".").replace("'", "").lower().split(".")
        if not jnp.issubdtype(leaf.dtype, jnp.floating) or any(word in _STATE_OF_OPTIMIZERS for word in words):
            continue
        total += prod(leaf.shape) / _divided(leaf)
    return total


def _divided(leaf: Any) -> int:
    """Returns the number of parts into which tensor and expert parallelism divide an array."""
    sharding = getattr(leaf, "sharding", None)
    spec, mesh = getattr(sharding, "spec", ()), getattr(sharding, "mesh", None)
    names = [name for entry in spec for name in (entry if isinstance(entry, tuple) else (entry,)) if name]
    sizes = {} if mesh is None else mesh.shape
    return prod(int(sizes[name]) for name in names if USUAL_ROLES.get(str(name).lower(), "") in ("tp", "ep"))


def main(file: str, name: str, folder: str) -> int:
    """Exit code: 0 where the step was compiled, 2 where it could not be."""
    try:
        about, text = _compile(Path(file), name)
    except PrismError as error:
        about, text = {"error": str(error)}, ""
    if text:
        (Path(folder) / "step.txt").write_text(text, encoding="utf-8")
    (Path(folder) / "about.json").write_text(json.dumps(about), encoding="utf-8")
    return 0 if text else 2


def _compile(path: Path, name: str) -> tuple[dict[str, Any], str]:
    found = load_function(path, name)
    module = sys.modules[found.__module__] if getattr(found, "__module__", "") in sys.modules else None
    step = step_of(path, name, found, module)
    with user_errors(path, f"compiling {name}"):
        lowered = step.lower()
        compiled = lowered if hasattr(lowered, "as_text") and hasattr(lowered, "memory_analysis") else lowered.compile()
        text = compiled.as_text()
    return described(step, module), str(text or "")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))

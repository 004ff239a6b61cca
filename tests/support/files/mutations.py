"""Random changes of an archive's content and bytes, by seed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .archives import parts, written

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1e300, float("nan"), float("inf"), 2**70, "", "x", [], {}, [1], ["a"], {"a": 1}, 1.5
)  # fmt: skip
VALUES = (0, -1, 1, 7, 1e300, -1e300, np.nan, np.inf, 2**31, 1e-300)
Way = tuple[str | int, ...]


def mutated(whole: Path, target: Path, seed: int) -> None:
    """Writes `whole` with one to three changes of what it holds, or of its bytes."""
    rng = np.random.default_rng(seed)
    if seed % 4 == 3:
        damaged = bytearray(whole.read_bytes())
        for at in rng.integers(0, len(damaged), rng.integers(1, 6)):
            damaged[at] = int(rng.integers(256))
        target.write_bytes(damaged[: int(rng.integers(len(damaged)))] if rng.random() < 0.2 else damaged)
        return
    about, arrays = parts(whole)
    for _ in range(rng.integers(1, 4)):
        if rng.random() < 0.4:
            _change_about(rng, about)
        elif arrays:
            _change_array(rng, arrays)
    written(target, about, arrays)


def _ways(value: Any, way: Way = ()) -> Iterator[Way]:
    """To all that is inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield (*way, name)
        yield from _ways(item, (*way, name))


def _change_about(rng: np.random.Generator, about: Any) -> None:
    ways = list(_ways(about))
    if not ways:
        return
    *outer, last = ways[rng.integers(len(ways))]
    for name in outer:
        about = about[name]
    if rng.random() < 0.2:
        del about[last]
    else:
        about[last] = ODD[rng.integers(len(ODD))]


def _change_array(rng: np.random.Generator, arrays: dict[str, Any]) -> None:
    names = list(arrays)
    name = names[rng.integers(len(names))]
    value = arrays[name]
    changes = (
        lambda: arrays.pop(name),
        lambda: arrays.update({name: value[:-1] if value.ndim else value[None]}),
        lambda: arrays.update({name: value[..., None]}),
        lambda: arrays.update({name: np.atleast_1d(value)[..., :0]}),
        lambda: arrays.update({name: value.astype(str)}),
        lambda: arrays.update({name: value.astype(object)}),
        lambda: arrays.update({names[rng.integers(len(names))]: value}),
        lambda: arrays.update({"posterior/other": value}),
        lambda: arrays.update({name: _with_odd_values(rng, value)}),
        lambda: arrays.update({name: _with_odd_values(rng, value)}),
    )
    changes[rng.integers(len(changes))]()


def _with_odd_values(rng: np.random.Generator, value: np.ndarray) -> np.ndarray:
    found, odd = value.copy(), VALUES[rng.integers(len(VALUES))]
    if found.size and found.dtype.kind == "f":
        found.flat[rng.integers(found.size) if rng.random() < 0.5 else slice(None)] = odd
    elif found.size and found.dtype.kind in "iu" and np.isfinite(odd) and abs(odd) < 2**31:
        found.flat[rng.integers(found.size)] = int(odd) if found.dtype.kind == "i" else abs(int(odd))
    return found

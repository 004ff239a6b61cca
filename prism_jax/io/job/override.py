"""`--set plan.tp=4`: replaces or adds one field of a Document before it is checked, so that mistakes name the option."""

from __future__ import annotations

import copy
from typing import Any

from ...errors import ConfigError
from .document import Document, Path, dotted, short
from .read_yaml import read_value

SHORTHAND = (
    ("model",),
    ("cluster",),
    ("variability",),
    ("cluster", "device"),
)  # `model: x` is short for `model: {preset: x}`


def apply_overrides(document: Document, overrides: list[str]) -> Document:
    """`document` with `overrides` ("path.to.field=value") applied in order; values are read as YAML.

    Raises:
        ConfigError: an override has no `=`, no path, a value that is not YAML, or goes through a plain value.
    """
    data: dict[str, Any] = copy.deepcopy(document.data)
    marks = dict(document.marks)
    mistakes: list[str] = []
    for override in overrides:
        try:
            _apply(data, marks, override)
        except ConfigError as error:
            mistakes += error.mistakes
    if mistakes:
        raise ConfigError(mistakes)
    return Document(document.name, data, marks)


def _apply(data: dict[str, Any], marks: dict[Path, str], override: str) -> None:
    name = f"--set {override}"
    field, equals, text = override.partition("=")
    keys = field.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError([f"{name}: expected FIELD=VALUE, for example --set plan.tp=4"])
    value = read_value(text, name)
    path: Path = ()
    container: Any = data
    for key in keys[:-1]:
        step = _step(container, key, path, name)
        path = (*path, step)
        container = _opened(container, step, path, marks, name)
    last = _step(container, keys[-1], path, name)
    container[last] = value
    path = (*path, last)
    for old in [mark for mark in marks if mark[: len(path)] == path]:
        del marks[old]
    marks[path] = name


def _opened(container: Any, step: Any, path: Path, marks: dict[Path, str], name: str) -> Any:
    """What stands at `step`; an absent section is begun, a preset in shorthand is written out."""
    child = container[step] if isinstance(container, list) else container.get(step)
    if child is None:
        child = container[step] = {}
        marks.setdefault(path, name)
    elif isinstance(container, dict) and path in SHORTHAND and isinstance(child, str):
        child = container[step] = {"preset": child}
        marks[(*path, "preset")] = marks.get(path, name)
    return child


def _step(container: Any, key: str, path: Path, name: str) -> Any:
    """`key` as a key of a mapping or an index of a list."""
    if isinstance(container, dict):
        return key
    if not isinstance(container, list):
        raise ConfigError([f"{name}: {dotted(path)} is {short(container)}, a plain value without fields"])
    if not key.isdigit() or int(key) >= len(container):
        raise ConfigError(
            [f"{name}: {dotted(path)} is a list; {key!r} must be an index from 0 to {len(container) - 1}"]
        )
    return int(key)

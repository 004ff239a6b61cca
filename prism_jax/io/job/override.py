"""`--set plan.tp=4`: replaces or adds one field of a Document before it is checked, so that mistakes name the option."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...errors import ConfigError, Mark, Mistake
from .document import MAX_DEPTH, Document, Path, dotted, short
from .read_yaml import read_value

MOST_SHOWN = 200  # characters of an option in a message
SHORTHAND = (
    ("model",),
    ("cluster",),
    ("variability",),
    ("cluster", "device"),
)  # `model: x` is short for `model: {preset: x}`


def apply_overrides(document: Document, overrides: Sequence[str]) -> Document:
    """`document` with `overrides` ("path.to.field=value") applied in order; values are read as YAML.

    Raises:
        ConfigError: an override has no `=`, no path, a value that is not YAML, or goes through a plain value.
    """
    return with_fields(document, [_change(override) for override in overrides])


class FieldChange(NamedTuple):
    """A field that is replaced or added.

    Attributes:
        field: its path with dots, as `--set` takes it.
        text: its value in YAML; None where no value was written.
        mark: where it was written; one of an option becomes that of the field.
    """

    field: str
    text: str | None
    mark: Mark


def with_fields(document: Document, changes: Sequence[FieldChange]) -> Document:
    """`document` with fields replaced or added in order.

    Raises:
        ConfigError: a change has no value or no path, a value that is not YAML, or goes through a plain value.
    """
    data: dict[str, Any] = copy.deepcopy(document.data)
    marks = dict(document.marks)
    mistakes: list[Mistake] = []
    for change in changes:
        try:
            _apply(data, marks, change)
        except ConfigError as error:
            mistakes += error.mistakes
    if mistakes:
        raise ConfigError(mistakes)
    return Document(document.name, data, marks)


def _change(override: str) -> FieldChange:
    mark = Mark(f"--set {override if len(override) <= MOST_SHOWN else override[:MOST_SHOWN] + '...'}", option=())
    field, equals, text = override.partition("=")
    return FieldChange(field, text if equals else None, mark)


def _apply(data: dict[str, Any], marks: dict[Path, Mark], change: FieldChange) -> None:
    field, text, mark = change
    keys = field.strip().split(".", MAX_DEPTH)
    if len(keys) > MAX_DEPTH:
        raise ConfigError([Mistake(f"a field of more than {MAX_DEPTH} parts", mark)])
    if text is None or not all(keys):
        raise ConfigError([Mistake("expected FIELD=VALUE, for example --set plan.tp=4", mark)])
    value = read_value(text, mark)
    path: Path = ()
    container: Any = data
    for key in keys[:-1]:
        step = _step(container, key, path, mark)
        path = (*path, step)
        container = _opened(container, step, path, marks, mark)
    last = _step(container, keys[-1], path, mark)
    container[last] = value
    path = (*path, last)
    for old in [mark for mark in marks if mark[: len(path)] == path]:
        del marks[old]
    marks[path] = mark if mark.option is None else replace(mark, option=path)


def _opened(container: Any, step: Any, path: Path, marks: dict[Path, Mark], mark: Mark) -> Any:
    """What stands at `step`; an absent section is begun, a preset in shorthand is written out."""
    child = container[step] if isinstance(container, list) else container.get(step)
    if child is None:
        child = container[step] = {}
        marks.setdefault(path, mark)
    elif isinstance(container, dict) and path in SHORTHAND and isinstance(child, str):
        child = container[step] = {"preset": child}
        marks[(*path, "preset")] = marks.get(path, mark)
    return child


def _step(container: Any, key: str, path: Path, mark: Mark) -> Any:
    """`key` as a key of a mapping or an index of a list."""
    if isinstance(container, dict):
        return key
    if not isinstance(container, list):
        raise ConfigError([Mistake(f"{dotted(path)} is {short(container)}, a plain value without fields", mark)])
    if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < len(container)):
        text = f"{dotted(path)} is a list; {short(key)} must be an index from 0 to {len(container) - 1}"
        raise ConfigError([Mistake(text, mark)])
    return int(key)

"""TOML text to a Document. The parser keeps no positions, so lines are found again by a search for headers and keys."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from ...errors import ConfigError, Mark, Mistake
from .document import Document, Path

_AT = re.compile(r"^(.*?) \(at line (\d+), column (\d+)\)$", re.DOTALL)
_HEADER = re.compile(r"\s*(\[{1,2})\s*([^\[\]]+?)\s*\]{1,2}\s*(#.*)?$")
_KEY = re.compile(r"\s*([A-Za-z0-9_\-.\"' ]+?)\s*=")


def read_toml(text: str, name: str) -> Document:
    """Document of `text`; `name` is the file in messages.

    Raises:
        ConfigError: not TOML, or empty.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = _AT.match(str(error))
        mark, problem = (Mark(name, int(match[2]), int(match[3])), match[1]) if match else (Mark(name), str(error))
        raise ConfigError([Mistake(f"not valid TOML: {problem}", mark)]) from None
    except RecursionError:
        raise ConfigError.in_file(name, "not valid TOML: nested too deeply") from None
    if not data:
        raise ConfigError.in_file(name, "the file is empty. Start from a file under examples/.")
    return Document(name, data, _marks(text, name, data))


def _marks(text: str, name: str, data: dict[str, Any]) -> dict[Path, Mark]:
    """Best effort: header and key lines, without multi-line strings and inline tables."""
    marks: dict[Path, Mark] = {}
    table: Path = ()
    n_seen: dict[Path, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        mark = Mark(name, number, len(line) - len(line.lstrip()) + 1)
        header = _HEADER.match(line)
        key = _KEY.match(line)
        if header:
            table = _split(header[2])
            if header[1] == "[[":
                index = n_seen.get(table, 0)
                n_seen[table] = index + 1
                table = (*table, index)
            _add(marks, table, mark, data)
        elif key:
            _add(marks, (*table, *_split(key[1])), mark, data)
    return marks


def _split(text: str) -> Path:
    return tuple(part.strip().strip("\"'") for part in text.split("."))


def _add(marks: dict[Path, Mark], path: Path, mark: Mark, data: Any) -> None:
    """Notes the place of `path` and of its parents, if the parsed data has such a field."""
    for depth, part in enumerate(path, start=1):
        if isinstance(data, dict) and part in data:
            data = data[part]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return
        marks.setdefault(path[:depth], mark)

"""TOML text to a Document. The parser keeps no positions, so lines are found again by a search for headers and keys."""

from __future__ import annotations

import re
import string
import tomllib
from typing import Any

from ...errors import ConfigError, Mark, Mistake
from .document import MAX_DEPTH, MAX_FIELDS, Document, Path, is_too_long

_AT = re.compile(r" \(at line (\d+), column (\d+)\)\Z")
# What holds dots that join no keys (texts, comments), what joins keys, and what ends a key; linear, for no part of it can be
# matched in two ways.
_TOKEN = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\Z)|'
    + r"'''(?:[^']|'(?!''))*+(?:'''|\Z)|"
    + r'"(?:[^"\\\n]|\\.)*+"|'
    + r"'[^'\n]*+'|"
    r"#[^\n]*+|(?P<dot>\.)|(?P<end>[=\n{}\[\],])",
    re.DOTALL,
)
_BARE = frozenset(string.ascii_letters + string.digits + "_-.\"' ")


def read_toml(text: str, name: str) -> Document:
    """Document of `text`; `name` is the file in messages.

    Raises:
        ConfigError: not TOML, empty, nested too deeply, or with more fields or longer numbers than a job has.
    """
    _limit_dots(text, name)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem = str(error)
        match = _AT.search(problem)
        mark = Mark(name, int(match[1]), int(match[2])) if match else Mark(name)
        raise ConfigError(
            [Mistake(f"not valid TOML: {problem[: match.start()] if match else problem}", mark)]
        ) from None
    except ValueError:  # Python reads no decimal number of thousands of digits
        raise ConfigError.in_file(name, "a number of thousands of digits. Write it as 1e30.") from None
    except RecursionError:
        raise ConfigError.in_file(name, "not valid TOML: nested too deeply") from None
    if not data:
        raise ConfigError.in_file(name, "the file is empty. Start from a file under examples/.")
    document = Document(name, data, _marks(text, name, data))
    _limit_values(document)
    return document


def _limit_dots(text: str, name: str) -> None:
    """Stops before the parser, whose time and memory grow with the square of the parts of a dotted key."""
    n_dots = 0
    for token in _TOKEN.finditer(text):
        if token["dot"]:
            n_dots += 1
            if n_dots > MAX_DEPTH:
                line = text.count("\n", 0, token.start()) + 1
                raise ConfigError(
                    [Mistake(f"not valid TOML: a key of more than {MAX_DEPTH} parts", Mark(name, line, 1))]
                )
        elif token["end"]:
            n_dots = 0


def _limit_values(document: Document) -> None:
    """Stops at what would exhaust the stack, or is no number that anything here has a use for."""
    n_fields = 0
    rest: list[tuple[Path, Any]] = [((), document.data)]
    while rest:
        path, value = rest.pop()
        n_fields += 1
        if n_fields > MAX_FIELDS:
            raise ConfigError.in_file(document.name, f"more than {MAX_FIELDS} fields, so hardly a job")
        if len(path) > MAX_DEPTH:
            raise ConfigError([document.mistake(path, f"nested more than {MAX_DEPTH} levels deep")])
        if is_too_long(value):
            raise ConfigError([document.mistake(path, "a whole number of more than 64 bits. Write it as 1e30.")])
        if isinstance(value, dict):
            rest += [((*path, key), item) for key, item in value.items()]
        elif isinstance(value, list):
            rest += [((*path, index), item) for index, item in enumerate(value)]


def _marks(text: str, name: str, data: dict[str, Any]) -> dict[Path, Mark]:
    """Best effort: header and key lines, without multi-line strings and inline tables."""
    marks: dict[Path, Mark] = {}
    table: Path = ()
    n_seen: dict[Path, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        mark = Mark(name, number, len(line) - len(line.lstrip()) + 1)
        content = line.strip()
        if header := _header(content):
            table = _split(header)
            if content.startswith("[["):
                index = n_seen.get(table, 0)
                n_seen[table] = index + 1
                table = (*table, index)
            _add(marks, table, mark, data)
        elif key := _key(content):
            _add(marks, (*table, *_split(key)), mark, data)
    return marks


def _header(line: str) -> str:
    """`a.b` of `[a.b]` and `[[a.b]]  # remark`; empty where the line is no header."""
    if not line.startswith("["):
        return ""
    inner, closing, rest = line.removeprefix("[").removeprefix("[").partition("]")
    rest = rest.removeprefix("]").lstrip()
    is_header = closing and "[" not in inner and (not rest or rest.startswith("#"))
    return inner.strip() if is_header else ""


def _key(line: str) -> str:
    """`a.b` of `a.b = 1`; empty where the line sets nothing."""
    key, equals, _ = line.partition("=")
    return key.strip() if equals and _BARE.issuperset(key) else ""


def _split(text: str) -> Path:
    return tuple([part.strip().strip("\"'") for part in text.split(".")])


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

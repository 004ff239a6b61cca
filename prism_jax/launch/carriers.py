"""Configuration files of trainers as heads: YAML, TOML and JSON documents, told apart by their keys.

A carrier knows its files by keys that no other has, and gives a head: names and values with their lines, as a log would print
them, and the trainer whose reader makes a job of it. `CARRIERS` lists them; the first that knows a document reads it. What a
document leaves to other files (a DeepSpeed JSON next to a trainer's YAML) is looked for among the files given with it, then in
its folder, and outside of that only below a folder that was named. Nothing is evaluated, expanded or fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, DataError
from ..tables.document import Document
from ..tables.yaml_toml import read_mapping
from .head import LONGEST_VALUE, MOST_NAMES, Head, SaidValue

SUFFIXES = (".yaml", ".yml", ".toml", ".json")
FORM = "a configuration of a trainer is a mapping"


@dataclass(frozen=True)
class ConfigFiles:
    """Files of one job and what was stated next to them.

    Attributes:
        main: the document that the carrier knew.
        others: documents given with it.
        words: KEY=VALUE texts given behind the files, as trainers take them; the last of a key counts.
        n_devices: GPUs of the job; None: as the files say.
        root: folder below which files may be followed; None: the folder of `main`.
    """

    main: Document
    others: tuple[Document, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    n_devices: int | None = None
    root: Path | None = None

    def follow(self, name: str) -> Document | None:
        """Reads a document that `main` names: one given with it by the end of its path, else the file in its folder or below
        `root`; None where there is none.

        Raises:
            ConfigError: it is there and cannot be read.
        """
        last = Path(name).name
        given = [one for one in self.others if Path(one.name).name == last]
        if given:
            return given[0]
        tops = [Path(self.main.name).resolve().parent, *([self.root.resolve()] if self.root else [])]
        for path in (top / one for top in tops for one in (name, last)):
            inside = path.resolve()
            if inside.suffix in SUFFIXES and inside.is_file() and any(map(inside.is_relative_to, tops)):
                return read_document(inside)
        return None


@dataclass(frozen=True)
class Carrier:
    """A kind of configuration file.

    Attributes:
        name: for messages.
        is_mine: whether a document is one, by its keys.
        read: head of the job that it states.
    """

    name: str
    is_mine: Callable[[Document], bool]
    read: Callable[[ConfigFiles], Head]


CARRIERS: tuple[Carrier, ...] = ()


def read_document(path: Path) -> Document:
    """Reads a document by the ending of its name.

    Raises:
        ConfigError: not such a document, or too large.
    """
    return read_mapping(str(path), FORM, "Give the configuration that the trainer reads.")


def head_of_config(files: ConfigFiles) -> Head:
    """Reads the job that configuration files state.

    Raises:
        DataError: no carrier knows the document.
        ConfigError: a document cannot be read.
    """
    every = (files.main, *files.others)
    for carrier in CARRIERS:
        for one in every:
            if carrier.is_mine(one):
                rest = tuple(other for other in every if other is not one)
                return carrier.read(ConfigFiles(one, rest, files.words, files.n_devices, files.root))
    known = ", ".join(carrier.name for carrier in CARRIERS)
    raise DataError(f"{files.main.name}: no configuration of a trainer that is known here ({known})")


def flat(document: Document, data: Any = None, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str, SaidValue]]:
    """Yields the scalars of a document under their dotted names, with the lines they stand on; a list of scalars is one value."""
    inner = document.data if not path else data
    if isinstance(inner, dict):
        for key, value in inner.items():
            yield from flat(document, value, (*path, key))
    elif isinstance(inner, list) and any(isinstance(one, (dict, list)) for one in inner):
        for at, value in enumerate(inner):
            yield from flat(document, value, (*path, at))
    else:
        name = ".".join(map(str, path))
        yield name, SaidValue(str(inner)[:LONGEST_VALUE], document.mark(path).line or 0, name)


def said_of(document: Document) -> dict[str, SaidValue]:
    """Scalars of a document by dotted name.

    Raises:
        ConfigError: there are more than any trainer has.
    """
    found: dict[str, SaidValue] = {}
    for name, value in flat(document):
        if len(found) >= MOST_NAMES:
            raise ConfigError.in_file(document.name, f"more than {MOST_NAMES:,} values")
        found[name] = value
    return found

"""Configuration files of one job: YAML, TOML and JSON documents with their lines, and what was stated next to them.

A document that another one names (a DeepSpeed JSON next to a trainer's YAML) is looked for among the files given with it, then in
its folder, and outside of that only below a folder that was named. Nothing is evaluated or fetched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, DataError
from ..core.read_file import read_text
from ..tables.document import Document
from ..tables.yaml_toml import MAX_BYTES, read_loose_yaml, read_toml
from .head import LONGEST_VALUE, MOST_NAMES, Head, SaidValue
from .shell_values import MARKS, OpenValues

SUFFIXES = (".yaml", ".yml", ".toml", ".json")


class NoHeadError(DataError):
    """A file that states no job in the words of a trainer."""


@dataclass(frozen=True)
class ConfigFiles:
    """Files of one job and what was stated next to them.

    Attributes:
        main: the document that the carrier knew.
        others: documents given with it.
        words: KEY=VALUE texts given behind the files, as trainers take them; the last of a key counts.
        n_devices: GPUs of the job; None: as the files say.
        root: folder below which files may be followed; None: the folder of `main`.
        environment: variables that are known.
        open: values that the files leave open so far.
    """

    main: Document
    others: tuple[Document, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    n_devices: int | None = None
    root: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    open: OpenValues = field(default_factory=OpenValues)

    def follow(self, name: str) -> Document | None:
        """Reads a document that `main` names: one given with it by the end of its path, else the file in its folder or below
        `root`; None where there is none.

        Raises:
            ConfigError: it is there and cannot be read.
        """
        last = Path(name).name
        given = [one for one in self.others if Path(one.name).name == last]
        return given[0] if given else follow_from(Path(self.main.name), name, self.root)

    def said(self, document: Document | None = None) -> dict[str, SaidValue]:
        """Scalars of a document (`main`) by dotted name, references filled in, `words` in the place of those they replace.

        Raises:
            ConfigError: there are more than any trainer has.
        """
        words = self.words_said() if document is None else {}
        return resolve(said_of(document or self.main) | words, self.environment, self.open)

    def words_said(self) -> dict[str, SaidValue]:
        """Values of `words` by name."""
        return {name: SaidValue(text, 0, name) for name, text in self.words.items()}

    def head(self, trainer: str = "") -> Head:
        """An empty head of the job, with its number of GPUs as `world_size` where that was given."""
        head = Head(trainer=trainer, source="configuration", open=self.open)
        if self.n_devices is not None:
            head.arguments["world_size"] = SaidValue(str(self.n_devices), 0, "--gpus")
        return head


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


def follow_from(file: Path, name: str, root: Path | None = None) -> Document | None:
    """Reads a document that a file names, from the folder of that file or below `root`; None where there is none.

    Raises:
        ConfigError: it is there and cannot be read.
    """
    tops = [file.resolve().parent, *([root.resolve()] if root else [])]
    for path in (top / one for top in tops for one in dict.fromkeys((name, Path(name).name))):
        inside = path.resolve()
        if inside.suffix in SUFFIXES and inside.is_file() and any(map(inside.is_relative_to, tops)):
            return read_document(inside)
    return None


def read_document(path: Path) -> Document:
    """Reads the document of a file, by the ending of its name; of several in a YAML file the first.

    Raises:
        ConfigError: not such a document, or too large.
    """
    return read_documents(path)[0]


def read_documents(path: Path) -> list[Document]:
    """Reads all documents of a file, by the ending of its name.

    Raises:
        ConfigError: not such a document, or too large.
    """
    name = str(path)
    try:
        text = MARKS.sub("", read_text(name, MAX_BYTES, "Give the configuration that the trainer reads."))
    except DataError as error:
        raise ConfigError.in_file(name, error.text) from None
    found = documents_of(text, name)
    if not found:
        raise ConfigError.in_file(name, "a configuration of a trainer is a mapping, and there is none in it")
    return found


def documents_of(text: str, name: str) -> list[Document]:
    """Documents of a text, by the ending of the name that it has.

    Raises:
        ConfigError: it is none.
    """
    if name.endswith(".toml"):
        return [read_toml(text, name)]
    return read_loose_yaml(text.replace("\t", " ") if name.endswith(".json") else text, name)


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


# --- References ------------------------------------------------------------------------------------------------------

MOST_ROUNDS = 50  # references inside of references
_REFERENCE = re.compile(r"\$\{([^${}]{1,200})\}|\$([A-Za-z_]\w{0,80})")
_ENVIRONMENT = re.compile(r"(?:oc\.)?env:(\w+)(?:,(.*))?")
_SELECT = re.compile(r"oc\.select:([\w.]+)(?:,(.*))?")
_PRODUCT = re.compile(r"(?:multiply|mul):\s*(\d{1,9})\s*,\s*(\d{1,9})\s*")  # resolvers of NeMo and NeMo-RL
_SHELL = re.compile(
    r"([A-Za-z_]\w*(?=:?-)|[A-Z_][A-Z0-9_]*)(?::?-|:)(.*)"
)  # ${NAME:-default} of bash, ${NAME:default} of Primus


def resolve(
    values: Mapping[str, SaidValue], environment: Mapping[str, str], open_values: OpenValues
) -> dict[str, SaidValue]:
    """Values with their references filled in: `${model.hidden}` of the same file, `${oc.env:X}`, `${X:default}` and `$X` of the
    environment. What is not known becomes an open value. Nothing is computed but products.

    Args:
        values: by dotted name.
        environment: variables that are known.
        open_values: takes what is not.
    """
    return {
        name: one if "$" not in one.text else one._replace(text=_filled(name, one, values, environment, open_values))
        for name, one in values.items()
    }


def _filled(
    name: str,
    one: SaidValue,
    values: Mapping[str, SaidValue],
    environment: Mapping[str, str],
    open_values: OpenValues,
) -> str:
    text = one.text
    for _ in range(MOST_ROUNDS):
        found = _REFERENCE.search(text)
        if found is None or len(text) > 4000:
            break
        known = _known(name, found[1] or found[2], values, environment)
        if known is None:
            shown = found[1] or found[2]
            variable, inner = _ENVIRONMENT.fullmatch(shown), open_values.inside(shown)
            open_name = variable[1] if variable else inner[0].name if inner else shown
            known = open_values.mark(open_name, one.line)
        text = text[: found.start()] + known.strip("'\"") + text[found.end() :]
    return text


def _known(name: str, reference: str, values: Mapping[str, SaidValue], environment: Mapping[str, str]) -> str | None:
    """Value that a reference stands for; None where that is open."""
    product = _PRODUCT.fullmatch(reference)
    if product is not None:
        return str(int(product[1]) * int(product[2]))
    variable, select = _ENVIRONMENT.fullmatch(reference), _SELECT.fullmatch(reference)
    if variable is not None:
        return environment.get(variable[1], variable[2])
    if select is not None:
        reference = select[1]
    up = len(reference) - len(reference.lstrip("."))
    path = ".".join([*name.split(".")[:-up], reference[up:]]) if up else reference
    if path in values and path != name:
        return values[path].text
    if select is not None and select[2] is not None:
        return select[2]
    shell = _SHELL.fullmatch(reference)
    if shell is not None:
        return environment.get(shell[1], shell[2])
    return environment.get(reference)

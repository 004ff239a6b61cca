"""The words of a command as the page takes them: a command that answers with a report, on files below the folder alone.

Words come from a form or from a file in the folder, so they are read by the parser of the command line and checked before any of
them is acted upon: every value that could name a file, whatever its option, stays below the folder, also through links.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import DataError, printable
from ..shell.app import parsed
from ..shell.catalogue import called, completed
from ..shell.command import JSON, parts_of_command

MOST_WORDS, MOST_LETTERS = 200, 20_000  # of one command, and in all its words
WORK = ".work"  # ending of the journal of a run
RUNS_CODE = ("capture",)  # commands that execute what a file holds
ELSEWHERE = ("executor", "processes")  # parameters that reach other machines
NO_PATHS = ("pattern", "variables")  # parameters whose texts open no file: a regular expression, variables of a script
HIDDEN = re.compile(r"\.[^\W\d]")  # how the name of a hidden file begins; numbers may begin with a point too
HERE = (str, Path, type(None))  # types of a parameter that names a file with kept work, and nothing else


class CheckedWords(NamedTuple):
    """A command that may run in the folder.

    Attributes:
        words: as they are typed after `prism-jax`, in present names, without `--json`.
        command: its name.
        subject: what it is about, short: the first argument.
        keeps_work: whether it has an option `--resume` for a journal of its own.
        journal: the file that the words give to `--resume`; empty: none.
    """

    words: tuple[str, ...]
    command: str
    subject: str
    keeps_work: bool
    journal: str

    def journal_of(self, name: str) -> str:
        """The file in which the run of that name keeps its work; empty: it keeps none."""
        return self.journal or (f"{name}{WORK}" if self.keeps_work else "")

    def with_options(self, *options: str) -> list[str]:
        """The words with further options, which stand before a `--`."""
        at = self.words.index("--") if "--" in self.words else len(self.words)
        return [*self.words[:at], *options, *self.words[at:]]


def checked_words(words: Sequence[str], folder: Path) -> CheckedWords:
    """Reads the words of a command.

    Args:
        words: as one types them after `prism-jax`.
        folder: paths are relative to it and stay below it.

    Raises:
        DataError: no command, one that the page does not run, a word that it does not know, or a path that leads out.
    """
    if not all(map(str.isprintable, map(str, words))):  # halves of surrogate pairs included
        raise DataError(f"{printable(' '.join(map(str, words)))[:80]!r}: no usable text")
    if not words or len(words) > MOST_WORDS or sum(map(len, words)) > MOST_LETTERS or not all(words):
        raise DataError(f"command: it must have 1 to {MOST_WORDS} words of at most {MOST_LETTERS:,} letters in all")
    words = completed([str(word) for word in words])
    command = called(words)
    if command is None:
        raise DataError(
            f"command {printable(' '.join(words[:2]))[:60]!r}: there is none. `prism-jax --help` lists them."
        )
    if command.name in RUNS_CODE:
        raise DataError(f"command {command.name}: executes code, which the page does not. Run it in a terminal.")
    values = _values(words)
    if values.keys() & set(ELSEWHERE):
        raise DataError("--executor and --processes: choose them for all runs, where `prism-jax serve` is started")
    parts = {part.name: part for part in parts_of_command(command.load(), command.fixed)}
    keeps_work = "resume" in parts and set(_kinds(parts["resume"].hint)) <= set(HERE)
    for name, value in values.items():
        if name not in NO_PATHS:
            for text in _texts(value):
                _check_inside(text, folder)
    subject = next((_texts_of(values, part.name) for part in parts.values() if part.is_by_position), "")
    typed = str(values.get("resume", "")) if keeps_work else ""
    own = [word for at, word in enumerate(words) if word != "--json" or "--" in words[:at]]
    return CheckedWords(tuple(own), command.name, subject, keeps_work, typed)


def _values(words: list[str]) -> Mapping[str, Any]:
    """Parameter -> what was typed for it.

    Raises:
        DataError: the words do not fit the command, ask for help, or the command makes no report.
    """
    try:
        function, found = parsed(words)
    except DataError as error:
        raise DataError(f"command {words[0]}: {error}") from None
    if JSON.name not in inspect.signature(function).parameters:
        raise DataError(f"command {words[0]}: makes no report, or help was asked for. Run it in a terminal.")
    return found


def _kinds(hint: Any) -> tuple[Any, ...]:
    return getattr(hint, "__args__", (hint,))


def _texts_of(values: Mapping[str, Any], name: str) -> str:
    return next(_texts(values.get(name)), "")


def _texts(value: Any) -> Iterator[str]:
    """All texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _check_inside(text: str, folder: Path) -> None:
    """Refuses a text that is a path out of the folder, or holds one: FIELD=PATH, PATH,PATH.

    Raises:
        DataError: it does.
    """
    shown = printable(text)[:80]
    for piece in {text, *re.split(r"[=,:]", text)}:
        path = Path(piece)
        if path.is_absolute() or path.drive or piece.startswith(("~", "\\")) or ".." in path.parts:
            raise DataError(f"{shown!r}: leads out of the folder that is served. Put the file into it.")
        if any(HIDDEN.match(part) for part in path.parts) and piece.lower() not in (".inf", ".nan"):
            raise DataError(f"{shown!r}: a hidden file, which the page neither reads nor writes")
        if not is_inside(folder / piece, folder):
            raise DataError(f"{shown!r}: a link leads out of the folder that is served. Put the file into it.")


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path, with every link followed, is the folder or below it."""
    root = os.path.realpath(folder)
    return Path(os.path.realpath(path)).is_relative_to(root)

"""The options of a command as fields of a form, and the words of the command line that a filled form stands for.

All of it is read off the use case, as the command line is: a new option is a field without a line of code. No field is what says
where a command runs or where its report goes: the run itself keeps the report and the work that is done. A file that is the very
product of a command (a fit, a table of slowdowns) has a field with a free name.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias, get_origin

from ..core.errors import DataError, printable
from ..core.executor import Workers
from ..core.use_case import THE_JOB, OptionSpec, command_line_type
from ..core.write_file import check_file, check_folder, check_timeline
from ..shell.catalogue import COMMANDS, Command
from ..shell.command import OWN, PLACES, VALUES, parts_of_command, shown_default
from .site import Fields

Kind: TypeAlias = Literal["text", "number", "flag", "choice", "lines"]

SUBJECT = "job"  # field of the first argument, whatever it is called: a job, a recording, a table
NOT_STARTED: Mapping[str, str] = {  # command -> where it is instead
    "serve": "this page is it",
    "report": "open the report in the folder",
    "show": "run it in a terminal",
    "init": "write a new job on the page of jobs",
    "import": "add the file on the page of the folder",
    "capture": "it executes code: run it in a terminal",
    "measure": "it writes scripts: run it in a terminal",
    "trace export": "it writes a timeline: run it in a terminal",
}
PRODUCTS: Mapping[str, str] = {"calibrate": "site.npz", "slowdowns": "gpus.csv", "export": "launch"}  # proposed names
ELSEWHERE = {"resume", "shard", "processes", "plot", *(item.name for item in fields(Workers))}
WRITING = (check_file, check_folder, check_timeline)


@dataclass(frozen=True)
class CommandField:
    """One option or argument of a command.

    Attributes:
        part: as the use case declares it.
        name: of the field.
        word: as it is typed, "--samples"; empty: by position.
        kind: how it is filled in.
    """

    part: OptionSpec
    name: str
    word: str
    kind: Kind

    @property
    def label(self) -> str:
        """Name for people."""
        return self.word or self.metavar or self.part.name

    @property
    def metavar(self) -> str:
        """Kind of value, as the help of the command line says it; empty for a flag."""
        if self.kind in ("flag", "choice"):
            return ""
        return self.part.option.metavar or VALUES.get(command_line_type(self.part.hint, self.part.option), "")

    @property
    def is_required(self) -> bool:
        """Whether the command needs a value."""
        return self.part.default is inspect.Parameter.empty

    @property
    def default(self) -> str:
        """Value where nothing is filled in, in words; empty: none, or nothing to say."""
        if self.is_required or self.kind == "flag":
            return ""
        return self.part.option.default or shown_default(self.part.default)

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole number."""
        return command_line_type(self.part.hint, self.part.option) is int

    @property
    def choices(self) -> Sequence[str]:
        """Words of a pair of flags, that of the default first."""
        on, _, off = self.part.option.names.partition("/")
        return (on, off) if self.part.default else (off, on)

    @property
    def heading(self) -> str:
        """Heading of the part of the form in which it stands."""
        return THE_JOB if not self.word else self.part.option.heading or OWN


def fields_of(command: Command) -> tuple[CommandField, ...]:
    """Fields of a command: arguments, and then options by their headings.

    Raises:
        DataError: it is not started from the page.
    """
    if (instead := NOT_STARTED.get(command.name)) is not None:
        raise DataError(f"command {command.name}: is not started here: {instead}")
    parts = [
        part for part in parts_of_command(command.load(), command.fixed) if not _is_elsewhere(part, product_of(command))
    ]
    by_place = [part for part in parts if _is_by_place(part)]
    found = [_field(part, by_place.index(part) if part in by_place else None) for part in parts]
    return tuple(sorted(found, key=lambda one: (bool(one.word), PLACES.get(one.heading, PLACES[""]))))


def startable() -> dict[str, list[Command]]:
    """Group -> its commands that can be started, as `prism-jax --help` lists them."""
    found: dict[str, list[Command]] = {}
    for command in COMMANDS:
        if command.name not in NOT_STARTED:
            found.setdefault(command.group, []).append(command)
    return found


def command_named(name: str) -> Command:
    """The command of a name.

    Raises:
        DataError: there is none.
    """
    if name not in COMMANDS:
        raise DataError(f"command {printable(name)[:60]!r}: there is none")
    return COMMANDS.named(name)


def product_of(command: Command) -> str:
    """A name for the file that a command is called for; empty where that is its report."""
    if command.name.startswith("fit ") and command.name != "fit report":
        return f"{command.name.removeprefix('fit ')}.npz"
    return PRODUCTS.get(command.name, "")


def _is_elsewhere(part: OptionSpec, product: str) -> bool:
    return part.name in ELSEWHERE or (_writes(part) and not product)


def _writes(part: OptionSpec) -> bool:
    """Whether its value is a file or folder that is written."""
    return part.option.check in WRITING or "--output" in part.option.names.split()


def _is_by_place(part: OptionSpec) -> bool:
    return part.is_by_position and not part.option.names


def _field(part: OptionSpec, place: int | None) -> CommandField:
    names, pair, _ = part.option.names.partition("/")
    word = names.split(" ")[0] or f"--{part.name.replace('_', '-')}"
    kind = command_line_type(part.hint, part.option)
    how: Kind = "text"
    if get_origin(kind) is list or part.takes_many:
        how = "lines"
    elif kind is bool:
        how = "choice" if pair else "flag"
    elif kind in (int, float):
        how = "number"
    if place is not None:
        return CommandField(part, SUBJECT if place == 0 else part.name, "", how)
    return CommandField(part, word.lstrip("-"), word, how)


def words_of(command: Command, filled: Fields) -> list[str]:
    """The words of a command, as they are typed after `prism-jax`; what is not filled in is left out.

    Raises:
        DataError: a field that the command does not have, a value of several lines, or an argument that begins with a dash.
    """
    known = fields_of(command)
    names = {one.name for one in known}
    for name, values in filled.items():
        if name not in names and any(values):
            raise DataError(f"command {command.name}: has no option {printable(name)[:60]!r}")
    words = command.name.split()
    for one in known:
        for text in _texts(one, filled.get(one.name, ())):
            words += _typed(one, text)
    return words


def _texts(one: CommandField, values: Iterable[str]) -> list[str]:
    """Texts that were filled into a field, without what is empty.

    Raises:
        DataError: a value of several lines where one is taken.
    """
    lines = [line.strip() for value in values for line in value.splitlines() if line.strip()]
    if one.kind != "lines" and len(lines) > 1:
        raise DataError(f"{one.label}: one value is taken, not {len(lines)}")
    return lines


def _typed(one: CommandField, text: str) -> list[str]:
    if one.kind == "flag":
        return [one.word]
    if one.kind == "choice":
        if text not in one.choices:
            raise DataError(f"{one.label}: {printable(text)[:60]!r}, but it must be {' or '.join(one.choices)}")
        return [] if text == one.choices[0] else [text]
    if one.word:
        return [one.word, text]
    if text.startswith("-"):
        raise DataError(f"{one.label} {printable(text)[:60]}: begins with a dash, as options do. Write ./{text[:60]}")
    return [text]


def filled_with(command: Command, words: Sequence[str]) -> dict[str, list[str]]:
    """Fields filled with the words of a command; what is no field is left out.

    Args:
        words: as `words_of` makes them; options may have an equals sign.
    """
    known = fields_of(command)
    typed = {word: one for one in known for word in _words_for(one)}
    places = [one for one in known if not one.word]
    left = list(words[len(command.name.split()) :])
    found: dict[str, list[str]] = {}
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if (one := typed.get(name)) is not None:
            if one.kind == "flag":
                found[one.name] = ["on"]
            elif one.kind == "choice":
                found[one.name] = [name]
            elif equals or left:
                found.setdefault(one.name, []).append(value if equals else left.pop(0))
        elif not word.startswith("-") and places:
            found.setdefault(places[0].name, []).append(word)
            if places[0].kind != "lines":
                places.pop(0)
    return found


def _words_for(one: CommandField) -> Sequence[str]:
    if not one.word:
        return ()
    names = one.part.option.names
    return names.replace("/", " ").split(" ") if names else (one.word,)


def check_values(command: Command, filled: Fields) -> None:
    """Reads every value as the command will, without running it.

    Raises:
        PrismError: a value is not what it must be.
    """
    for one in fields_of(command):
        option, texts = one.part.option, _texts(one, filled.get(one.name, ()))
        if one.is_required and not texts:
            raise DataError(f"{one.label}: is needed. {one.part.help}")
        if not texts or not one.word:
            continue
        value = texts if one.kind == "lines" else texts[0]
        if option.parse is not None:
            option.parse(one.word, value)
        elif option.check is not None and not _writes(one.part):
            option.check(one.word, value)


def is_written(one: CommandField) -> bool:
    """Whether a field is the name of the file that the command makes."""
    return _writes(one.part)

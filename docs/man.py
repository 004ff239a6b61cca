"""Writes the man pages, one for each command, from what `--help` is made of: `python docs/man.py [FOLDER]` (`make docs` does).

A page is read with `man build/man/prism-jax-predict.1`, and found by name where its folder stands in MANPATH as man1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from inspect import Parameter, signature
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from prism_jax import __version__  # noqa: E402  (found through the line above)
from prism_jax.shell.catalogue import COMMANDS, GROUPS, Command  # noqa: E402
from prism_jax.shell.command import runner_of, tables_of  # noqa: E402

FOLDER = ROOT / "build" / "man"
ABOUT = "predict the distribution of the step time of a distributed training job"
EXIT_CODES = {
    "0": "Done.",
    "1": "Failed: a fit that failed its checks, a job that does not fit into memory, a full disk, a fault.",
    "2": "Wrong input: an option, a file, a job.",
    "130": "Interrupted.",
}


class Typed(NamedTuple):
    """An option or argument, as a page lists it.

    Attributes:
        heading: of the section.
        place: of the section among the others.
        names: as it is typed; none of an argument.
        value: name of the value; empty for a flag.
        help: sentence.
        is_needed: whether it must be given.
    """

    heading: str
    place: int
    names: tuple[str, ...]
    value: str
    help: str
    is_needed: bool


def roff(text: str) -> str:
    """`text` with the characters escaped that mean something to roff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


def options_of(command: Command) -> list[Typed]:
    """All that is typed after the name of a command, arguments first."""
    found = []
    for item in signature(runner_of(command.load(), command.fixed)).parameters.values():
        said = item.annotation.__metadata__[0]
        by_place = item.kind in (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL, Parameter.POSITIONAL_OR_KEYWORD)
        group = said.group[0]
        heading, place = (group, -1) if isinstance(group, str) else (group.name, group.sort_key)
        default = said.show_default(None) if callable(said.show_default) else ""
        is_flag = item.annotation.__origin__ is bool
        value = item.name.upper() if by_place else "" if is_flag else said.metavar or ""
        value += "..." if item.kind is Parameter.VAR_POSITIONAL else ""
        names = (*(said.name or ()), *(said.negative or ())) if not by_place else ()
        text = f"{said.help} Default: {default}." if default else said.help
        found.append(Typed(heading, place, names, value, text, item.default is Parameter.empty or bool(said.required)))
    return sorted(found, key=lambda one: one.place)


def page_of(command: Command) -> str:
    """The man page of a command."""
    name, options = f"prism-jax-{command.name.replace(' ', '-')}", options_of(command)
    arguments = [one.value if one.is_needed else f"[{one.value}]" for one in options if not one.names]
    needed = [f"{one.names[0]} {one.value}" for one in options if one.names and one.is_needed]
    lines = [*_head(name, command.help), ".SH SYNOPSIS", f".B {roff(f'prism-jax {command.name}')}"]
    lines += [roff(" ".join(("[OPTIONS]", *needed, *arguments)))]
    for heading in dict.fromkeys(one.heading for one in options):
        lines += [f'.SH "{heading.upper()}"']
        for one in options:
            if one.heading == heading:
                lines += [".TP", _typed(one), roff(one.help)]
    lines += _end(command.example)
    for title, columns in tables_of(command):
        lines += _list(f"COLUMNS OF {title.upper()}", columns.items())
    return "\n".join([*lines, *_list("EXIT STATUS", EXIT_CODES.items()), ".SH SEE ALSO", ".BR prism\\-jax (1)", ""])


def main_page() -> str:
    """The man page of the program: all commands in their groups."""
    lines = [*_head("prism-jax", ABOUT), ".SH SYNOPSIS", ".B prism\\-jax", "COMMAND [OPTIONS] [ARGUMENTS]"]
    for heading in dict.fromkeys(command.group for command in COMMANDS):
        own = ((command.name, command.help) for command in COMMANDS if command.group == heading)
        lines += _list(heading.upper(), own)
    lines += _end(COMMANDS.named("predict").example)
    for name, text in GROUPS.items():
        lines += [f'.SH "{name.upper()}"', roff(text)]
    see = ", ".join(f"prism\\-jax\\-{roff(command.name.replace(' ', '-'))}(1)" for command in COMMANDS)
    return "\n".join([*lines, *_list("EXIT STATUS", EXIT_CODES.items()), ".SH SEE ALSO", see, ""])


def _head(name: str, about: str) -> list[str]:
    title = f'.TH {roff(name.upper())} 1 "" "prism\\-jax {roff(__version__)}" "prism\\-jax"'
    return [title, ".ad l", ".SH NAME", f"{roff(name)} \\- {roff(about)}"]


def _typed(one: Typed) -> str:
    names = ", ".join(f"\\fB{roff(name)}\\fR" for name in one.names)
    return " ".join(filter(None, (names, one.value and f"\\fI{roff(one.value)}\\fR")))


def _list(heading: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f'.SH "{heading}"', *(line for name, said in rows for line in (".TP", f"\\fB{roff(name)}\\fR", roff(said)))]


def _end(example: str) -> list[str]:
    return [".SH EXAMPLE", ".nf", *map(roff, example.splitlines()), ".fi"] if example else []


def write(folder: Path = FOLDER) -> None:
    """Writes all pages into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prism-jax.1").write_text(main_page(), encoding="utf-8")
    for command in COMMANDS:
        file = folder / f"prism-jax-{command.name.replace(' ', '-')}.1"
        file.write_text(page_of(command), encoding="utf-8")


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:2]))

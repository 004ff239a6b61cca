"""Ends of help pages: an example that runs, and the columns of the tables that the command reads.

Columns are those that the reader itself looks for: an `Option` names where they are declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from itertools import chain
from textwrap import wrap
from typing import Any

from ..core.use_case import OptionSpec
from .catalogue import Command
from .command import parts_of_command

WIDTH = 78  # of the lines, in a terminal of 80 columns
MOST_ALIASES = 4  # of a column that are listed
Columns = Mapping[str, str]


def below_options(command: Command) -> str:
    """The end of the help page of `command`; empty where there is nothing to be said."""
    blocks = [example_of(command)] if command.example else []
    blocks += [_block(title, columns) for title, columns in tables_of(command)]
    return "\n\n".join(blocks)


def example_of(command: Command) -> str:
    """The command lines of an example, under a heading."""
    return "\n".join(["Example:", *(f"  {line}" for line in command.example.splitlines())])


def tables_of(command: Command) -> Iterator[tuple[str, Columns]]:
    """Tables that the command reads: title, and column -> kind of its values."""
    parts: Iterable[OptionSpec] = parts_of_command(command.load(), command.fixed)
    for title, place in dict.fromkeys(chain.from_iterable(part.option.columns for part in parts)):
        module, _, name = place.partition(":")
        declared = getattr(import_module(module, __package__), name)
        yield title, _about(declared(**command.fixed) if callable(declared) else declared)


def _about(declared: Any) -> Columns:
    if isinstance(declared, Mapping):
        return {name: said if isinstance(said, str) else also(name, said) for name, said in declared.items()}
    others = {column.name: also(column.name, getattr(column, "aliases", ())) for column in declared}
    return {column.name: "; ".join(filter(None, (column.about, others[column.name]))) for column in declared}


def also(name: str, names: Iterable[str]) -> str:
    """Names of a column other than the first of them."""
    others = [other for other in names if other != name]
    listed = ", ".join([*others[:MOST_ALIASES], *(["..."] if len(others) > MOST_ALIASES else [])])
    return f"also {listed}" if listed else ""


def _block(title: str, columns: Columns) -> str:
    wide = max(map(len, columns)) + 2
    lines = [f"Columns of {title}:"]
    for name, said in columns.items():
        first, *rest = wrap(said, WIDTH - 2 - wide) or [""]
        lines += [f"  {name:{wide}}{first}".rstrip(), *(" " * (2 + wide) + line for line in rest)]
    return "\n".join(lines)

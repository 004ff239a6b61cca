"""Head of a run: what a trainer says of its own job, as values by name, each with its line.

Logs, scripts and configurations give heads (`launch_files.heads_of_file`); readers of trainers make jobs of them
(`log_trainers`). What a script or a configuration leaves to its arguments or to the environment stands as a mark inside of a
text. A reader that looks such a value up is not told it, and the name is remembered, so that all that a job needs is asked for
once.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from .shell_values import OpenValue, OpenValues, is_open

MOST_NAMES = 5000  # of a run
LONGEST_VALUE = 400
UNSAID = ("None", "null", "")


class SaidValue(NamedTuple):
    """Value that a log states under a name.

    Attributes:
        text: as written, cut.
        line: number of the line, from 1.
        name: as written.
    """

    text: str
    line: int
    name: str = ""


def without_line(texts: Mapping[str, str], *, named: bool = True) -> dict[str, SaidValue]:
    """Values that stand on no line: defaults of a trainer, or what was given next to a file.

    Args:
        texts: by name.
        named: whether comments say the name.
    """
    return {name: SaidValue(text, 0, name if named else "") for name, text in texts.items()}


def plain_number(said: SaidValue | None) -> int | None:
    """The whole number that a value is; None where it is open or none."""
    text = "" if said is None else said.text.removesuffix(".0")
    return int(text) if text.isascii() and text.isdecimal() else None


def product_text(*said: SaidValue | None) -> str:
    """Product of the numbers that are said, or the marks of those that are open; empty where one is no number."""
    stated = [one for one in said if one is not None]
    numbers = [number for one in stated if (number := plain_number(one)) is not None]
    if len(numbers) == len(stated):
        return str(prod(numbers))
    return "".join(one.text for one in stated if is_open(one.text))


@dataclass
class Head:
    """Facts about the job of one run in a log.

    Attributes:
        trainer: who wrote it, as `said.BEGINS` and the arguments tell; empty: nobody that is known.
        first_line, last_line: of the run in the log; its steps are among them.
        arguments: of a block of arguments, by name.
        engine: configuration that DeepSpeed prints, by name.
        facts: what else is said, by the names of `said.SAID`.
        params: number of parameters by (tensor, pipeline) rank.
        hosts: names in front of lines (never written out).
        has_hosts: whether they stand in front of the arguments, so that they are hosts for sure.
        most: largest numbers of some kinds.
        timers: seconds of parts of steps, as the trainer times them, in the order of steps.
        source: what kind of file it is from, for messages.
        asked: names that a reader looked up.
        notes: other things to be known of the file.
        config: configuration of Hugging Face of the model, where a file of its own holds it.
        generation: of the device, where it is known: decides which kernels there are.
        opened: names that a reader looked up and whose value is open.
        open: open values of the file.
        undecided: words of a command line that may hold more arguments.
        missing: files that it builds on and that were not found, with the lines that name them.
    """

    trainer: str = ""
    first_line: int = 1
    last_line: int = 0
    arguments: dict[str, SaidValue] = field(default_factory=dict)
    engine: dict[str, SaidValue] = field(default_factory=dict)
    facts: dict[str, SaidValue] = field(default_factory=dict)
    params: dict[tuple[int, int], SaidValue] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    has_hosts: bool = False
    most: dict[str, float] = field(default_factory=dict)
    timers: dict[str, array[float]] = field(default_factory=dict)
    source: str = "log"
    asked: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    config: Mapping[str, Any] | None = None
    generation: str = ""
    opened: dict[str, SaidValue] = field(default_factory=dict)
    open: OpenValues = field(default_factory=OpenValues)
    undecided: list[OpenValue] = field(default_factory=list)
    missing: list[SaidValue] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a job was read."""
        return not (self.arguments or self.trainer)

    def said(self, *names: str) -> SaidValue | None:
        """The first of these names with a value among the arguments, or else the facts; `None` is no value, and an open one is
        not said, but remembered.
        """
        values = ((name, self.arguments.get(name) or self.facts.get(name)) for name in names)
        name, found = next(((name, one) for name, one in values if one and one.text not in UNSAID), ("", None))
        if found is not None and is_open(found.text):
            self.opened[name] = found
            self.asked.add(name)
            return None
        self.asked.update(names)
        return found

    def questions(self) -> list[str]:
        """Lists what the file leaves open and a job needs: names of variables and positions, each once, with its line."""
        own = [
            (one, f"--{name.replace('_', '-')}" if self.source == "script" and "." not in name else name)
            for name, said in ((name.removeprefix("training."), said) for name, said in self.opened.items())
            for one in self.open.inside(said.text)
        ]
        own += [(one, "more arguments") for one in self.undecided]
        found: dict[str, str] = {}
        for one, use in own:
            name = f"${one.name}" if re.fullmatch(r"\w+", one.name) else one.name
            found.setdefault(name, f"{name} (line {one.line}, for {use})")
        return list(found.values())

    def lacking(self) -> str:
        """Says which files it builds on were not found; empty: none."""
        names = ", ".join(f"{one.text} (line {one.line})" for one in self.missing)
        remedy = "--root DIR names a folder above them"
        return f"it builds on files that are not in its folder: {names}; {remedy}" if names else ""


def runs_of(heads: Iterable[Head]) -> Iterator[Head]:
    """Heads that say something of a job."""
    return (head for head in heads if not head.is_empty)

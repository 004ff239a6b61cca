"""Errors a user can cause, each with what is wrong, where, and the remedy.

Text from outside is shown so that nothing in it steers a terminal, hides a part, begins a line or fills the screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

MOST_LINE = 1000  # characters of a line of a message: what is longer quotes something that nobody reads
FIRST = 600  # of these from the beginning, where the place stands; the rest are from the end, where the remedy does
SAID = 50  # for what is said in place of the middle


MOST_LINES = 20  # of a message: who has more mistakes mends the first ones and looks again


def first_lines(lines: Sequence[str], n: int | None = None) -> list[str]:
    """The first lines of a message, and how many more there are; `n` of them in all, where `lines` has not all."""
    n = len(lines) if n is None else n
    return list(lines) if n <= MOST_LINES else [*lines[: MOST_LINES - 1], f"... and {n - MOST_LINES + 1:,} more"]


def printable(text: str) -> str:
    r"""`text` in one line, with characters that have no picture of their own spelt out: `\x1b`, `\n`, `\u202e`.

    Control characters, line ends, marks of writing direction, joiners, unassigned code points and halves of surrogate pairs
    are spelt; letters of all scripts, symbols and plain spaces stay. What is spelt already stays as it is.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _spelt(letter) for letter in text)


def printable_lines(text: str) -> str:
    """Replaces what cannot be printed in a text whose line ends are meant."""
    return "\n".join(printable(line) for line in text.split("\n"))


def in_one_line(error: Exception) -> str:
    """The message of an error as one line, its mistakes, which have a line each, told apart by semicolons."""
    *others, last = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()] or [""]
    return "; ".join([*(line.rstrip(".") for line in others), last])


def shortened(text: str) -> str:
    """`text` without what nobody reads: the middle of a line of more than `MOST_LINE` characters, lines beyond `MOST_LINES`."""
    if len(text) <= MOST_LINE and text.count("\n") < MOST_LINES:
        return text
    return "\n".join(_shortened_line(line) for line in first_lines(text.split("\n")))


def _shortened_line(line: str) -> str:
    if len(line) <= MOST_LINE:
        return line
    last = MOST_LINE - FIRST - SAID
    return f"{line[:FIRST]} ... ({len(line) - FIRST - last:,} characters) ... {line[-last:]}"


def _spelt(letter: str) -> str:
    return repr(letter)[1:-1]


FieldPath = tuple[str | int, ...]  # of a field: keys of mappings and indices of lists, outermost first


class Problem(NamedTuple):
    """One contradiction of a description: the field it is about, and what is wrong with its value.

    Attributes:
        field: name of the field, empty where no single field is to blame.
        text: value, constraint and remedy: "7, but it must be 0, 1, 2 or 3".
        is_missing: the field has no value yet; the text says that alone.
    """

    field: str
    text: str
    is_missing: bool = False

    def __str__(self) -> str:
        if self.is_missing:
            return f"{self.field} {self.text}"
        return f"{self.field} = {self.text}" if self.field else self.text


class PrismError(Exception):
    """Base of every error caused by input; the CLI prints it without a traceback and exits with 2.

    Attributes:
        path: the field it is about, seen from what was being read or made; empty where no single field is to blame.
        text: what is wrong, for readers who have been told the field; the whole message where there is none.
    """

    def __init__(self, message: str = "", path: FieldPath = (), text: str | None = None) -> None:
        super().__init__(shortened(message))
        self.path = path
        self.text = message if text is None else text

    @classmethod
    def of(cls, problem: Problem, owner: str = "") -> Self:
        """Error of a problem of `owner`: "device a100: n_sm = 0, but it must be finite and greater than 0"."""
        message = f"{owner}: {problem}" if owner else str(problem)
        return cls(message, (problem.field,), problem.text) if problem.field else cls(message)

    @classmethod
    def at(cls, path: FieldPath, text: str) -> Self:
        """Error at a field of a section: "variability.stalls[0].step_prob: 'x' is not a number"."""
        return cls(f"{in_brackets(path)}: {text}", path, text)


class SpecError(PrismError):
    """A model, cluster or variability description is missing something or contradicts itself."""


class PlanError(PrismError):
    """A parallel plan is impossible for its model or cluster."""


class DataError(PrismError):
    """A data file (trace, table, log) cannot be read; names the row and the field."""


class FitError(PrismError):
    """A fit to measurements cannot be made, or cannot be used for what is asked of it."""


class FailedFitError(FitError):
    """A fit that failed its checks was to be used; the message speaks to callers in Python.

    Attributes:
        why: what the checks found.
        file: where the fit is kept; empty where it is in memory.
    """

    def __init__(self, why: str, file: str = "") -> None:
        self.why, self.file = why, file
        super().__init__(f"{self._what('')}. Fit again, or pass force=True to use it all the same.")

    def for_command_line(self) -> str:
        """The message for people at a terminal."""
        return f"{self._what('--fit ')}. Fit again, or add --force to use it all the same."

    def _what(self, option: str) -> str:
        place = f"{option}{self.file}: " if self.file else ""
        return f"{place}this fit is not used, because it failed its checks ({self.why})"


class UnitError(SpecError):
    """A text is not a quantity of the kind that is asked for: no unit, an unknown unit, or a unit of something else."""


@dataclass(frozen=True)
class Mark:
    """Place where something was written.

    Attributes:
        source: the file as the user named it, or the option ("--set plan.tp=4").
        line, column: from 1; 0 where the whole source is meant.
        option: the field that an option sets; None in a file.
    """

    source: str
    line: int = 0
    column: int = 0
    option: FieldPath | None = None

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong in what a user wrote; its text is one line: where, which field, what, remedy.

    Attributes:
        text: what is wrong, and the remedy.
        mark: where; None where nothing was written.
        path: the field, from the top of the file; empty for the file as a whole.
    """

    text: str
    mark: Mark | None = None
    path: FieldPath = ()

    def __str__(self) -> str:
        if self.mark is None:
            return shortened(printable(self.text))
        told = not self.path or self.mark.option == self.path
        place = f"{self.mark}" if told else f"{self.mark} {dotted(self.path)}"
        return shortened(printable(f"{place}: {self.text}"))

    @property
    def place(self) -> tuple[bool, int, int]:
        """Sort key that lists mistakes in the order of the file; those of options come last."""
        mark = self.mark or Mark("")
        return mark.option is not None, mark.line, mark.column


class ConfigError(SpecError):
    """A file or an option is wrong; `mistakes` holds everything that is."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__(
            "\n".join(first_lines([str(mistake) for mistake in mistakes[: MOST_LINES + 1]], len(mistakes)))
        )
        self.mistakes = list(mistakes)

    @classmethod
    def in_file(cls, file: object, text: str) -> ConfigError:
        """One mistake that is about a file as a whole."""
        return cls([Mistake(text, Mark(str(file)))])

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[Mistake]]]:
        return ConfigError, (self.mistakes,)


def dotted(path: Sequence[str | int]) -> str:
    """`("cluster", "tiers", 0)` as `cluster.tiers.0`."""
    return ".".join([str(part) for part in path])


def in_brackets(path: Sequence[str | int]) -> str:
    """`("variability", "stalls", 0)` as `variability.stalls[0]`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path[1:]]
    return "".join([str(part) for part in path[:1]] + parts)

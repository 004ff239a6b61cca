"""Errors a user can cause, each with what is wrong, where, and the remedy."""

from typing import NamedTuple


class Problem(NamedTuple):
    """One contradiction of a description: the field it is about, and what is wrong with its value.

    Attributes:
        field: name of the field, empty where no single field is to blame.
        text: value, constraint and remedy: "7, but it must be 0, 1, 2 or 3".
    """

    field: str
    text: str

    def __str__(self) -> str:
        return f"{self.field} = {self.text}" if self.field else self.text


class PrismError(Exception):
    """Base of every error caused by input; the CLI prints it without a traceback and exits with 2."""


class SpecError(PrismError):
    """A model, cluster or variability description is missing something or contradicts itself."""


class PlanError(PrismError):
    """A parallel plan is impossible for its model or cluster."""


class DataError(PrismError):
    """A data file (trace, table, log) cannot be read; names the row and the field."""


class FitError(PrismError):
    """A fit to measurements cannot be made, or cannot be used for what is asked of it."""


class UnitError(SpecError):
    """A text is not a quantity of the kind that is asked for: no unit, an unknown unit, or a unit of something else."""


class ConfigError(SpecError):
    """A job file is wrong; `mistakes` holds one line per mistake: where, which field, what, remedy."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes

"""Errors a user can cause, each with what is wrong, where, and the remedy."""


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

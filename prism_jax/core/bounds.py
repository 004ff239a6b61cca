"""The largest descriptions that are simulated: counts and spreads beyond every cluster and model there is.

Whatever reads or makes a description refuses more at once, for the time and memory of a prediction grow with some of these counts
(layers, devices) and arithmetic ends somewhere for the others. Files, tables and Python meet the same bounds: they stand in the
descriptions themselves.
"""

from __future__ import annotations

from .errors import PrismError, Problem

MOST_COUNT = 2**63 - 1  # of whatever is counted
MOST_LAYERS = 10_000  # of a model, and pipeline stages; ten times what was ever trained
MOST_DEVICES = 2**24  # of a cluster and of every parallel degree
MOST_WIDTH = 2**24  # of a dimension of a model: hidden size, heads, experts, vocabulary
MOST_TOKENS = 2**32  # of a sequence
MOST_SAMPLES = 2**32  # of a step
MOST_ELEMENTS = 2**48  # of a bucket of gradients
MOST_CV = 10.0  # standard deviation over mean; beyond, no sample of thousands tells the mean
MOST_SLOWDOWN = 1000.0  # of a slow component over the others
MOST_STALL = 10_000.0  # mean length of a stall, in steps
MOST_STALLS = 64  # kinds of stalls
MOST_EXPONENT = 10.0
MOST_LIKENESS = 5.0  # standard deviation of a logarithm


def check_bounds(error: type[PrismError], owner: str, most: int, **values: int | None) -> None:
    """Raises `error` for the first of `values` above `most`; None is no value.

    Args:
        error: class of the error.
        owner: whose values they are, for the message: "model llama-3-8b"; may be empty.
    """
    for name, value in values.items():
        if value is not None and value > most:
            raise error.of(Problem(name, above(value, most)), owner)


def check_count(error: type[PrismError], owner: str, least: int, most: int, **values: int) -> None:
    """Raises `error` for the first of `values` that is no whole number between bounds."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise error(f"{owner}: {name} = {value!r}, but it must be a whole number, at least {least}")
        check_bounds(error, owner, most, **{name: value})


def above(value: float, most: int) -> str:
    """Text of a problem: `20,000, but it must be at most 10,000`; very long numbers are left out."""
    return f"{value:,}, but it must be at most {most:,}" if value < 1e30 else f"too large: it must be at most {most:,}"

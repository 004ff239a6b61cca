"""Axes: `plan.tp=1,2,4,8` as a name and its values, and the grid of all combinations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from ..core.errors import DataError

MOST_POINTS = 100_000
_OPEN, _CLOSE = "[{(", "]})"


@dataclass(frozen=True)
class Axis:
    """A field of the job file and the texts that it takes, in their order."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """One combination.

    Attributes:
        overrides: "section.field=value", one per axis and those that all points share.
        labels: field -> value of the axes alone.
    """

    overrides: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]


def axis_of(text: str, option: str = "--set") -> Axis:
    """An axis from "FIELD=V1,V2"; commas inside brackets or quotes belong to a value.

    Args:
        option: that the text was given to, for messages.

    Raises:
        DataError: no field, an empty value or one that stands twice.
    """
    field, equals, listed = text.partition("=")
    values = tuple(_values(listed))
    if not equals or not field.strip():
        raise DataError(f"{option} {text[:80]}: expected FIELD=V1,V2,..., for example {option} plan.tp=1,2,4,8")
    if not all(values):
        raise DataError(f"{option} {text[:80]}: an empty value. Write FIELD=V1,V2,... without blanks between commas.")
    if len(set(values)) < len(values):
        raise DataError(f"{option} {text[:80]}: a value stands twice. Name every value once.")
    return Axis(field.strip(), values)


def grid(
    texts: Sequence[str], more: Sequence[Axis] = (), option: str = "--set"
) -> tuple[tuple[Axis, ...], list[Point]]:
    """Axes with several values, and all combinations of values; the last axis runs fastest.

    Args:
        texts: "FIELD=V1,V2"; one value alone is shared by all points.
        more: axes in front of those.
        option: that the texts were given to, for messages.

    Raises:
        DataError: a field that stands twice, or too many points.
    """
    axes = [*more, *(axis_of(text, option) for text in texts)]
    fields = [axis.field for axis in axes]
    twice = next((field for field in fields if fields.count(field) > 1), None)
    if twice is not None:
        raise DataError(f"{twice} is set twice. Name all of its values in one option.")
    n_points = 1
    for axis in axes:
        n_points *= len(axis.values)
        if n_points > MOST_POINTS:
            raise DataError(f"the grid has more than {MOST_POINTS:,} points. Give fewer values.")
    varied = tuple(axis for axis in axes if len(axis.values) > 1)
    shared = tuple(f"{axis.field}={axis.values[0]}" for axis in axes if len(axis.values) == 1)
    points = []
    for values in product(*(axis.values for axis in varied)):
        labels = tuple((axis.field, value) for axis, value in zip(varied, values, strict=True))
        points.append(Point((*shared, *(f"{field}={value}" for field, value in labels)), labels))
    return varied, points


def sizes_of(text: str) -> tuple[int, ...]:
    """Numbers of GPUs: "8,64,512", or "8:65536" for all doublings from 8 up to 65,536.

    Raises:
        DataError: not a list or a range of counts.
    """
    first, colon, last = text.partition(":")
    try:
        if not colon:
            sizes = tuple(_count(item) for item in text.split(","))
        else:
            start, end = _count(first), _count(last)
            sizes = tuple(start << k for k in range(64) if start << k <= end)
    except ValueError:
        raise DataError(f"--gpus: {text[:80]!r} is no list of counts. Write 8,64,512 or 8:65536.") from None
    if not sizes or len(set(sizes)) < len(sizes):
        raise DataError(f"--gpus: {text[:80]!r} has no sizes, or one twice. Write 8,64,512 or 8:65536.")
    return tuple(sorted(sizes))


def _count(text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdigit()) or len(text) > 9 or int(text) < 1:
        raise ValueError(text)
    return int(text)


def _values(text: str) -> list[str]:
    """The text cut at commas that stand outside brackets and quotes."""
    found, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        depth += (letter in _OPEN) - (letter in _CLOSE) if not quote else 0
        if letter == "," and depth <= 0 and not quote:
            found.append("")
        else:
            found[-1] += letter
    return [value.strip() for value in found]

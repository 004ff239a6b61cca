"""Numbers and lists as people read them: an estimate to the digits that its error allows, a time in the unit that suits it.

Also counts with their noun, the ends of an interval, the first of many names; and numbers that reports keep for pictures: few of
many, with no more digits than a picture shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from .units import format_bytes, format_s

T = TypeVar("T")
DIGITS = 7  # significant, of numbers that are kept: float32
SMALLEST_PROB = 1e-4  # a law learnt from some hundred peaks says nothing of less
EIGHTHS = " ▏▎▍▌▋▊▉"
CONSTANT = "(constant)"  # of an estimate without an error: nothing varies


def with_error(value: float, error: float) -> tuple[str, str]:
    """An estimate and its error, both down to the first digit of the error; no error: four decimals of the value's scale.

    Example:
        >>> with_error(6.51025, 0.00054)
        ('6.5103', '0.0005')
    """
    digits = decimals(error if error > 0 else abs(value) / 1e3)
    return f"{value:.{digits}f}", f"{error:.{digits}f}"


def unit_of_time(seconds: float) -> tuple[float, str]:
    """Chooses the unit in which a time reads best, and how many of it are a second.

    Example:
        >>> unit_of_time(0.25)
        (1000.0, 'ms')
    """
    return next(
        ((scale, unit) for scale, unit in ((1.0, "s"), (1e3, "ms")) if abs(seconds) * scale >= 1.0), (1e6, "us")
    )


def time_with_error(value_s: float, error_s: float) -> str:
    """A time and its error in one unit, down to the first digit of the error.

    Example:
        >>> time_with_error(0.4021, 0.0021)
        '402 ± 2 ms'
        >>> time_with_error(0.4021, 0.0)
        '402.10 ms (constant)'
    """
    if error_s == 0.0:
        return f"{time_to(value_s, 1e-4 * abs(value_s))} {CONSTANT}"
    scale, unit = unit_of_time(max(abs(value_s), error_s))
    return "{} ± {} {}".format(*with_error(scale * value_s, scale * error_s), unit)


def value_with_error(value: float, error: float, unit: str) -> str:
    """An estimate and its error with `unit`; of seconds as `time_with_error`."""
    if unit == "s":
        return time_with_error(value, error)
    return f"{value:.5g} {unit} {CONSTANT}" if error == 0.0 else "{} ± {} {}".format(*with_error(value, error), unit)


def time_to(value_s: float, smallest_s: float) -> str:
    """A time in the unit in which it reads best, down to the size of `smallest_s`.

    Example:
        >>> time_to(0.40213, 0.0004)
        '402.1 ms'
    """
    scale, unit = unit_of_time(value_s)
    return f"{scale * value_s:.{decimals(scale * smallest_s)}f} {unit}"


def percent(share: float, *, sign: bool = False) -> str:
    """A share as a percentage with two significant digits, whole from 10% on.

    Example:
        >>> percent(0.0164, sign=True)
        '+1.6%'
    """
    value = 100.0 * share
    digits = 0 if abs(value) >= 9.95 or value == 0.0 else 1 if abs(value) >= 0.095 else 2
    return f"{value:{'+' if sign else ''}.{digits}f}%"


def times_to(values_s: Sequence[float], smallest_s: float) -> str:
    """Times in one unit, that of the first, down to the size of `smallest_s`: "5.3 to 10.8 s".

    Example:
        >>> times_to((0.0053, 0.0108), 0.0005)
        '5.3 to 10.8 ms'
    """
    scale, unit = unit_of_time(values_s[0])
    digits = decimals(scale * smallest_s)
    return f"{' to '.join(f'{scale * value:.{digits}f}' for value in values_s)} {unit}"


EXACT = 1e-4  # of an estimate: a smaller error is below its three digits


def duration(seconds: float, error: float | None = None, like_s: float | None = None) -> str:
    """Seconds as a person says them: "52.3 d", "7.4 h", "12 min", "2.5 ms"; with a standard error in the same unit.

    Args:
        like_s: seconds whose unit is taken, so that times of one line have one.

    Example:
        >>> duration(4_518_720.0), duration(4_518_720.0, 1e4), duration(4_518_720.0, 1.0)
        ('52.3 d', '52.3 ± 0.12 d', '52.3 d')
    """
    whole = seconds if like_s is None else like_s
    if 0.0 < abs(whole) < 1.0 and (error is None or error < 1.0):
        return format_s(seconds, 3) if error is None else time_with_error(seconds, error)
    unit, size = next((u, s) for u, s in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 0.0)) if whole >= 2 * s)
    scaled = seconds / (size or 1.0)
    text = f"{scaled:.3g}" if scaled < 1000 else f"{scaled:,.0f}"
    if error is None or error < EXACT * seconds:  # less than any digit of the text
        return f"{text} {unit}"
    return f"{text} ± {error / (size or 1.0):.2g} {unit}"


def amount(value: float) -> str:
    """A large number, such as money, with four significant digits and thousands separators.

    Example:
        >>> amount(10_358_211.7)
        '10,360,000'
    """
    rounded = float(f"{value:.4g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000.0 else f"{rounded:g}"


def decimals(smallest: float) -> int:
    """Decimals that show a number down to the size of `smallest`, 0-6."""
    return max(0, min(6, math.ceil(-math.log10(max(smallest, 1e-9)))))


def bar(share: float, width: int = 24) -> str:
    """A horizontal bar of `share` (0-1) of `width` characters, to an eighth of a character."""
    n_eighth = round(max(0.0, min(1.0, share)) * width * 8)
    whole, rest = divmod(n_eighth, 8)
    return ("█" * whole + (EIGHTHS[rest] if rest else "")).ljust(width)


def prob(value: float) -> str:
    """A probability as a percentage with two significant digits."""
    return f"{100 * value:.2g}%" if 0 < value < 0.995 else f"{100 * value:.0f}%"


def uncertain_memory(interval_bytes: tuple[float, float], not_fit_prob: float) -> str:
    """Interval of the peak of memory that would be measured, and the probability that it does not fit, in words."""
    low, high = (format_bytes(n_bytes, 3) for n_bytes in interval_bytes)
    return f"90% interval {low} to {high}, does not fit with probability {prob_from(not_fit_prob)}"


def prob_from(value: float, smallest: float = SMALLEST_PROB) -> str:
    """A probability as a percentage, or that it is below the smallest one that means something."""
    return prob(value) if value >= smallest else f"below {prob(smallest)}"


def within(ends: Sequence[float], text: Callable[[float], str]) -> str:
    """The ends of a 90% interval, each written by `text`.

    Example:
        >>> within((0.02, 0.031), percent)
        '(90%: 2.0% to 3.1%)'
    """
    return f"(90%: {' to '.join(map(text, ends))})"


def counted(n: float, what: str) -> str:
    """A number of things, with the noun in its plural where it is not one.

    Example:
        >>> counted(1, "gap"), counted(2_000, "micro-batch")
        ('1 gap', '2,000 micro-batches')
    """
    plural = "es" if what.endswith(("ch", "s", "x")) else "s"
    return f"{n:,} {what}{'' if n == 1 else plural}"


def some(texts: Sequence[str], most: int, between: str = ", ") -> str:
    """The first `most` texts, and how many more there are.

    Example:
        >>> some(["a", "b", "c"], 2)
        'a, b and 1 more'
    """
    rest = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return between.join(texts[:most]) + rest


def first_few(texts: Sequence[str], most: int) -> str:
    """The first `most` texts, with an ellipsis where there are more.

    Example:
        >>> first_few(["a", "b", "c"], 2)
        'a, b, ...'
    """
    return ", ".join(texts[:most]) + (", ..." if len(texts) > most else "")


def short_numbers(values: Iterable[float], digits: int = DIGITS) -> tuple[float, ...]:
    """Rounds numbers to significant digits.

    Example:
        >>> short_numbers([1.23456789, 2.0], 3)
        (1.23, 2.0)
    """
    return tuple(float(f"{value:.{digits}g}") for value in values)


def evenly(items: Sequence[T], most: int) -> list[T]:
    """Selects at most `most` items, evenly spaced, with the first and the last.

    Example:
        >>> evenly(range(10), 4)
        [0, 3, 6, 9]
    """
    n = min(most, len(items))
    apart = (len(items) - 1) / (n - 1) if n > 1 else 0.0
    return [items[at] for at in sorted({round(number * apart) for number in range(n)})]

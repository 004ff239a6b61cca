"""Names of columns in files: what they mean and which unit they carry.

"Kernel Name", "kernel_name" and "KERNEL.NAME" are one name. A unit stands in brackets ("clocks.sm [MHz]", "Step Time (s)") or as
a part of the name ("time_us_out_of_place", "dtMs").
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from .columns import TO_SECONDS, Column

_TIME = {
    **{unit: unit for unit in TO_SECONDS},
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("msec", "msecs", "millisecond", "milliseconds", "millis"), "ms"),
    **dict.fromkeys(("usec", "usecs", "microsecond", "microseconds", "micros", "µs", "μs"), "us"),
    **dict.fromkeys(("nsec", "nsecs", "nanosecond", "nanoseconds", "nanos"), "ns"),
}
_FREQUENCY = {"mhz": "mhz", "ghz": "ghz", "khz": "khz", "hz": "hz"}
_POWER = {"w": "w", "mw": "mw", "kw": "kw", "watt": "w", "watts": "w"}
_TEMPERATURE = {"c": "c", "degc": "c", "celsius": "c", "°c": "c"}
_BYTES = {
    **dict.fromkeys(("bytes", "byte", "b"), "b"),
    **{f"{prefix}{i}b": f"{prefix}{i}b" for prefix in "kmgt" for i in ("i", "")},
}
SPELLINGS = {"s": _TIME, "mhz": _FREQUENCY, "w": _POWER, "c": _TEMPERATURE, "bytes": _BYTES}
"""Suffix of a canonical name -> spelling of a unit in a file -> its key in `FACTORS`."""
_ANY_UNIT = frozenset(spelling for spellings in SPELLINGS.values() for spelling in spellings)

FACTORS = {
    "s": TO_SECONDS,
    "mhz": {"mhz": 1.0, "ghz": 1e3, "khz": 1e-3, "hz": 1e-6},
    "w": {"w": 1.0, "mw": 1e-3, "kw": 1e3},
    "c": {"c": 1.0},
    "bytes": {
        "b": 1.0,
        **{f"{prefix}b": 1000.0**power for power, prefix in enumerate("kmgt", start=1)},
        **{f"{prefix}ib": 1024.0**power for power, prefix in enumerate("kmgt", start=1)},
    },
}
"""Suffix of a canonical name -> unit -> what a value is multiplied by."""

_INSIDE = ("ms", "us", "ns")  # units that may stand inside a name; the others only at its end
_RATES = ("per", "gb", "mb", "kb", "tb", "gib", "mib", "gbit", "gbits")  # before "s": not a time
_BRACKETS = re.compile(r"[\[(]\s{0,9}([^\])]{1,20}?)\s{0,9}[\])]$")
_LONGEST_BRACKETS = 40


class Name(NamedTuple):
    """A column's name, understood.

    Attributes:
        plain: lower case, words joined by "_", without a unit in brackets.
        base: the same without its unit.
        unit: the unit, as in `FACTORS`; "" if there is none; the text in brackets if it is not known.
    """

    plain: str
    base: str
    unit: str


def family(column: Column) -> str:
    """The suffix that says which units a column may have; "" for a column without unit."""
    suffix = column.name.rpartition("_")[2]
    return suffix if suffix in FACTORS and not column.text and not column.name.endswith("_per_s") else ""


@functools.lru_cache(maxsize=100_000)
def understand(name: str, suffix: str) -> Name:
    """What a name says, for a column whose unit is of the family `suffix`."""
    spellings = SPELLINGS.get(suffix, {})
    name = name.rstrip()
    brackets = _BRACKETS.search(name, max(0, len(name) - _LONGEST_BRACKETS))
    text = name[: brackets.start()] if brackets else name
    words = _words(text)
    plain = "_".join(words)
    if brackets is None:
        return _worded(plain, spellings)
    unit = brackets[1].lower()
    if unit in _ANY_UNIT or "/" in unit or unit == "%":
        return Name(plain, plain, spellings.get(unit, brackets[1]))
    return _worded("_".join(_words(name)), spellings)  # what stands in brackets is no unit


def plain(name: str) -> str:
    """A name without regard to case, punctuation and a unit in brackets."""
    return understand(name, "").plain


def _words(text: str) -> list[str]:
    spaced = re.sub(r"([a-z])([A-Z])", r"\1_\2", text)
    return [word for word in re.split(r"[\W_]+", spaced.lower()) if word]


def _worded(plain: str, spellings: dict[str, str]) -> Name:
    words = plain.split("_")
    found = [
        index
        for index, word in enumerate(words)
        if word in spellings
        and (index == len(words) - 1 or word in _INSIDE)
        and not (spellings[word] == "s" and index > 0 and words[index - 1] in _RATES)
    ]
    if len({spellings[words[index]] for index in found}) != 1:
        return Name(plain, plain, "")
    base = "_".join(word for index, word in enumerate(words) if index not in found)
    return Name(plain, base, spellings[words[found[0]]])

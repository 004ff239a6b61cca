"""Columns of measurement files: what a model asks for, what names in files mean, and which column of a file is which.

A model's column has a canonical name, the names it goes by elsewhere, a unit, and what makes a value valid. "Kernel Name",
"kernel_name" and "KERNEL.NAME" are one name. A unit stands in brackets ("clocks.sm [MHz]", "Step Time (s)") or as a part of the
name ("time_us_out_of_place", "dtMs"). A person may say which column is which, units, and which rows are meant (`DataOptions`).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prism_jax.core.errors import DataError, UnitError
from prism_jax.core.registry import did_you_mean

TO_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True)
class ModelColumn:
    """One column of a model's input.

    Attributes:
        name: canonical name, with the SI unit as suffix where it has one ("duration_s").
        aliases: other names it is found under, best first; upper and lower case and punctuation do not matter. A column with a
            unit is found under every unit ("time" and "time_us" find time_ms). The canonical name comes before its aliases
            unless it stands among them, and unless the file has an alias that ends in `_key` or `_uuid`, which are made to tell
            things apart. An alias may end in a unit; a duration whose name carries no unit needs a `<alias>_unit` column or a
            declared unit.
        required: whether a file without it is refused. Rows without a value in it are dropped and counted.
        text: whether values are labels, not numbers.
        positive: whether zero and negative values are invalid (rows are dropped and counted).
        strict: whether a row that is invalid in it is refused by its number, instead of dropped and counted: where every row is
            an event, a row left out is a rate that is wrong.
        least: smallest valid value of a strict column.
        choices: texts that a strict column of labels may hold, in lower case; any if there are none.
        instant: whether values are points in time: dates with their zone, or seconds since 1970.
        not_before: name of the column of instants that it may not come before.
        each_counts: whether equal rows are things of their own, such as documents of one length, and none is a copy.
        longest_s: of a duration; what is longer stands for "did not finish" and is dropped. No kernel, message, step or log
            interval lasts five days.
    """

    name: str
    aliases: tuple[str, ...] = ()
    required: bool = False
    text: bool = False
    positive: bool = False
    strict: bool = False
    least: float = -math.inf
    choices: tuple[str, ...] = ()
    instant: bool = False
    not_before: str = ""
    longest_s: float = 5 * 86_400.0
    each_counts: bool = False

    @property
    def about(self) -> str:
        """Kind of its values, for people."""
        kind = "text" if self.text else "date or seconds since 1970" if self.instant else "number"
        of = f"one of {', '.join(self.choices)}" if self.choices else f"{kind} above 0" if self.positive else kind
        return f"required: {of}" if self.required else of

    @property
    def is_duration(self) -> bool:
        """Whether its values are seconds."""
        return self.name.endswith("_s") and not self.name.endswith("_per_s") and not self.text


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


def family(column: ModelColumn) -> str:
    """The suffix that says which units a column may have; "" for a column without unit."""
    suffix = column.name.rpartition("_")[2]
    return suffix if suffix in FACTORS and not column.text and not column.name.endswith("_per_s") else ""


@functools.lru_cache(maxsize=100_000)
def understand(name: str, suffix: str) -> Name:
    """Reads quantity, unit and words from a name, for a column whose unit is of the family `suffix`."""
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


@dataclass(frozen=True)
class DataOptions:
    """The options, with canonical names as keys where they are about columns of the model.

    Attributes:
        mapping: canonical name -> name in the file.
        units: canonical name -> unit, a key of `FACTORS`.
        where: name, canonical or of the file -> value of the rows that are kept.
    """

    mapping: Mapping[str, str]
    units: Mapping[str, str]
    where: Mapping[str, str]


def understand_options(
    columns: Sequence[ModelColumn], mapping: Mapping[str, str], units: Mapping[str, str], where: Mapping[str, str]
) -> DataOptions:
    """The options, checked as far as that can be done without a file.

    Raises:
        DataError: a mapping of something that is no column of the model, or of one column to two names.
        UnitError: an unknown unit, or a unit of something else.
    """
    canonical: dict[str, str] = {}
    for key, name in mapping.items():
        column = _column(key, columns, f"--map {key}={name}", others=[name])
        if canonical.setdefault(column.name, str(name)) != str(name):
            raise DataError(
                f"--map {key}={name}: {column.name} is mapped to {canonical[column.name]} already. Keep one."
            )
    return DataOptions(
        canonical, dict(_unit(key, unit, columns, canonical) for key, unit in units.items()), dict(where)
    )


def _column(key: str, columns: Sequence[ModelColumn], option: str, others: Iterable[str] = ()) -> ModelColumn:
    """The column that is called `key`, with or without its unit."""
    found = find_column(key, columns)
    if found is not None:
        return found
    if any(find_column(other, columns) for other in others):
        raise DataError(f"{option}: the name in the model comes first. Write --map {next(iter(others))}={key}.")
    raise DataError(f"{option}: the model has no column {key}{did_you_mean(key, [column.name for column in columns])}")


def find_column(key: str, columns: Sequence[ModelColumn]) -> ModelColumn | None:
    """The column whose canonical name is `key`, with or without its unit."""
    wanted = plain(str(key))
    for column in columns:
        if wanted in (column.name, understand(column.name, family(column)).base):
            return column
    return None


def _unit(key: str, unit: str, columns: Sequence[ModelColumn], mapping: Mapping[str, str]) -> tuple[str, str]:
    option = f"--unit {key}={unit}"
    of_file = {plain(name): canonical for canonical, name in mapping.items()}
    for column in columns:  # a unit may also be said of the file's name for a column
        for alias in column.aliases:
            of_file.setdefault(plain(alias), column.name)
    by_name = of_file.get(plain(str(key))) if find_column(key, columns) is None else None
    column = _column(by_name or key, columns, option)
    suffix = family(column)
    if not suffix:
        raise UnitError(f"{option}: {column.name} has no unit. Leave the option out.")
    known = SPELLINGS[suffix].get(str(unit).strip().lower())
    if known is None:
        raise UnitError(f"{option}: {unit} is not a unit of {column.name}; units are {', '.join(FACTORS[suffix])}")
    return column.name, known


COMPANIONS = ("run_id", "dup_of", "metric", "unit", "units")
"""Columns that say something about rows, whatever the model."""


def resolve(
    source: str, header: Sequence[str], columns: Sequence[ModelColumn], mapping: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Canonical name -> name in the file, of all columns that the file has; and what was decided on the way.

    Raises:
        DataError: a column of the mapping is not in the file, or stands there twice.
    """
    others: dict[str, list[str]] = {}
    found = {name: mapped(source, header, text, name) for name, text in mapping.items()}
    for first in (True, False):  # canonical names first, so that no alias takes another column's name
        for column in columns:
            if column.name in found:
                continue
            free = [name for name in header if name not in found.values()]
            names = _names(column, free)
            exact = column.name not in column.aliases and _matches(column, column.name, free)[:1]
            if first and (not exact or names[:1] != exact):
                continue
            if names:
                found[column.name] = names[0]
                others[column.name] = names[1:]
    for name in found.values():
        if header.count(name) > 1:
            raise DataError(
                f"{source}: column {name} is there {header.count(name)} times. Keep one, or rename the others."
            )
    return found, _choices(Path(source).name, found, others)


def _choices(source: str, found: Mapping[str, str], others: Mapping[str, Sequence[str]]) -> list[str]:
    """Notes on columns for which the file has other names that serve nothing else."""
    left = {name: [other for other in names if other not in found.values()] for name, names in others.items()}
    return [
        f"{source}: {name} is read from {found[name]}, not from {', '.join(names)}"
        for name, names in left.items()
        if names
    ]


def wanted(header: Sequence[str], columns: Sequence[ModelColumn], options: DataOptions) -> list[str]:
    """Names in the file of everything that could be needed of it, in the file's order."""
    keep = {name for column in columns for name in _names(column, header)}
    keep |= {name for text in options.mapping.values() for name in header if plain(name) == plain(text)}
    keep |= {name for text in options.where for name in header if plain(name) == plain(text)}
    keep |= {name for name in header if plain(name) in COMPANIONS}
    keep |= {name for name in header if plain(name).endswith(("_unit", "_units"))}
    return [name for name in header if name in keep]


def unit_column(name: str, column: ModelColumn, header: Iterable[str]) -> str | None:
    """The column that holds the unit of every value of column `name`: its own, that of the model's name, or one named "unit"."""
    base = understand(column.name, family(column)).base
    by_name = {plain(other): other for other in header if other != name}
    sought = [f"{of}_unit{s}" for of in (plain(name), base) for s in ("", "s")] + ["unit", "units"]
    return next((by_name[other] for other in sought if other in by_name), None)


def mapped(source: str, header: Sequence[str], text: str, what: str) -> str:
    """The column of the file that a person calls `text`.

    Raises:
        DataError: there is none.
    """
    exact = [name for name in header if name == text] or [name for name in header if plain(name) == plain(text)]
    if not exact:
        raise DataError(f"{source}: no column {text} for {what}{did_you_mean(text, shown(header))}")
    return exact[0]


def where_column(
    header: Sequence[str], columns: Sequence[ModelColumn], found: Mapping[str, str], text: str
) -> str | None:
    """The column of the file that a condition on `text` is about: a canonical name, or a name of the file."""
    column = find_column(text, columns)
    if column is not None and column.name in found:
        return found[column.name]
    return next((name for name in header if name == text), None) or next(
        (name for name in header if plain(name) == plain(text)), None
    )


def shown(header: Sequence[str], most: int = 40) -> list[str]:
    """Names for a message."""
    return [name[:60] for name in header[:most]] + (["..."] if len(header) > most else [])


def _names(column: ModelColumn, header: Sequence[str]) -> list[str]:
    """Names in the file that may be the column, best first."""
    base = understand(column.name, family(column)).base
    made_to_tell_apart = [alias for alias in column.aliases if plain(alias).endswith(("_key", "_uuid"))]
    own = [] if column.name in column.aliases else [column.name, base]
    candidates = [*made_to_tell_apart, *own, *column.aliases, *([] if own else [base])]
    return list(dict.fromkeys(name for candidate in candidates for name in _matches(column, candidate, header)))


def _matches(column: ModelColumn, candidate: str, header: Sequence[str]) -> list[str]:
    """Names in the file that `candidate` finds: the same name, or the same with another unit."""
    suffix = family(column)
    sought = understand(candidate, suffix)
    same, other_unit = [], []
    for name in filter(plain, header):  # a column without a name is none of ours
        own = understand(name, suffix)
        if column.text and own.plain == "time" and understand(name, "s").unit in ("ms", "us", "ns"):
            continue  # "Time (ms)" is how long something took, and no point in time
        if own.plain == sought.plain and (own.unit in SPELLINGS.get(suffix, {}).values() or not own.unit or not suffix):
            same.append(name)
        elif suffix and own.base == sought.base and own.unit in SPELLINGS[suffix].values():
            other_unit.append(name)
    return sorted(same, key=lambda name: name != candidate) + other_unit

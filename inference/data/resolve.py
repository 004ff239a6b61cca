"""Which column of a file is which column of the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from prism_jax.errors import DataError
from prism_jax.hints import did_you_mean

from .columns import Column
from .names import SPELLINGS, family, plain, understand
from .options import Options, find_column

COMPANIONS = ("run_id", "dup_of", "metric", "unit", "units")
"""Columns that say something about rows, whatever the model."""


def resolve(
    source: str, header: Sequence[str], columns: Sequence[Column], mapping: Mapping[str, str]
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


def wanted(source: str, header: Sequence[str], columns: Sequence[Column], options: Options) -> list[str]:
    """Names in the file of everything that could be needed of it, in the file's order."""
    keep = {name for column in columns for name in _names(column, header)}
    keep |= {name for text in options.mapping.values() for name in header if plain(name) == plain(text)}
    keep |= {name for text in options.where for name in header if plain(name) == plain(text)}
    keep |= {name for name in header if plain(name) in COMPANIONS}
    keep |= {name for name in header if plain(name).endswith(("_unit", "_units"))}
    return [name for name in header if name in keep]


def unit_column(name: str, column: Column, header: Iterable[str]) -> str | None:
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


def where_column(header: Sequence[str], columns: Sequence[Column], found: Mapping[str, str], text: str) -> str | None:
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


def _names(column: Column, header: Sequence[str]) -> list[str]:
    """Names in the file that may be the column, best first."""
    base = understand(column.name, family(column)).base
    made_to_tell_apart = [alias for alias in column.aliases if plain(alias).endswith(("_key", "_uuid"))]
    own = [] if column.name in column.aliases else [column.name, base]
    candidates = [*made_to_tell_apart, *own, *column.aliases, *([] if own else [base])]
    return list(dict.fromkeys(name for candidate in candidates for name in _matches(column, candidate, header)))


def _matches(column: Column, candidate: str, header: Sequence[str]) -> list[str]:
    """Names in the file that `candidate` finds: the same name, or the same with another unit."""
    suffix = family(column)
    sought = understand(candidate, suffix)
    same, other_unit = [], []
    for name in filter(plain, header):  # a column without a name is none of ours
        own = understand(name, suffix)
        if own.plain == sought.plain and (own.unit in SPELLINGS.get(suffix, {}).values() or not own.unit or not suffix):
            same.append(name)
        elif suffix and own.base == sought.base and own.unit in SPELLINGS[suffix].values():
            other_unit.append(name)
    return sorted(same, key=lambda name: name != candidate) + other_unit

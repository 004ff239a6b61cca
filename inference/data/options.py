"""What a person says about measurement files: which column is which, units, and which rows are meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prism_jax.errors import DataError, UnitError
from prism_jax.hints import did_you_mean

from .columns import Column
from .names import FACTORS, SPELLINGS, family, plain, understand


@dataclass(frozen=True)
class Options:
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
    columns: Sequence[Column], mapping: Mapping[str, str], units: Mapping[str, str], where: Mapping[str, str]
) -> Options:
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
    return Options(canonical, dict(_unit(key, unit, columns, canonical) for key, unit in units.items()), dict(where))


def _column(key: str, columns: Sequence[Column], option: str, others: Iterable[str] = ()) -> Column:
    """The column that is called `key`, with or without its unit."""
    found = find_column(key, columns)
    if found is not None:
        return found
    if any(find_column(other, columns) for other in others):
        raise DataError(f"{option}: the name in the model comes first. Write --map {next(iter(others))}={key}.")
    raise DataError(f"{option}: the model has no column {key}{did_you_mean(key, [column.name for column in columns])}")


def find_column(key: str, columns: Sequence[Column]) -> Column | None:
    """The column whose canonical name is `key`, with or without its unit."""
    wanted = plain(str(key))
    for column in columns:
        if wanted in (column.name, understand(column.name, family(column)).base):
            return column
    return None


def _unit(key: str, unit: str, columns: Sequence[Column], mapping: Mapping[str, str]) -> tuple[str, str]:
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

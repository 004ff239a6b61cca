"""Units of columns: from the name, from a column of units, declared, or from the kind of file; otherwise refused."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prism_jax.errors import UnitError

from .columns import TO_SECONDS, Column
from .formats.raw_table import RawTable, column_of
from .names import FACTORS, SPELLINGS, family, plain, understand
from .options import Options
from .resolve import unit_column


class Factor(NamedTuple):
    """What values are multiplied by.

    Attributes:
        value: one factor, or one per row; NaN for a row whose unit is not known.
        said_by: where the unit is from.
        note: what was assumed; "" if nothing.
    """

    value: float | NDArray[np.float64]
    said_by: str
    note: str = ""


def factor(table: RawTable, column: Column, name: str, options: Options) -> Factor:
    """What the values of column `name` of a file are multiplied by, to be in the unit of the model's column.

    Raises:
        UnitError: a duration of unknown unit, or a declared unit that the file contradicts.
    """
    suffix = family(column)
    if not suffix or table.in_si:
        return Factor(1.0, "")
    in_name = understand(name, suffix).unit or table.units.get(name, "")
    declared = options.units.get(column.name, "")
    if in_name:
        if declared and declared != in_name:
            raise UnitError(
                f"{table.source}: {name} is in {in_name}, but --unit says {declared} for {column.name}. Leave --unit out, "
                "or rename the column."
            )
        return Factor(FACTORS[suffix][in_name], name)
    rows = _per_row(table, column, name, declared)
    if rows is not None:
        return rows
    if declared:
        return Factor(FACTORS[suffix][declared], "--unit")
    if not column.is_duration:
        return Factor(1.0, "")
    if table.assumed_unit:
        note = f"{table.name}: {name} carries no unit; {table.assumed_unit} is assumed, as in exports of profilers"
        return Factor(TO_SECONDS[table.assumed_unit], "kind of file", note)
    raise UnitError(
        f"{table.source}: the unit of {name} is not known. Say it with --unit {understand(column.name, 's').base}=ms (or s, us, "
        f"ns), in the column's name ({name}_ms), or in a column {name}_unit."
    )


def _per_row(table: RawTable, column: Column, name: str, declared: str) -> Factor | None:
    """Factors from a column of units, or from the name of the metric that a row holds."""
    suffix = family(column)
    of_column = unit_column(name, column, table.frame.columns)
    if of_column is not None:
        units = column_of(table.frame, of_column)
        texts = {text: SPELLINGS[suffix].get(str(text).strip().lower()) for text in units.dropna().unique()}
        if plain(of_column) in ("unit", "units") and not any(texts.values()):
            return None  # of something else
        if declared and any(unit not in (None, declared) for unit in texts.values()):
            raise UnitError(
                f"{table.source}: {of_column} says other units than --unit {column.name}={declared}. Leave one out."
            )
        return Factor(_look_up(units, texts, FACTORS[suffix], declared), of_column)
    metric = next((other for other in table.frame.columns if plain(other) == "metric" and other != name), None)
    if metric is None or suffix != "s" or declared:
        return None
    names = column_of(table.frame, metric)
    texts = {text: understand(str(text), "s").unit for text in names.dropna().unique()}
    texts = {text: unit if unit in TO_SECONDS else None for text, unit in texts.items()}
    return Factor(_look_up(names, texts, TO_SECONDS, ""), metric) if any(texts.values()) else None


def _look_up(
    texts: pd.Series, units: dict[object, str | None], factors: dict[str, float], blank: str
) -> NDArray[np.float64]:
    known = {text: factors[unit] if unit else np.nan for text, unit in units.items()}
    codes, uniques = pd.factorize(texts)
    per_code = np.array([known[text] for text in uniques] + [factors[blank] if blank else np.nan], np.float64)
    return per_code[codes]  # -1, the last, is blank

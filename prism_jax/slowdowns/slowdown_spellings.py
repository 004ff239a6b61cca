"""Spellings of tables of slowdowns: names of columns, factors, GPUs and hosts as people write them.

A factor is called slowdown, factor or slow_factor, in any case, and may be a percentage ("20%", or 20 in a column `slowdown_pct`,
is 1.2), a multiple ("1.2x"), or have a decimal comma. A GPU is "cuda:4" or "GPU4" where others write 4. A host is the same with
its domain and without.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..core.kernels import KERNEL_CLASSES, LINKS
from ..tables.csv_rows import CsvRow, CsvTable, number_of
from .measured_speeds import words_of

SLOWDOWN, PERCENT = "slowdown", "slowdown_percent"
RAIL = "rail"  # the port of one GPU, where "nic" is those of a node
_FACTORS = frozenset(
    ("slowdown", "slowdown_factor", "slow_factor", "factor", "slow_down", "slowdown_ratio", "multiplier")
)
_PERCENTS = frozenset(("slowdown_pct", "slowdown_percent", "slowdown_percentage", "percent_slower", "pct_slower"))
_GPU = re.compile(r"(?:(?:cuda|gpu|device|hip|rocm|nvidia|rank)[ :_#-]?\s?)?([0-9]{1,30})", re.IGNORECASE)
_ADDRESS = re.compile(r"[0-9.]+")
_COMMA = re.compile(r"[0-9]{1,2},[0-9]{1,12}")
_FIRST_LINES = 100


def without_comments(text: str) -> str:
    """The text with empty lines in the place of comments (#) in front of its header."""
    lines = text.split("\n", _FIRST_LINES)
    for at, line in enumerate(lines[:_FIRST_LINES]):
        if line.strip() and not line.lstrip("\ufeff \t").startswith("#"):
            break
        lines[at] = ""
    return "\n".join(lines)


def as_columns(text: str) -> str:
    """A table whose columns stand apart by spaces alone, with commas; any other text as it is."""
    header = text.lstrip().partition("\n")[0]
    if len(header.split()) < 2 or any(mark in header for mark in ',;|\t"'):
        return text
    return "\n".join(",".join(line.split()) for line in text.split("\n"))


def column_of(name: str) -> str:
    """The name of a column of factors as it is read; any other name as it stands."""
    plain = "_".join(words_of(name))
    if plain in _PERCENTS or (plain in _FACTORS and "%" in name):
        return PERCENT
    if plain in _FACTORS:
        return SLOWDOWN
    return plain if plain in (*KERNEL_CLASSES.names, *LINKS, RAIL) else name


def factor_of(text: str, column: str) -> str:
    """The factor in a cell as a plain number; other texts stay."""
    value = text.strip()
    if value.endswith("%") or column == PERCENT:
        number = number_of(value.removesuffix("%").strip())
        return text if number != number else f"{1.0 + number / 100.0:.12g}"
    if _COMMA.fullmatch(value):
        return value.replace(",", ".")
    return value[:-1].strip() if value[-1:] in ("x", "X", "×") else text


def spelled_rows(table: CsvTable, gpu: str) -> Iterator[CsvRow]:
    """Rows with the index of the GPU alone in column `gpu`, if there is one."""
    for row in table.rows():
        found = _GPU.fullmatch(row.fields[gpu].strip()) if gpu else None
        yield row if found is None else row._replace(fields={**row.fields, gpu: found[1]})


class ListedHosts:
    """Finds the host of a list that a name means: itself, in another case, or with its domain or without."""

    def __init__(self, names: Sequence[str]) -> None:
        self._exact = frozenset(names)
        self._alike: dict[str, str] = {}
        for key in (str.lower, _short):
            for name in names:
                other = self._alike.setdefault(key(name), name)
                if other != name:
                    self._alike[key(name)] = ""  # two hosts are called so: nothing tells which

    def named(self, name: str) -> str:
        """The listed name, or the name as it stands."""
        if name in self._exact:
            return name
        return self._alike.get(name.lower()) or self._alike.get(_short(name)) or name


def _short(name: str) -> str:
    return name.lower() if _ADDRESS.fullmatch(name) else name.lower().partition(".")[0]

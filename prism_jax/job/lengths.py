"""Lengths of documents from a family, or from a table of a corpus, which a job file may name in place of a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.bounds import MOST_TOKENS
from ..core.errors import DataError, PlanError, SpecError
from ..core.lazy import np, special
from ..plan.packing import N_BIN, Lengths, binned
from ..tables.csv_rows import CsvTable
from ..variability.family_registry import family_from_dict

N_OF_FAMILY = 2048  # equally likely lengths that stand for a family


def lengths_of(written: Any, folder: Path = Path()) -> Any:
    """Lengths of a family or of a file, whose path is relative to `folder`; all else as it is, for `parse_lengths`."""
    if isinstance(written, str | Path):
        return read_lengths(folder / written)
    return lengths_of_family(written) if isinstance(written, Mapping) and "kind" in written else written


def lengths_of_family(written: Mapping[str, Any]) -> Lengths:
    """Equally likely lengths of a family of mean one times `mean` tokens: {kind: log_normal, cv: 1.2, mean: 700}.

    Raises:
        PlanError: no such family, or no mean.
    """
    mean = written.get("mean")
    if isinstance(mean, bool) or not isinstance(mean, int | float) or not 1 <= mean <= MOST_TOKENS:
        raise PlanError(
            f"of a family need its mean, 1 to {MOST_TOKENS:,} tokens: {{kind: log_normal, cv: 1.2, mean: 700}}"
        )
    try:
        family = family_from_dict(
            {name: value for name, value in written.items() if name != "mean"}, ("data", "lengths")
        )
    except SpecError as error:
        raise PlanError(error.text) from None
    factors = family.ppf_normal(special.ndtri((np.arange(N_OF_FAMILY) + 0.5) / N_OF_FAMILY))
    tokens = np.clip(np.rint(mean * factors), 1, MOST_TOKENS).astype(int)
    stated = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in written.items())
    return Lengths(tuple(sorted(Counter(tokens.tolist()).items())), stated)


def read_lengths(place: str | Path) -> Lengths:
    """Lengths of the documents of a table, a row each, in CSV or parquet: `corpus.parquet:n_tokens`, or its only column.

    Raises:
        PlanError: the file cannot be read, has no such column, or a length is no whole number of tokens.
    """
    from ..tables.parquet_text import read_table_text  # pyarrow takes 0.2 s to import

    file, _, column = str(place).partition(":")
    found: Counter[int] = Counter()
    try:
        table = CsvTable(read_table_text(Path(file), "a table of documents in CSV or parquet"), file)
        name = column or (table.columns[0] if len(table.columns) == 1 else "")
        if name not in table.columns:
            raise PlanError(f"{file} has columns {', '.join(table.columns)}. Name one: {file}:{table.columns[0]}")
        for row in table.rows():
            text = row.fields[name]
            if not (text.isdecimal() and len(text) < 12 and 1 <= int(text) <= MOST_TOKENS):
                raise PlanError(
                    f"{table.place(row.line)}: {name} is {text[:30]!r}, but a document has 1 to {MOST_TOKENS:,} tokens"
                )
            found[int(text)] += 1
    except DataError as error:
        raise PlanError(str(error)) from None
    if not found:
        raise PlanError(f"{file}: no documents")
    tokens, count = (np.array(part) for part in zip(*sorted(found.items()), strict=True))
    return binned(tokens, count.astype(float)) if len(found) > N_BIN else Lengths(tuple(sorted(found.items())))

"""Tables that a job file names: lengths of the documents of a corpus (or a family of lengths), and tokens of experts.

Tokens of experts by step and layer, as trainers log them, which `fit routing` reads, too: long form has a row per expert, wide
form a column per expert next to step and layer, under its number:

    step, layer, expert, tokens                       step, layer, 0, 1, 2 (or expert_0, expert_1, expert_2; or e0, e1, e2)

Steps, layers and experts stand in the order of their numbers, or of their first row where they are no numbers.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from ..core.arrays import Floats, Positions
from ..core.bounds import MOST_TOKENS
from ..core.errors import DataError, PlanError, SpecError
from ..core.lazy import np, special
from ..core.registry import did_you_mean
from ..plan.packing import N_BIN, Lengths, binned
from ..tables.csv_rows import CsvTable
from ..tables.document import short
from ..variability.family_registry import family_from_dict
from ..workload.transformer.routing import ExpertCounts

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


NAMES = {
    "expert": ("expert_id", "expert_index"),
    "tokens": ("n_tokens", "count", "tokens_per_expert", "load"),
    "layer": ("layer_id", "block"),
    "step": ("iteration", "micro_batch"),
}
"""Columns of the long form, and the other names that they go by; step and layer may be absent."""
TAKES = "a table of step, layer, expert and tokens, in CSV or parquet"
MOST_CELLS = 4_000_000  # steps times layers times experts
MOST_ROWS = 1_000_000
WIDE = re.compile(r"(?:expert|e)?[_ ]?(\d{1,5})")


def expert_columns(names: Sequence[str]) -> dict[str, str]:
    """Columns of the wide form, and the experts that they are of; none where there is a column of experts, or one expert."""
    found = {name: match[1] for name in names if (match := WIDE.fullmatch(name.lower()))}
    return found if len(found) > 1 and "expert" not in map(_canonical, names) else {}


def _canonical(name: str) -> str:
    plain = name.strip().lower().replace(" ", "_")
    return next((own for own, others in NAMES.items() if plain in (own, *others)), "")


@dataclass(frozen=True)
class TokensByGroup:
    """Tokens of experts in groups, each a step of a layer that has any; by layer, then by step.

    Attributes:
        layers, steps, experts: names, in their order.
        layer, step: of a group, their places, [group].
        tokens: [group, expert].
    """

    layers: tuple[str, ...]
    steps: tuple[str, ...]
    experts: tuple[str, ...]
    layer: Positions
    step: Positions
    tokens: Floats


Labels = tuple[Sequence[str], Positions]
"""Distinct names, and the place of every row among them."""


def tokens_by_group(step: Labels, layer: Labels, expert: Labels, tokens: Floats) -> TokensByGroup:
    """Tokens [row] summed over rows of the same step, layer and expert.

    Raises:
        DataError: one expert, no tokens, or more steps, layers and experts than fit.
    """
    (steps, of_step), (layers, of_layer), (experts, of_expert) = (_ordered(*one) for one in (step, layer, expert))
    if len(experts) < 2:
        only = ", ".join(map(short, experts))
        raise DataError(f"all rows are of one expert, {only}. Is the column of experts what it should be?")
    groups, group = np.unique(of_layer * len(steps) + of_step, return_inverse=True)
    if len(groups) * len(experts) > MOST_CELLS:
        raise DataError(f"more than {MOST_CELLS:,} counts: {len(experts)} experts in {len(groups):,} layers and steps")
    total = np.zeros((len(groups), len(experts)))
    np.add.at(total, (group, of_expert), tokens)
    kept = total.sum(axis=1) > 0.0
    if not kept.any():
        raise DataError("no expert has any tokens. Is the column of tokens what it should be?")
    at_layer, at_step = np.divmod(groups[kept], len(steps))
    return TokensByGroup(layers, steps, experts, at_layer, at_step, total[kept])


def _ordered(names: Sequence[str], place: Positions) -> tuple[tuple[str, ...], Positions]:
    """Names in the order of their numbers, if all are numbers, and places among those."""
    try:
        order = np.argsort([float(name) for name in names], kind="stable")
    except ValueError:
        order = np.arange(len(names))
    return tuple(str(names[at]) for at in order.tolist()), np.argsort(order)[place]


def counts_of(written: Any, folder: Path = Path()) -> ExpertCounts:
    """Counts of a file whose path is relative to `folder`.

    Raises:
        SpecError: no file is named, or it cannot be used.
    """
    if isinstance(written, ExpertCounts):
        return written
    if not isinstance(written, str | Path):
        raise SpecError(f"must be {TAKES}, named by its file")
    return read_counts(folder / written)


def read_counts(file: str | Path) -> ExpertCounts:
    """Reads the counts of a table.

    Raises:
        SpecError: the file cannot be read, a number is none, or a step lacks a layer.
    """
    from ..tables.parquet_text import read_table_text  # pyarrow takes 0.2 s to import

    try:
        table = CsvTable(read_table_text(Path(file), TAKES), str(file), MOST_ROWS)
        found = tokens_by_group(*_rows(table))
    except DataError as error:
        raise SpecError(str(error) if str(file) in str(error) else f"{file}: {error}") from None
    n_step, n_layer = (len(np.unique(own)) for own in (found.step, found.layer))
    if len(found.tokens) != n_step * n_layer:
        text = f"{len(found.tokens):,} of {n_step * n_layer:,} steps and layers have tokens"
        raise SpecError(f"{file}: {text}. Leave steps out in which a layer has none.")
    return ExpertCounts(np.swapaxes(found.tokens.reshape(n_layer, n_step, -1), 0, 1).copy(), str(file))


def _rows(table: CsvTable) -> tuple[Labels, Labels, Labels, Floats]:
    """Labels and tokens of all counts of a table."""
    wide, column = expert_columns(table.columns), {_canonical(name): name for name in table.columns}
    for name in () if wide else ("expert", "tokens"):
        if name not in column:
            hint = did_you_mean(name, table.columns, "")
            raise DataError(f"{table.place(1)}: no column {name}{hint}. Give {TAKES}, or a column per expert.")
    seen: dict[str, dict[str, int]] = {"step": {}, "layer": {}, "expert": {}}
    places, tokens = {name: array("l") for name in seen}, array("d")
    for row in table.rows():
        for expert, text in _cells(row.fields, wide, column):
            for name, known in seen.items():
                label = expert if name == "expert" else row.fields.get(column.get(name, ""), "")
                places[name].append(known.setdefault(label, len(known)))
            tokens.append(_number(text, table, row.line))
        if len(tokens) > MOST_CELLS:
            raise DataError(f"{table.name}: more than {MOST_CELLS:,} counts. Leave steps out.")
    if not tokens:
        raise DataError(f"{table.name}: no rows")
    step, layer, expert = ((list(known), np.array(places[name], np.int64)) for name, known in seen.items())
    return step, layer, expert, np.array(tokens)


def _cells(fields: Mapping[str, str], wide: Mapping[str, str], column: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Experts of a row, and their tokens."""
    if wide:
        yield from ((expert, fields[name]) for name, expert in wide.items())
    else:
        yield fields[column["expert"]], fields[column["tokens"]]


def _number(text: str, table: CsvTable, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (isfinite(value) and 0.0 <= value <= 1e15):
        raise DataError(f"{table.place(line)}: {short(text)} is no number of tokens")
    return value

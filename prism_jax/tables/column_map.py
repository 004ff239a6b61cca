"""Maps columns of a table to fields: by common names and units, or as a person says (`--map COLUMN=FIELD`, either way)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, NamedTuple, TypeAlias

from ..core.errors import DataError
from ..core.registry import did_you_mean
from ..core.use_case import Option
from .csv_rows import SECONDS


def pairs_of(option: str, texts: Sequence[str]) -> dict[str, str]:
    """{"duration": "time_ms"} of ["duration=time_ms"].

    Raises:
        DataError: a text is not that.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not (equals and name.strip() and value.strip()):
            raise DataError(f"{option} {text}: write COLUMN=VALUE, such as {option} duration=time_ms")
        found[name.strip()] = value.strip()
    return found


ColumnMap: TypeAlias = Annotated[
    Mapping[str, str] | None,
    Option(
        "--map",
        "COLUMN=FIELD",
        parse=pairs_of,
        is_repeated=True,
        key=None,
        help="Say which column of the table is which field, where its name does not; may be repeated.",
    ),
]


def columns_said(
    names: Collection[str], said: Mapping[str, str], fields: Collection[str], place: str
) -> dict[str, str]:
    """Field -> column, as a person has said it: COLUMN=FIELD or FIELD=COLUMN.

    Args:
        names: columns of the table.
        said: the pairs.
        fields: what a column can be.
        place: for messages.

    Raises:
        DataError: neither side is a field, there is no such column, or a field is said twice.
    """
    found: dict[str, str] = {}
    for left, right in said.items():
        forward = right in fields and (left in names or left not in fields)
        column, field = (left, right) if forward else (right, left)
        if field not in fields:
            hint = did_you_mean(right, fields) or did_you_mean(left, fields)
            raise DataError(f"--map {left}={right}: neither is a field{hint}. Fields are {', '.join(sorted(fields))}.")
        if column not in names:
            raise DataError(f"{place}: no column {column!r} (--map {left}={right}){did_you_mean(column, names)}")
        if field in found:
            raise DataError(f"--map {left}={right}: {field} is said twice. Keep one.")
        found[field] = column
    return found


class ColumnOf(NamedTuple):
    """A column that is read, and the unit that its name says; empty where it says none."""

    column: str
    unit: str


_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BRACKETS = re.compile(r"\s{0,3}[\[(]([^\])]{1,20})[\])]\s{0,3}$")
_OTHER = re.compile(r"[^a-z0-9]{1,50}")
UNITS = frozenset((*SECONDS, *["gb", "gib", "mb", "mib", "tb", "tib", "gbps", "gbit", "mbps", "usd", "bytes"]))


_SPELLED = (("GiB", "_gib"), ("MiB", "_mib"), ("vCPU", "vcpu"), ("CPUs", "_cpus"), ("GPUs", "_gpus"), ("GPUS", "_gpus"))


def base_of(name: str) -> tuple[str, str]:
    """A name in lower case with underscores, without its unit; and the unit: ("memory", "gib") of "MemoryGiB"."""
    name = name.strip()[:200]
    for written, meant in _SPELLED:
        name = name.replace(written, meant)
    brackets = _BRACKETS.search(name)
    unit = "" if brackets is None else brackets[1].strip().lower()
    if unit in UNITS and brackets is not None:
        name = name[: brackets.start()]
    words = [word for word in _OTHER.sub("_", _CAMEL.sub("_", name).lower()).split("_") if word]
    if unit not in UNITS:
        unit = ""
    if not unit and len(words) > 1 and words[-1] in UNITS:
        unit = words.pop()
    return "_".join(words), unit


def columns_of(
    header: Sequence[str], known: Mapping[str, Sequence[str]], said: Mapping[str, str], place: str
) -> dict[str, ColumnOf]:
    """The columns of a table that are fields, by what a person says, else by their names.

    Args:
        header: columns of the file.
        known: field -> names that it goes by, in lower case without units; the first that is there counts.
        said: `--map` pairs.
        place: for messages.

    Returns:
        Field -> its column; fields that no column names are not there.

    Raises:
        DataError: as `columns_said`, or two columns of one name.
    """
    stated = columns_said(header, said, known, place)
    found = {field: ColumnOf(column, base_of(column)[1]) for field, column in stated.items()}
    taken = set(stated.values())
    bases: dict[str, list[str]] = {}
    for column in header:
        if column not in taken:
            bases.setdefault(base_of(column)[0], []).append(column)
    for field, names in known.items():
        if field in found:
            continue
        exact = field if field in header and field not in taken else None
        here = [column for name in names for column in bases.get(name, ())]
        if exact is None and here and len(bases[base_of(here[0])[0]]) > 1:
            raise DataError(
                f"{place}: the columns {' and '.join(bases[base_of(here[0])[0]])} mean the same. Keep one, or say which: "
                f"--map COLUMN={field}."
            )
        if exact is not None or here:
            column = exact or here[0]
            found[field] = ColumnOf(column, base_of(column)[1])
    return found

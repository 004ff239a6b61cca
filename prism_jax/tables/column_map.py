"""What a person says of the columns of a table: `--map COLUMN=FIELD`, in either order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..core.errors import DataError
from ..core.registry import did_you_mean


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


def columns_said(
    names: Collection[str], said: Mapping[str, str], fields: Collection[str], place: str, *, absent: bool = False
) -> dict[str, str]:
    """Field -> column, as a person has said it: COLUMN=FIELD or FIELD=COLUMN.

    Args:
        names: columns of the table.
        said: the pairs.
        fields: what a column can be.
        place: for messages.
        absent: whether pairs about columns that this table does not have are passed over (another table may have them).

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
            if absent:
                continue
            raise DataError(f"{place}: no column {column!r} (--map {left}={right}){did_you_mean(column, names)}")
        if field in found:
            raise DataError(f"--map {left}={right}: {field} is said twice. Keep one.")
        found[field] = column
    return found

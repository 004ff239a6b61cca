"""What comes out of measurement files: a checked table, and an account of every row that was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from prism_jax.errors import DataError, UnitError

MOST_NAMED = 3  # files in a message


@dataclass(frozen=True)
class CleaningReport:
    """Where the rows went: `n_read` = `n_kept` + all that were dropped.

    Attributes:
        n_read: rows in the files.
        n_kept: rows that the model sees.
        dropped: rule in words -> rows dropped by it; a row counts under the first rule that it breaks.
        notes: what was assumed, joined or found suspicious.
    """

    n_read: int
    n_kept: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As a plain object, for JSON."""
        return {
            "n_read": self.n_read,
            "n_kept": self.n_kept,
            "dropped": dict(self.dropped),
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """As text, most frequent rule first."""
        dropped = sorted(self.dropped.items(), key=lambda item: -item[1])
        return [
            f"{self.n_read:,} rows read, {self.n_kept:,} kept",
            *(f"  {n:,} dropped: {rule}" for rule, n in dropped),
            *(f"note: {note}" for note in self.notes),
        ]


@dataclass(frozen=True)
class Measurements:
    """Valid measurements.

    Attributes:
        frame: one row per measurement; canonical column names; numbers are float64 in SI units, labels are text; blank is NaN.
            A column that is not required is absent where no file has a value in it.
        hygiene: what was read and what was dropped.
        sources: names of the files.
    """

    frame: pd.DataFrame
    hygiene: CleaningReport
    sources: tuple[str, ...] = ()


@contextmanager
def naming(sources: Sequence[str]) -> Iterator[None]:
    """Errors about measurements raised inside it name the files that they are from.

    Raises:
        DataError, UnitError: as inside, with the names in front unless one of them is in the message.
    """
    try:
        yield
    except (DataError, UnitError) as error:
        if not sources or any(Path(source).name in str(error) for source in sources):
            raise
        more = f" and {len(sources) - MOST_NAMED} more" if len(sources) > MOST_NAMED else ""
        raise type(error)(f"{', '.join(sources[:MOST_NAMED])}{more}: {error}") from None

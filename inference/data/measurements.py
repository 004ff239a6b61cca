"""What comes out of measurement files: a checked table, and an account of every row that was read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from prism_jax.errors import DataError, UnitError
from prism_jax.report.types.fit import CleaningReport

MOST_NAMED = 3  # files in a message


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

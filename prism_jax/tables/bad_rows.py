"""Rows of a table that cannot be used: one never ends a file; they are counted, and the first few are named."""

from __future__ import annotations

from ..core.errors import DataError

SHOWN = 3  # rows that are named


class BadRows:
    """Counts rows that are left out.

    Args:
        name: of the file, as it begins the messages of its rows.
    """

    def __init__(self, name: object) -> None:
        self.name, self.n = str(name), 0
        self._first: list[str] = []

    def add(self, error: DataError) -> None:
        """Counts a row, with what is wrong with it."""
        self.n += 1
        if self.n <= SHOWN:
            self._first.append(str(error))

    def check(self, n_good: int) -> None:
        """Whether a file is what it is taken for.

        Raises:
            DataError: as many rows are bad as good; names the first.
        """
        if self.n and self.n >= n_good:
            more = f" {self.n - 1:,} more rows are bad." if self.n > 1 else ""
            raise DataError(f"{self._first[0]}{more}")

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the rows that were left out."""
        if self.n == 0:
            return ()
        rows = "1 row is" if self.n == 1 else f"{self.n:,} rows are"
        places = [one.removeprefix(self.name).lstrip(": ") for one in self._first]
        first = "; ".join(f"line {place}" if place[:1].isdigit() else place for place in places)
        return (f"{rows} left out: {first}{'; ...' if self.n > SHOWN else ''}",)

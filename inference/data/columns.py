"""Columns of measurement files: canonical names, the names they go by elsewhere, units, and what makes a value valid."""

from __future__ import annotations

import math
from dataclasses import dataclass

TO_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True)
class Column:
    """One column of a model's input.

    Attributes:
        name: canonical name, with the SI unit as suffix where it has one ("duration_s").
        aliases: other names it is found under, best first; upper and lower case and punctuation do not matter. A column with a
            unit is found under every unit ("time" and "time_us" find time_ms). The canonical name comes before its aliases
            unless it stands among them, and unless the file has an alias that ends in `_key` or `_uuid`, which are made to tell
            things apart. An alias may end in a unit; a duration whose name carries no unit needs a `<alias>_unit` column or a
            declared unit.
        required: whether a file without it is refused. Rows without a value in it are dropped and counted.
        text: whether values are labels, not numbers.
        positive: whether zero and negative values are invalid (rows are dropped and counted).
        may_be_blank: whether rows without a value stay, in a column that is not required.
        strict: whether a row that is invalid in it is refused by its number, instead of dropped and counted: where every row is
            an event, a row left out is a rate that is wrong.
        least: smallest valid value of a strict column.
        choices: texts that a strict column of labels may hold, in lower case; any if there are none.
        instant: whether values are points in time: dates with their zone, or seconds since 1970.
        not_before: name of the column of instants that it may not come before.
        longest_s: of a duration; what is longer stands for "did not finish" and is dropped. No kernel, message, step or log
            interval lasts five days.
    """

    name: str
    aliases: tuple[str, ...] = ()
    required: bool = False
    text: bool = False
    positive: bool = False
    may_be_blank: bool = True
    strict: bool = False
    least: float = -math.inf
    choices: tuple[str, ...] = ()
    instant: bool = False
    not_before: str = ""
    longest_s: float = 5 * 86_400.0

    @property
    def is_duration(self) -> bool:
        """Whether its values are seconds."""
        return self.name.endswith("_s") and not self.name.endswith("_per_s") and not self.text

    @property
    def keeps_blank(self) -> bool:
        """Whether a row without a value stays."""
        return self.may_be_blank and not self.required

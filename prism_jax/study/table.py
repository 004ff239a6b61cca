"""StudyTable: the rows of a study beside the best of them, as plain data, CSV or a data frame."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.content import ByContent
from .figures import Figures

if TYPE_CHECKING:
    import pandas as pd

S_PER_HOUR, MILLION = 3600.0, 1e6
TIE = 1.96  # standard errors of the difference within which two values are not told apart


@dataclass(frozen=True, eq=False)
class StudyRow(ByContent):
    """One point of a study.

    Attributes:
        settings: field -> value along the axes.
        figures: None where the job is impossible; `problem` says why.
        relative, relative_error: value over that of the best row, and its Monte Carlo standard error; NaN without figures.
        is_best: the best row; is_tied: the draws cannot tell it from the best.
    """

    settings: Mapping[str, str]
    figures: Figures | None
    problem: str
    relative: float = nan
    relative_error: float = nan
    is_best: bool = False
    is_tied: bool = False


@dataclass(frozen=True)
class StudyTable:
    """Rows in the order of the grid.

    Attributes:
        axes: fields that vary.
        objective, unit: what the rows are compared by.
    """

    axes: tuple[str, ...]
    objective: str
    unit: str
    rows: tuple[StudyRow, ...]

    @property
    def best(self) -> StudyRow | None:
        """The row with the least value; None where no job is possible."""
        return next((row for row in self.rows if row.is_best), None)

    def records(self) -> list[dict[str, Any]]:
        """One flat mapping per row: the axes, every figure, the comparison, the reason of an impossible job."""
        empty = dict.fromkeys(Figures.__dataclass_fields__, np.nan)
        return [
            {
                **row.settings,
                **(asdict(row.figures) if row.figures else empty),
                "relative": row.relative,
                "relative_error": row.relative_error,
                "is_best": row.is_best,
                "is_tied": row.is_tied,
                "problem": row.problem,
            }
            for row in self.rows
        ]

    def to_frame(self) -> pd.DataFrame:
        """`records` as a data frame."""
        import pandas as pd  # takes .3 s, and commands have no use for it

        return pd.DataFrame(self.records())

    def to_csv(self) -> str:
        """`records` as CSV; what is not known is empty."""
        records = self.records()
        out = io.StringIO()
        writer = csv.DictWriter(out, list(records[0]), lineterminator="\n")
        writer.writeheader()
        for record in records:
            writer.writerow({name: "" if value != value else value for name, value in record.items()})
        return out.getvalue()


def study_table(
    axes: Sequence[str],
    settings: Sequence[Mapping[str, str]],
    figures: Sequence[Figures | None],
    problems: Sequence[str],
    objective: str,
    unit: str,
) -> StudyTable:
    """Rows compared with the best of those that fit into memory, or of all if none does.

    Notes:
        Seconds of steps of unlike batches or numbers of GPUs say nothing; they become GPU-hours per million tokens.
    """
    per_token = np.array([own.n_devices / own.tokens_per_step if own else np.nan for own in figures])
    scale = np.ones(len(figures))
    if unit == "s" and np.nanmin(per_token, initial=np.inf) < np.nanmax(per_token, initial=-np.inf):
        objective, unit, scale = (
            f"{objective} GPU-hours per million tokens",
            "GPU-hours",
            per_token * MILLION / S_PER_HOUR,
        )
    values = scale * [own.value if own else np.nan for own in figures]
    errors = scale * [own.value_error if own else np.nan for own in figures]
    fits = np.array([bool(own and own.fits) for own in figures])
    ranked = np.where(fits if fits.any() else np.isfinite(values), values, np.inf)
    best = int(np.argmin(ranked)) if np.isfinite(ranked).any() else -1
    rows = []
    for k, own in enumerate(figures):
        ratio = error = np.nan
        if own and best >= 0:
            ratio = values[k] / values[best]
            error = 0.0 if k == best else ratio * float(np.hypot(errors[k] / values[k], errors[best] / values[best]))
        near = k != best and abs(ratio - 1.0) <= TIE * error
        rows.append(StudyRow(settings[k], own, problems[k], float(ratio), float(error), k == best, bool(near)))
    return StudyTable(tuple(axes), objective, unit, tuple(rows))

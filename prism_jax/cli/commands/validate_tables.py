"""What `prism-jax validate steps` prints: worst rows first and why, rows without a prediction, sources, and all rows together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..output import print_table
from ..verbosity import say

if TYPE_CHECKING:
    from ...validation import RowError, Score, Validation

WORST_ROWS = 40
NAME, SOURCE, REASON, GROUP = 26, 20, 33, 48  # characters: with numbers, 120 columns
FIGURES = ("n", "defect", "unsup.", "median", "MAPE", "bias", "p90", "in 90 %")


def print_validation(outcome: Validation) -> None:
    """Tables on stdout."""
    ranked = sorted((row for row in outcome.rows if row.error is not None), key=lambda row: -abs(row.error or 0.0))
    if ranked:
        has_range = any(row.measured_range is not None for row in ranked)
        columns = ("row", "source", "measured s", "predicted s", "error", "in 90 %", "defect or largest part")
        print_table(
            "rows, worst first; in 90 %: whether the measured time lies in its interval",
            (*columns, "in range") if has_range else columns,
            [_row(row, has_range) for row in ranked[:WORST_ROWS]],
        )
    if len(ranked) > WORST_ROWS:
        say(f"{len(ranked) - WORST_ROWS} more rows; --json has them all")
    _print_unsupported(outcome.rows)
    by_source = sorted(outcome.by_source.items(), key=lambda item: -(item[1].median_ape or 0.0))
    print_table("by source", ("source", *FIGURES), [_score(*group) for group in by_source])
    overall = [("overall", outcome.overall), ("with known defects", outcome.overall_with_defects)]
    if outcome.overall_baseline is not None:
        overall.append(("typical utilisation (baseline)", outcome.overall_baseline))
    print_table("overall", ("rows", *FIGURES), [_score(*group) for group in overall])


def _print_unsupported(rows: Sequence[RowError]) -> None:
    reasons = Counter(row.unsupported for row in rows if row.unsupported)
    if reasons:
        counted = [[str(n), reason] for reason, n in reasons.most_common()]
        print_table("rows without a prediction", ("rows", "why"), counted)


def _row(row: RowError, has_range: bool) -> list[str]:
    words = {None: "", True: "yes", False: "NO"}
    cells = [
        cut(row.id, NAME),
        cut(row.source, SOURCE),
        f"{row.measured_s:.4g}",
        f"{row.predicted_s:.4g}",
        f"{row.error:+.1%}",
        words[row.inside],
        cut(row.reason, REASON),
    ]
    return [*cells, words[row.in_range]] if has_range else cells


def _score(name: str, score: Score) -> list[str]:
    def percent(value: float | None, sign: str = "") -> str:
        return "-" if value is None else f"{value:{sign}.1%}"

    return [
        cut(name, GROUP),
        str(score.n),
        str(score.n_defect),
        str(score.n_unsupported),
        percent(score.median_ape),
        percent(score.mape),
        percent(score.bias, "+"),
        percent(score.p90_ape),
        percent(score.coverage_90),
    ]


def cut(text: str, width: int) -> str:
    """At most `width` characters, the last of them an ellipsis where something is left out."""
    return text if len(text) <= width else text[: width - 1] + "…"

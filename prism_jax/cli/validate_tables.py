"""What `prism-jax validate steps` prints: worst rows first and why, rows without a prediction, sources, and all rows together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .output import print_table
from .talk import say

if TYPE_CHECKING:
    from ..validation import RowError, Score, Validation

WORST_ROWS = 40
NAME, REASON = 28, 38  # characters: with numbers, 120 columns
FIGURES = ("n", "defect", "unsup.", "median", "MAPE", "bias", "p90", "in 90 %")


def print_validation(outcome: Validation) -> None:
    """Tables on stdout."""
    ranked = sorted((row for row in outcome.rows if row.error is not None), key=lambda row: -abs(row.error or 0.0))
    if ranked:
        print_table(
            "rows, worst first; band: 90 % of what would be measured",
            ("row", "source", "measured s", "predicted s", "error", "in band", "defect or largest part"),
            [_row(row) for row in ranked[:WORST_ROWS]],
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


def _row(row: RowError) -> list[str]:
    inside = {None: "", True: "yes", False: "NO"}[row.inside]
    return [
        cut(row.id, NAME),
        cut(row.source, NAME - 8),
        f"{row.measured_s:.4g}",
        f"{row.predicted_s:.4g}",
        f"{row.error:+.1%}",
        inside,
        cut(row.reason, REASON),
    ]


def _score(name: str, score: Score) -> list[str]:
    def percent(value: float | None, sign: str = "") -> str:
        return "-" if value is None else f"{value:{sign}.1%}"

    return [
        cut(name, 52),
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

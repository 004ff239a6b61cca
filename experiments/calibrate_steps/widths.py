"""How wide intervals must be for the evidence near a job, from blind scores of rows.

Half-widths of the logarithm without the law, `low` and `high`, are those of the score less what the row leaves unsaid (as of a
normal law), over the factor that was in force. With the law they are

    sqrt((f half)^2 + (g unsaid)^2),     ln f = usual + sum over reasons of effect x how much it holds

and what is minimised is the mean over sources of the interval score of their rows, where a source of n rows counts n / (n +
`FEW_ROWS`): one row far off says little of its source, and must not decide how wide all are that share a reason with it. A row
outside costs `CAUTION` times as much where the job is far: a source more or less decides what is left of those, and half of what
a user meets is like none of them. Effects are drawn to `PRIOR`, ln g to 0; all these are choices made in sight of the open rows,
as are the thresholds of the reasons.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, ndtri

from prism_jax.calibration.calibration import shipped
from prism_jax.calibration.evidence import FAR_OFF, REASONS, WidthLaw, log_factor
from prism_jax.calibration.surrogate import network_share, stack
from prism_jax.core.arrays import Floats
from prism_jax.validation.costed import costed, job_of_row
from prism_jax.validation.score import OUTSIDE_PROB, MeasuredRow

PENALTY, CAUTION, FEW_ROWS = 2.0 / OUTSIDE_PROB, 1.5, 20.0
PRIOR, PRIOR_WEIGHT = 0.3, 0.03
SMOOTHING = (0.1, 0.03, 0.01)  # of the kink at a bound, in logarithms; the last is less than any width can be told by
SCORE_90 = -float(ndtri(OUTSIDE_PROB / 2.0))


@dataclass(frozen=True)
class Widths:
    """Scored rows [row]; logarithms.

    Attributes:
        error: measured over predicted.
        low, high: squared half-widths of what the calibration leaves open, without the law.
        unsaid: squared half-width of what the row leaves unsaid.
        reasons: [row, reason] how much each holds.
    """

    ids: list[tuple[str, str]]
    predicted_s: Floats
    error: Floats
    low: Floats
    high: Floats
    unsaid: Floats
    reasons: Floats

    @property
    def source(self) -> np.ndarray:
        """[row]"""
        return np.array([source for source, _ in self.ids])


def widths_of(scored: Sequence[tuple[MeasuredRow, Mapping[str, Any]]]) -> Widths:
    """What the law is fitted to."""
    of_source: dict[str, set[str]] = defaultdict(set)
    for row, _ in scored:
        for key in _keys(row):
            of_source[key].add(row.source)
    found = [_row(row, own, of_source) for row, own in scored]
    ids = [(row.source, row.id) for row, _ in scored]
    predicted_s, error, low, high, unsaid, *reasons = np.array(found).T
    return Widths(ids, predicted_s, error, low, high, unsaid, np.stack(reasons, axis=-1))


def _keys(row: MeasuredRow) -> tuple[str, str]:
    generation = row.job[1].device.generation
    return generation, f"{generation} {row.framework}"


def _row(row: MeasuredRow, own: Mapping[str, Any], of_source: Mapping[str, set[str]]) -> list[float]:
    job = costed(job_of_row(row, shipped()), row.assumed)
    share = network_share(stack([job.outline]), shipped().correction(job.setting))
    others = {key: len(of_source[key] - {row.source}) for key in _keys(row)}
    reasons = WidthLaw(0.0, {}, others).reasons(job.setting, row.job[0].has_experts, float(share[0]))
    unsaid = SCORE_90**2 * sum(one.sd**2 for one in job.job.open_fields + job.doubts)
    was = SCORE_90**2 * own["open_sd"] ** 2  # in the score, which may be of other odds
    half = np.log([own["predicted_s"] / own["low_s"], own["high_s"] / own["predicted_s"]])
    # a band cannot be all unsaid: its draws are not normal
    rest = np.maximum(half**2 - was, 0.05 * half**2) / own.get("widened", 1.0) ** 2
    error = np.log(own["measured_s"] / own["predicted_s"])
    return [own["predicted_s"], error, *rest, unsaid, *(reasons.get(name, 0.0) for name in REASONS)]


def width_law_of(rows: Widths) -> Callable[[str], list[float]]:
    """The fit: usual, effects and g, of a source that is left out, or of none."""
    x = np.column_stack([np.ones(len(rows.error)), rows.reasons])
    is_far = rows.reasons[:, [kind == FAR_OFF for kind, _ in REASONS.values()]].max(axis=1) >= 0.5
    penalty = PENALTY * np.where(is_far, CAUTION, 1.0)
    _, at = np.unique(rows.source, return_inverse=True)
    each = 1.0 / (np.bincount(at)[at] + FEW_ROWS)

    def fit(left_out: str) -> list[float]:
        weight = np.where(rows.source == left_out, 0.0, each)
        weight /= weight.sum()
        beta = np.array([0.0] + [PRIOR] * len(REASONS) + [0.0])
        for smoothing in SMOOTHING:
            beta = minimize(_loss, beta, (rows, x, weight, penalty, smoothing), jac=True, method="L-BFGS-B").x
        return np.round([*beta[:-1], np.exp(beta[-1])], 3).tolist()

    return fit


def _loss(
    beta: Floats, rows: Widths, x: Floats, weight: Floats, penalty: Floats, smoothing: float
) -> tuple[float, Floats]:
    """Mean score with its prior, and its gradient."""
    squared, unsaid = np.exp(2.0 * (x @ beta[:-1])), np.exp(2.0 * beta[-1]) * rows.unsaid
    total, slope, of_unsaid = np.zeros((3, len(weight)))
    for part, beyond in ((rows.low, -rows.error), (rows.high, rows.error)):
        half = np.sqrt(squared * part + unsaid)
        out = (beyond - half) / smoothing
        total += half + penalty * smoothing * np.logaddexp(0.0, out)
        by_half = (1.0 - penalty * expit(out)) / half
        slope += squared * part * by_half
        of_unsaid += unsaid * by_half
    apart = np.array([0.0, *(beta[1:-1] - PRIOR), beta[-1]])
    gradient = np.append(x.T @ (weight * slope), weight @ of_unsaid)
    return float(weight @ total + PRIOR_WEIGHT * apart @ apart), gradient + 2.0 * PRIOR_WEIGHT * apart


def rescored(rows: Widths, laws: Mapping[str, list[float]]) -> dict[tuple[str, str], dict[str, Any]]:
    """(source, id) -> the fields of a `RowResult` that the law of its left-out source decides."""
    found = {}
    for k, key in enumerate(rows.ids):
        usual, *effects, of_unsaid = laws[key[0]]
        reasons = {name: much for name, much in zip(REASONS, rows.reasons[k].tolist(), strict=True) if much > 0.0}
        factor = float(np.exp(log_factor(usual, dict(zip(REASONS, effects, strict=True)), reasons)))
        unsaid = of_unsaid**2 * rows.unsaid[k]
        low, high = (float(np.sqrt(factor**2 * part[k] + unsaid)) for part in (rows.low, rows.high))
        found[key] = {
            "low_s": float(rows.predicted_s[k] * np.exp(-low)),
            "high_s": float(rows.predicted_s[k] * np.exp(high)),
            "inside": bool(-low <= rows.error[k] <= high),
            "widened": factor,
            "open_sd": float(np.sqrt(unsaid) / SCORE_90),
            "reasons": reasons,
        }
    return found

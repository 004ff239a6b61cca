"""The law of widths: its gradient, what it finds again, and how much one row decides."""

import numpy as np
import pytest
from scipy.optimize import check_grad

from experiments.calibrate_steps.widths import SMOOTHING, Widths, _loss, rescored, width_law_of
from prism_jax.calibration.evidence import REASONS

HALF = 0.4


def rows_of(n_source: int, n_row: int, sd: float, with_experts: float, seed: int = 0) -> Widths:
    """Every other source has experts, whose errors are larger by a factor; a row leaves as much unsaid as the rest is wide."""
    rng = np.random.default_rng(seed)
    n = n_source * n_row
    has = (np.arange(n_source) % 2).repeat(n_row).astype(float)
    reasons = np.zeros((n, len(REASONS)))
    reasons[:, list(REASONS).index("experts")] = has
    ids = [(f"source {at // n_row}", f"row {at}") for at in range(n)]
    error = sd * np.where(has > 0.0, with_experts, 1.0) * rng.normal(size=n)
    same = np.full(n, HALF**2)
    return Widths(ids, np.ones(n), error, same, same, 0.25 * same, reasons)


def test_the_gradient_is_that_of_the_loss():
    rows = rows_of(4, 5, 0.2, 2.0)
    x = np.column_stack([np.ones(20), rows.reasons])
    beta = np.array([-0.3, 0.1, 0.2, 0.4, 0.2, 0.1, -0.2])
    given = (rows, x, np.full(20, 0.05), np.full(20, 20.0), SMOOTHING[0])
    assert check_grad(lambda b: _loss(b, *given)[0], lambda b: _loss(b, *given)[1], beta) < 1e-4


def test_what_is_kept_holds_nine_rows_of_ten_with_and_without_the_reason():
    rows = rows_of(40, 100, 0.15, 2.0)
    found = rescored(rows, dict.fromkeys(rows.source, width_law_of(rows)("")))
    inside = np.array([found[key]["inside"] for key in rows.ids])
    has = rows.reasons.any(axis=1)
    assert inside[~has].mean() == pytest.approx(0.9, abs=0.03)
    assert inside[has].mean() >= 0.88  # outside costs more where the job is far
    widened = np.array([found[key]["widened"] for key in rows.ids])
    assert widened[has].mean() > 1.5 * widened[~has].mean()


def test_a_source_of_one_row_far_off_hardly_moves_the_others():
    rows = rows_of(20, 50, 0.15, 2.0)
    one = Widths(
        [*rows.ids, ("log", "row")],
        np.append(rows.predicted_s, 1.0),
        np.append(rows.error, 3.0),
        np.append(rows.low, HALF**2),
        np.append(rows.high, HALF**2),
        np.append(rows.unsaid, 0.0),
        np.vstack([rows.reasons, [name == "experts" for name in REASONS]]),
    )
    before, after = np.array(width_law_of(rows)("")), np.array(width_law_of(one)(""))
    assert after[:-1].sum() - before[:-1].sum() < 0.25
    np.testing.assert_array_equal(width_law_of(one)("log"), before)

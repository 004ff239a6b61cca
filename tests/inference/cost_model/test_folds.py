"""Rows that are left out have no part in the calibration they are predicted with."""

import importlib
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from inference.cost_model.calibrate import Calibrator, few_of_each, row_data, rows_of, step_folds, thinned_rows, without
from inference.cost_model.step_times import StepTimesData, seen_members
from prism_jax.calibration.calibration import Calibration, shipped
from prism_jax.calibration.key import Level
from prism_jax.core.errors import DataError
from prism_jax.validation.score import MeasuredRow, group_of
from prism_jax.validation.steps import validate_steps
from tests.support.measured_rows import SITES, measured_rows, with_measured

KEY = jax.random.key(0)
ROWS = measured_rows()
NOISY = measured_rows(spread=0.05, batches=(64, 128))  # enough rows, far enough apart, that a scale can be told
MODULE = importlib.import_module("inference.cost_model.calibrate")


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> dict[str, StepTimesData]:
    """Group -> the data that a fit would have got; nothing is fitted, no straggler simulated."""
    seen: dict[str, StepTimesData] = {}

    class Recorder:
        def __init__(self, data: StepTimesData) -> None:
            self.n_row = len(data.weight)

        def fit(self, data: StepTimesData, *, key: Any, record: dict[str, Any]) -> Any:
            assert len(data.weight) == self.n_row
            seen[record["left_out"]] = data
            return replace(shipped(), record=record)

    monkeypatch.setattr(MODULE, "Calibrator", Recorder)
    monkeypatch.setattr("inference.cost_model.calibrate.stragglers", lambda jobs, progress: np.zeros(len(jobs)))
    return seen


@pytest.mark.parametrize("by", ["source", "gpu", "model"])
def test_no_left_out_row_reaches_the_fit(fitted: dict[str, StepTimesData], by: str):
    found = step_folds(ROWS, by, key=KEY)
    groups = {group_of(row, by) for row in ROWS}
    assert set(found) == set(fitted) == groups
    for group, data in fitted.items():
        times = np.exp(data.log_measured)
        mine = [row.measured_s or 0.0 for row in ROWS if group_of(row, by) == group]
        others = [row.measured_s or 0.0 for row in ROWS if group_of(row, by) != group]
        assert not np.isin(times, mine).any()
        assert sorted(times[data.weight > 0.0]) == pytest.approx(sorted(others))
        assert found[group].record == {"left_out": group, "rows": len(others)}


def test_names_that_only_the_group_has_are_unknown_to_its_fit(fitted: dict[str, StepTimesData]):
    step_folds(ROWS, "source", key=KEY)

    def known(group: str, level: Level) -> list[str]:
        return [fitted[group].names[level][i] for i in seen_members(fitted[group], level)]

    assert known("site C", Level.FRAMEWORK) == ["megatron-core"]
    assert known("site A", Level.GENERATION) == ["hopper"]
    assert known("site B", Level.FRAMEWORK) == ["fsdp", "megatron-core"]


def test_all_folds_have_as_many_rows(fitted: dict[str, StepTimesData]):
    step_folds(ROWS[:-2], "source", key=KEY)
    assert {len(data.weight) for data in fitted.values()} == {len(ROWS) - 2}


def test_rows_with_a_defect_are_not_fitted_but_have_a_calibration(fitted: dict[str, StepTimesData]):
    bad = replace(ROWS[0], id="bad", source="site D", measured_s=1234.0, defect="broken fabric")
    found = step_folds([*ROWS, bad, MeasuredRow("x", "site E", None, unsupported="no device")], "source", key=KEY)
    assert set(found) == {*SITES, "site D"}
    assert len(fitted[""].weight) == len(ROWS)  # nothing has to be left out for it
    assert not np.isclose(np.exp(fitted[""].log_measured), 1234.0).any()


def test_large_sources_are_thinned_once_and_for_all(fitted: dict[str, StepTimesData]):
    many = [
        replace(row, id=f"{row.id} {k}", measured_s=(row.measured_s or 0.0) + 1e-3 * k)
        for row in ROWS
        for k in range(3)
    ]
    kept = thinned_rows(many, 5)
    assert {name: sum(row.source == name for row in kept) for name in SITES} == dict.fromkeys(SITES, 5)
    assert kept == thinned_rows(many, 5)
    assert thinned_rows(ROWS) == ROWS
    assert thinned_rows([]) == []


def test_which_rows_are_kept_does_not_depend_on_their_order():
    many = [
        replace(row, id=f"{row.id} {k % 2}", measured_s=(row.measured_s or 0.0) + 1e-3 * k)
        for row in ROWS
        for k in range(4)
    ]
    for ids_repeat in (False, True):
        rows = many if ids_repeat else [replace(row, id=f"{n:03d}") for n, row in enumerate(many)]
        kept = {(row.id, row.measured_s) for row in thinned_rows(rows, 5)}
        mixed = [rows[index] for index in np.random.default_rng(0).permutation(len(rows))]
        assert {(row.id, row.measured_s) for row in thinned_rows(mixed, 5)} == kept
        assert [row for row in mixed if (row.id, row.measured_s) in kept] == thinned_rows(mixed, 5)


def test_the_choice_is_that_from_a_table_sorted_by_its_ids():
    rows = [replace(row, id=f"{n:03d}", source="one") for n, row in enumerate([*ROWS, *ROWS])]
    expected = few_of_each(np.array(["one"] * len(rows)), 5)
    assert [int(row.id) for row in thinned_rows(rows, 5)] == expected.tolist()


def test_one_group_alone_leaves_nothing_to_fit(fitted: dict[str, StepTimesData]):
    with pytest.raises(DataError, match="all rows are of one source, site A"):
        step_folds(ROWS[:4], "source", key=KEY)
    with pytest.raises(DataError, match="nothing remains"):
        step_folds([*ROWS[:4], replace(ROWS[5], defect="typo")], "source", key=KEY)
    with pytest.raises(DataError, match="no row can be simulated"):
        step_folds([replace(row, defect="typo") for row in ROWS], "source", key=KEY)


def test_progress_grows_to_one(fitted: dict[str, StepTimesData]):
    told: list[float] = []
    step_folds(ROWS, "source", key=KEY, progress=lambda done, what="", /: told.append(done))
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1.0)


@pytest.fixture(scope="module")
def folds() -> dict[str, Calibration]:
    return step_folds(NOISY, "source", key=KEY)


@pytest.mark.slow
def test_times_of_left_out_rows_do_not_move_their_calibration_by_a_bit(folds: dict[str, Calibration]):
    moved = [with_measured(row, (row.measured_s or 0.0) * (7.0 if row.source == "site B" else 1.0)) for row in NOISY]
    again = step_folds(moved, "source", key=KEY)["site B"]
    for a, b in zip(folds["site B"].terms, again.terms, strict=True):
        assert a.names == b.names
        assert np.array_equal(a.value, b.value)
    assert not np.array_equal(folds["site A"].terms[0].value, again.terms[0].value)


@pytest.mark.slow
def test_a_fit_without_a_site_is_the_fit_to_the_other_rows():
    """To the tolerance of the search for the mode; 512 draws of both know their spread to 10% (4.5 standard errors of 3%)."""
    data = row_data(NOISY)
    left_out = np.array([row.source == "site B" for row in NOISY])
    rest = rows_of(data, np.flatnonzero(~left_out))
    alone = Calibrator(rest).fit(rest, key=KEY, n_draw=512)
    among = Calibrator(data).fit(without(data, left_out), key=KEY, n_draw=512)
    for a, b in zip(alone.terms, among.terms, strict=True):
        assert a.names == b.names
        if not a.names:
            continue
        spread = a.value.std(axis=0)
        assert np.abs(a.value.mean(axis=0) - b.value.mean(axis=0)).max() <= 0.02 * spread.max(), (a.knob, a.level)
        assert np.abs(b.value.std(axis=0) / spread - 1.0).max() <= 0.2, (a.knob, a.level)
    for spread in ("site_sd", "misfit", "misfit_sd"):
        assert getattr(among, spread).mean() == pytest.approx(getattr(alone, spread).mean(), rel=0.1)


@pytest.mark.slow
def test_blind_scores_beat_a_typical_utilisation_where_sites_are_alike(folds: dict[str, Calibration]):
    outcome = validate_steps(
        NOISY, calibration_of=lambda row: folds[row.source], left_out="source", deterministic_only=True
    )
    assert outcome.overall_baseline is not None
    assert (outcome.overall.mape or 1.0) < 0.5 * (outcome.overall_baseline.mape or 0.0)
    assert (outcome.overall.coverage_90 or 0.0) >= 0.75

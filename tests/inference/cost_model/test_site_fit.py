"""`prism_jax.calibrate` on jobs in Python: the same calibration as the engine's, a summary in plain types, a file."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import prism_jax
from inference.cost_model.store import load
from prism_jax.calibration.key import CalibrationKey
from prism_jax.calibration.surrogate import surrogate_seconds
from prism_jax.core.errors import DataError
from tests.inference.cost_model.sites import FRAMEWORK, GENERATION, JOBS, measured, population, runs_of

KEY = jax.random.key(0)


def test_a_slower_site_is_told_in_plain_types_and_kept(tmp_path: Path):
    jobs = [JOBS[5], JOBS[6], JOBS[0]]
    known = population()
    correction = known.correction(CalibrationKey(GENERATION, FRAMEWORK))
    seconds = np.asarray(surrogate_seconds(runs_of(jobs), correction))
    shares: list[float] = []
    fit = prism_jax.calibrate(measured(1.2 * seconds, jobs), key=KEY, calibration=known, progress=shares.append)
    found = json.loads(fit.report().to_json())
    assert found["site_factor"]["median"] > 1.03
    assert found["error"]["after"]["median_ape"] < 0.5 * found["error"]["before"]["median_ape"]
    assert found["corrections"].keys() == {term.knob for term in known.terms}
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    fit.save(tmp_path / "site.npz")
    kept = load(tmp_path / "site.npz")
    assert kept.correction(CalibrationKey("", "")) == fit.calibration.correction(CalibrationKey("", ""))
    again = prism_jax.calibrate(measured(1.2 * seconds, jobs), key=KEY, calibration=known)
    assert again.calibration.as_dict() == fit.calibration.as_dict()


def test_a_table_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="absent.csv"):
        prism_jax.calibrate(tmp_path / "absent.csv", key=KEY)

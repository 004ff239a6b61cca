"""Fits of a site: the fit, and its file."""

import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import prism_jax
from inference.cost_model.site_density import calibrate_site
from inference.cost_model.store import is_calibration, load, save
from prism_jax.calibration.calibration import Calibration, shipped
from prism_jax.calibration.key import CalibrationKey
from prism_jax.calibration.surrogate import surrogate_seconds
from prism_jax.core.errors import DataError
from tests.inference.cost_model.sites import FRAMEWORK, GENERATION, JOBS, measured, population, runs_of, simulated
from tests.support.files.archives import changed


@pytest.fixture(scope="module")
def of_site() -> Calibration:
    runs = simulated(runs_of(), population().correction(CalibrationKey(GENERATION, FRAMEWORK)))
    return calibrate_site(population(), runs, key=jax.random.key(0), record={"inputs": {"runs": "µ.csv"}})


@pytest.fixture
def file(of_site: Calibration, tmp_path: Path) -> Path:
    path = tmp_path / "site.npz"
    save(of_site, path)
    return path


def assert_same(one: Calibration, other: Calibration) -> None:
    assert one.as_dict() == other.as_dict()
    for a, b in zip(one.terms, other.terms, strict=True):
        np.testing.assert_array_equal(a.value, b.value)
    assert (one.nearby is None) == (other.nearby is None)
    if one.nearby is not None and other.nearby is not None:
        for name in ("parts", "left", "trust"):
            np.testing.assert_array_equal(getattr(one.nearby, name), getattr(other.nearby, name))
    np.testing.assert_array_equal(
        one.corrections(CalibrationKey("hopper", "jax"), 3).network,
        other.corrections(CalibrationKey("hopper", "jax"), 3).network,
    )


def test_a_site_comes_back(of_site: Calibration, file: Path):
    assert_same(of_site, load(file))
    assert is_calibration(file)


def test_a_population_comes_back(tmp_path: Path):
    for known in (population(), shipped()):
        save(known, tmp_path / "all.npz")
        assert_same(known, load(tmp_path / "all.npz"))


def test_other_tools_read_one_variable_per_knob(of_site: Calibration, file: Path):
    with np.load(file) as found:
        drawn = np.exp(found["posterior/network"][0])
    np.testing.assert_allclose(drawn, of_site.corrections(CalibrationKey(GENERATION, FRAMEWORK)).network)


def test_a_file_is_whole_or_absent(of_site: Calibration, tmp_path: Path):
    with pytest.raises(DataError):
        save(of_site, tmp_path / "no folder" / "site.npz")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_file_of_ours_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="no such file"):
        load(tmp_path / "absent.npz")
    (tmp_path / "text.npz").write_text("no archive")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    os.mkfifo(tmp_path / "pipe.npz")
    for name in ("text", "other", "pipe"):
        with pytest.raises(DataError, match=rf"{name}\.npz: not .* Calibrate again"):
            load(tmp_path / f"{name}.npz")
    assert not any(is_calibration(tmp_path / f"{name}.npz") for name in ("absent", "text", "other", "pipe"))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_cut_file_is_refused(file: Path, share: float):
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DataError):
        load(file)


CHANGES: dict[str, Any] = {
    "format": 99,
    "centre": {"gemm": 0.0},
    "terms": [{"knob": "speed", "level": "all", "sd": 0.0, "names": ["all"]}],
    "expert_misfit": float("nan"),
    "record": 3,
}


@pytest.mark.parametrize("name", CHANGES)
def test_wrong_constants_are_refused(file: Path, name: str):
    changed(file, lambda about, _: about.update({name: CHANGES[name]}))
    with pytest.raises(DataError):
        load(file)


@pytest.mark.parametrize("name", ["gemm", "misfit", "site", "site_sd"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1e6])
def test_wrong_values_are_refused(file: Path, name: str, value: float):
    changed(file, lambda _, arrays: arrays[f"posterior/{name}"].__setitem__((0, 3), value))
    with pytest.raises(DataError, match=f"{name} of the calibration is damaged"):
        load(file)


@pytest.mark.parametrize("shape", [(1, 3), (2, 64), (64,), (1, 64, 2), ()])
def test_wrong_shapes_are_refused(file: Path, shape: tuple[int, ...]):
    changed(file, lambda _, arrays: arrays.update({"posterior/network": np.zeros(shape)}))
    with pytest.raises(DataError):
        load(file)


@pytest.mark.parametrize("name", ["nearby_left", "nearby_parts", "nearby_trust"])
@pytest.mark.parametrize("value", [np.nan, -1e6, np.zeros((2, 2))])
def test_damaged_runs_are_refused(file: Path, name: str, value: Any):
    def edit(_: Any, arrays: dict[str, Any]) -> None:
        own = f"posterior/{name}"
        arrays[own] = value if np.ndim(value) else np.full_like(arrays[own], value)

    changed(file, edit)
    with pytest.raises(DataError, match="damaged"):
        load(file)


def test_a_missing_knob_is_refused(file: Path):
    changed(file, lambda _, arrays: arrays.pop("posterior/network"))
    with pytest.raises(DataError):
        load(file)


def test_an_unknown_array_is_refused(file: Path):
    changed(file, lambda _, arrays: arrays.update({"posterior/speed": np.zeros((1, 3))}))
    with pytest.raises(DataError, match="'posterior/speed' is not an array of a calibration"):
        load(file)


# --- Site fit --------------------------------------------------------------------------------------------------------
# `prism_jax.calibrate` on jobs in Python: the same calibration as the engine's, a summary in plain types, a file.


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

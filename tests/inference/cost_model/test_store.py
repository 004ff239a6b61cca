"""A calibration that was saved is the same when loaded; every other file is refused by one kind of error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest
import xarray

from inference.cost_model.site.calibrate_site import calibrate_site
from inference.cost_model.store import ATTRIBUTE, is_calibration, load, save
from prism_jax.calibration.calibration import Calibration, shipped
from prism_jax.calibration.key import CalibrationKey
from prism_jax.errors import DataError
from tests.inference.cost_model.sites import FRAMEWORK, GENERATION, population, runs_of, simulated


@pytest.fixture(scope="module")
def of_site() -> Calibration:
    runs = simulated(runs_of(), population().correction(CalibrationKey(GENERATION, FRAMEWORK)))
    return calibrate_site(population(), runs, key=jax.random.key(0), record={"inputs": {"runs": "µ.csv"}})


@pytest.fixture
def file(of_site: Calibration, tmp_path: Path) -> Path:
    path = tmp_path / "site.nc"
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
        save(known, tmp_path / "all.nc")
        assert_same(known, load(tmp_path / "all.nc"))


def test_other_tools_read_one_variable_per_knob(of_site: Calibration, file: Path):
    with xarray.open_dataset(file, group="posterior", engine="h5netcdf") as found:
        assert found["network"].dims == ("chain", "draw")
        drawn = np.exp(found["network"].values[0])
    np.testing.assert_allclose(drawn, of_site.corrections(CalibrationKey(GENERATION, FRAMEWORK)).network)


def test_a_file_is_whole_or_absent(of_site: Calibration, tmp_path: Path):
    with pytest.raises(DataError):
        save(of_site, tmp_path / "no folder" / "site.nc")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_file_of_ours_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="no such file"):
        load(tmp_path / "absent.nc")
    (tmp_path / "text.nc").write_text("not netCDF")
    with pytest.raises(DataError, match="not a calibration that can be read"):
        load(tmp_path / "text.nc")
    xarray.Dataset({"x": ("d", np.zeros(3))}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(DataError, match="not one of `prism-jax calibrate`"):
        load(tmp_path / "other.nc")
    assert not any(is_calibration(tmp_path / name) for name in ("absent.nc", "text.nc", "other.nc"))


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
    with h5py.File(file, "r+") as content:
        about = json.loads(str(content.attrs[ATTRIBUTE]))
        content.attrs[ATTRIBUTE] = json.dumps({**about, name: CHANGES[name]})
    with pytest.raises(DataError):
        load(file)


@pytest.mark.parametrize("name", ["gemm", "misfit", "site", "site_sd"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1e6])
def test_wrong_values_are_refused(file: Path, name: str, value: float):
    with h5py.File(file, "r+") as content:
        content[f"posterior/{name}"][0, 3] = value  # pyright: ignore[reportIndexIssue]
    with pytest.raises(DataError, match=f"{name} of the calibration is damaged"):
        load(file)


@pytest.mark.parametrize("shape", [(1, 3), (2, 64), (64,), (1, 64, 2), ()])
def test_wrong_shapes_are_refused(file: Path, shape: tuple[int, ...]):
    with h5py.File(file, "r+") as content:
        del content["posterior/network"]
        content["posterior/network"] = np.zeros(shape)
    with pytest.raises(DataError):
        load(file)


@pytest.mark.parametrize("name", ["nearby_left", "nearby_parts", "nearby_trust"])
@pytest.mark.parametrize("value", [np.nan, -1e6, np.zeros((2, 2))])
def test_damaged_runs_are_refused(file: Path, name: str, value: Any):
    with h5py.File(file, "r+") as content:
        if np.ndim(value):
            del content[f"posterior/{name}"]
            content[f"posterior/{name}"] = value
        else:
            content[f"posterior/{name}"][...] = value  # pyright: ignore[reportIndexIssue]
    with pytest.raises(DataError, match="damaged"):
        load(file)


def test_a_missing_knob_is_refused(file: Path):
    with h5py.File(file, "r+") as content:
        del content["posterior/network"]
    with pytest.raises(DataError):
        load(file)

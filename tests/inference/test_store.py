"""A fit that was saved is the same fit when loaded; every other file is refused by one kind of error."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray

from inference.data import CleaningReport
from inference.engine.diagnostics import Verdict
from inference.engine.sampled import Sampled
from inference.result import Fit
from inference.store import save
from prism_jax.errors import DataError
from tests.inference.engine.toy import Toy


@dataclass(frozen=True)
class AllKinds:
    """One field of every kind that a model's data may have."""

    number: np.ndarray
    table: np.ndarray
    index: np.ndarray
    mask: np.ndarray
    limits: np.ndarray
    label: np.ndarray
    nothing: np.ndarray
    no_label: np.ndarray
    levels: tuple[str, ...]
    none: tuple[str, ...]
    yes: bool
    no: bool
    count: int
    ratio: float
    unlimited: float
    title: str
    later: float = 2.5


DATA = AllKinds(
    number=np.array([1.0, np.pi, 1e-300, -0.0]),
    table=np.arange(6.0).reshape(2, 3) / 7.0,
    index=np.array([0, -1, 2**53 + 1]),
    mask=np.array([True, False, True]),
    limits=np.array([np.inf, -np.inf, np.nan]),
    label=np.array(["", "GPU-1 µs", "漢字", 'a,b\n"c"', "nan"]),
    nothing=np.zeros(0),
    no_label=np.zeros(0, dtype=str),
    levels=("one", "", "tüv"),
    none=(),
    yes=True,
    no=False,
    count=3,
    ratio=0.1,
    unlimited=np.inf,
    title="a title",
)


class Kinds(Toy):
    """A model of such data."""

    name: ClassVar[str] = "kinds"

    def prepare(self, frame: pd.DataFrame) -> AllKinds:  # pyright: ignore[reportIncompatibleMethodOverride]
        return DATA

    def describe(self, data: Any, draws: Any) -> dict[str, Any]:
        return {
            "levels": list(data.levels),
            "mean": float(draws["mean"].mean()),
            "spread": draws["vector"].std(0).tolist(),
        }


@pytest.fixture(autouse=True)
def known(monkeypatch):
    from inference.models import model_named

    def named(name: str):
        return Kinds() if name == "kinds" else model_named(name)

    monkeypatch.setattr(sys.modules["inference.store"], "model_named", named)


def some_fit() -> Fit:
    rng = np.random.default_rng(0)
    draws = {
        "mean": rng.standard_normal((2, 5)),
        "vector": rng.standard_normal((2, 5, 3)),
        "table": rng.random((2, 5, 2, 2)),
    }
    sampled = Sampled(draws, rng.random((2, 5)) < 0.3, rng.integers(1, 64, (2, 5)))
    found = Verdict(False, "failed: r-hat of mean is 1.300", 1.3, 12.5, "mean", 3, np.nan)
    hygiene = CleaningReport(12, 10, {"not positive": 2}, ("unit assumed",))
    record = {"inputs": {"files": ["a.csv"]}, "seed": 7, "versions": {"jax": "0"}, "git_revision": None}
    return Fit(
        Kinds(),  # pyright: ignore[reportArgumentType]
        DATA,
        sampled,
        "nuts",
        found,
        hygiene,
        1.25,
        record,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    file = tmp_path_factory.mktemp("whole") / "kept.nc"
    save(some_fit(), file)
    return file.read_bytes()


@pytest.fixture
def kept(whole, tmp_path) -> Path:
    file = tmp_path / "kept.nc"
    file.write_bytes(whole)
    return file


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        same_kind = one.dtype.kind == other.dtype.kind and one.shape == other.shape
        return same_kind and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return type(one) is type(other) and one == other


def test_every_kind_of_field_comes_back(kept):
    after = Fit.load(kept).data
    for field in fields(AllKinds):
        assert equal(getattr(DATA, field.name), getattr(after, field.name)), field.name


def test_draws_come_back_bit_for_bit(kept):
    before, after = some_fit().sampled, Fit.load(kept).sampled
    assert before.draws.keys() == after.draws.keys()
    for name, value in before.draws.items():
        assert value.tobytes() == after.draws[name].tobytes()
    assert equal(before.diverging, after.diverging)
    assert equal(before.n_leapfrog, after.n_leapfrog)
    assert np.isnan(after.k_hat)


def test_what_a_fit_says_comes_back(kept):
    before, after = some_fit(), Fit.load(kept)
    assert after.verdict.as_dict() == before.verdict.as_dict()
    assert after.hygiene == before.hygiene
    assert after.describe() == before.describe()
    assert after.summary() == before.summary()
    assert (after.method, after.elapsed_s, after.record) == (before.method, before.elapsed_s, before.record)


@pytest.mark.parametrize("k", [0.3, np.inf, -np.inf])
def test_the_pareto_shape_comes_back(k, tmp_path):
    before = some_fit()
    changed = replace(
        before, sampled=replace(before.sampled, k_hat=k), verdict=replace(before.verdict, k_hat=k, r_hat=np.nan)
    )
    save(changed, tmp_path / "a.nc")
    after = Fit.load(tmp_path / "a.nc")
    assert after.sampled.k_hat == k
    assert after.verdict.k_hat == k
    assert np.isnan(after.verdict.r_hat)


def test_saving_a_loaded_fit_changes_nothing(kept, tmp_path):
    save(Fit.load(kept), tmp_path / "again.nc")
    again = Fit.load(tmp_path / "again.nc")
    assert all(equal(getattr(DATA, field.name), getattr(again.data, field.name)) for field in fields(DATA))
    assert again.summary() == some_fit().summary()


def test_the_file_has_the_groups_that_arviz_reads(kept):
    with xarray.open_datatree(kept, engine="h5netcdf") as tree:
        assert {"posterior", "sample_stats", "constant_data"} <= set(tree.children)
        assert dict(tree["posterior"].sizes) | {"chain": 2, "draw": 5} == dict(tree["posterior"].sizes)


def test_a_fit_is_written_whole_or_not_at_all(kept, monkeypatch):
    before = kept.read_bytes()

    def fails(self, path, **_):
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(xarray.DataTree, "to_netcdf", fails)
    with pytest.raises(KeyboardInterrupt):
        save(some_fit(), kept)
    assert kept.read_bytes() == before
    assert [file.name for file in kept.parent.iterdir()] == ["kept.nc"]


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="there is no folder"):
        save(some_fit(), tmp_path / "nowhere" / "a.nc")


def test_no_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        Fit.load(tmp_path / "a.nc")
    with pytest.raises(DataError, match="a folder, not a file"):
        Fit.load(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_is_refused(share, whole, kept):
    kept.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DataError, match=r"kept\.nc: "):
        Fit.load(kept)


@pytest.mark.parametrize(
    "content", [b"gpu,duration\n1,2\n", b"\x80\x04N.", b"\x89HDF\r\n\x1a\n", b"CDF\x01" + bytes(60), bytes(4096)]
)
def test_other_files_are_refused(content, kept):
    kept.write_bytes(content)
    with pytest.raises(DataError, match="not a fit that can be read"):
        Fit.load(kept)


def test_another_netcdf_file_is_refused(tmp_path):
    file = tmp_path / "weather.nc"
    xarray.Dataset({"rain": ("day", np.zeros(3))}).to_netcdf(file, engine="h5netcdf")
    with pytest.raises(DataError, match="not one of `prism-jax fit`"):
        Fit.load(file)


def change(file: Path, edit) -> None:
    """`edit` works on what the root's attribute says."""
    with h5py.File(file, "r+") as content:
        about = json.loads(content.attrs["prism_jax_fit"])  # type: ignore[arg-type]
        edit(about)
        content.attrs["prism_jax_fit"] = json.dumps(about)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda about: about.update(format=99), "format 99, but this version reads 1. Fit again"),
        (lambda about: about.update(model="os.system"), "'os.system' is unknown"),
        (lambda about: about.update(model=["fleet"]), "not a fit"),
        (lambda about: about.pop("model"), "model"),
        (lambda about: about.pop("verdict"), "verdict"),
        (lambda about: about["verdict"].pop("ok"), "ok"),
        (lambda about: about["verdict"].update(more=1), "more"),
        (lambda about: about.update(hygiene=3), "not a fit"),
        (lambda about: about["data"].pop("levels"), "levels of the model's data is missing. Fit again"),
    ],
)
def test_what_does_not_fit_this_version_is_refused(edit, says, kept):
    change(kept, edit)
    with pytest.raises(DataError, match=r"kept\.nc: ") as refused:
        Fit.load(kept)
    assert says in str(refused.value)


def test_a_default_stands_in_for_a_field_of_a_later_version(kept):
    change(kept, lambda about: about["data"].pop("later"))
    assert Fit.load(kept).data.later == 2.5


@pytest.mark.parametrize(
    "gone", ["posterior", "sample_stats", "constant_data", "sample_stats/n_steps", "constant_data/table"]
)
def test_missing_groups_and_arrays_are_refused(gone, kept):
    with h5py.File(kept, "r+") as content:
        del content[gone]
    with pytest.raises(DataError, match=r"kept\.nc: "):
        Fit.load(kept)


def test_an_attribute_that_is_no_json_is_refused(kept):
    with h5py.File(kept, "r+") as content:
        content.attrs["prism_jax_fit"] = "{"
    with pytest.raises(DataError, match="not a fit that can be read"):
        Fit.load(kept)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_bytes_give_one_kind_of_error(seed, kept):
    rng = np.random.default_rng(seed)
    damaged = bytearray(kept.read_bytes())
    for at in rng.integers(0, len(damaged), 40):
        damaged[at] = int(rng.integers(256))
    kept.write_bytes(damaged)
    try:
        Fit.load(kept)
    except DataError as error:
        assert "\n" not in str(error)

"""A fit that was saved is the same fit when loaded; every other file is refused by one kind of error."""

import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from inference.engine.program import PosteriorDraws
from inference.fitting.result import Fit
from prism_jax.core import archive
from prism_jax.core.errors import DataError
from prism_jax.fits.report import CleaningReport, Verdict
from tests.inference.engine.toy import Toy
from tests.support.files.archives import changed, npy


@dataclass(frozen=True)
class AllKinds:
    """One field of every kind that a model's data may have."""

    number: Annotated[np.ndarray, "row"]
    table: np.ndarray
    index: Annotated[np.ndarray, "mark -> name or -1"]
    mask: np.ndarray
    limits: np.ndarray
    label: NDArray[np.str_]
    nothing: np.ndarray
    no_label: NDArray[np.str_]
    levels: Annotated[tuple[str, ...], "name"]
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
    index=np.array([0, -1, 2]),
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
    from prism_jax.fits.models import model_named

    def named(name: str):
        return Kinds() if name == "kinds" else model_named(name)

    monkeypatch.setattr(sys.modules["inference.fitting.store"], "model_named", named)


def some_fit() -> Fit:
    rng = np.random.default_rng(0)
    draws = {
        "mean": rng.standard_normal((2, 5)),
        "vector": rng.standard_normal((2, 5, 3)),
        "table": rng.random((2, 5, 2, 2)),
    }
    sampled = PosteriorDraws(draws, rng.random((2, 5)) < 0.3, rng.integers(1, 64, (2, 5)))
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
    file = tmp_path_factory.mktemp("whole") / "kept.npz"
    some_fit().save(file)
    return file.read_bytes()


@pytest.fixture
def kept(whole, tmp_path) -> Path:
    file = tmp_path / "kept.npz"
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
    assert after.verdict == before.verdict
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
    changed.save(tmp_path / "a.npz")
    after = Fit.load(tmp_path / "a.npz")
    assert after.sampled.k_hat == k
    assert after.verdict.k_hat == k
    assert np.isnan(after.verdict.r_hat)


def test_saving_a_loaded_fit_changes_nothing(kept, tmp_path):
    Fit.load(kept).save(tmp_path / "again.npz")
    again = Fit.load(tmp_path / "again.npz")
    assert all(equal(getattr(DATA, field.name), getattr(again.data, field.name)) for field in fields(DATA))
    assert again.summary() == some_fit().summary()


def test_numpy_opens_the_file_and_finds_the_groups_of_arviz(kept):
    with np.load(kept) as file:
        assert {name.partition("/")[0] for name in file.files} == {
            "posterior", "sample_stats", "constant_data", "about.json"
        }  # fmt: skip
        assert np.array_equal(file["posterior/vector"], some_fit().sampled.draws["vector"])


def test_a_fit_is_written_whole_or_not_at_all(kept, monkeypatch):
    before = kept.read_bytes()

    def fails(stream, *_, **__):
        stream.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(archive.np.lib.format, "write_array", fails)
    with pytest.raises(KeyboardInterrupt):
        some_fit().save(kept)
    assert kept.read_bytes() == before
    assert [file.name for file in kept.parent.iterdir()] == ["kept.npz"]


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="there is no folder"):
        some_fit().save(tmp_path / "nowhere" / "a.npz")


def test_no_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        Fit.load(tmp_path / "a.npz")
    with pytest.raises(DataError, match="a folder, not a file"):
        Fit.load(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_is_refused(share, whole, kept):
    kept.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DataError, match=r"kept\.npz: "):
        Fit.load(kept)


@pytest.mark.parametrize(
    "content", [b"gpu,duration\n1,2\n", b"\x80\x04N.", b"\x89HDF\r\n\x1a\n", npy(np.zeros(3)), bytes(4096)]
)
def test_other_files_are_refused(content, kept):
    kept.write_bytes(content)
    with pytest.raises(DataError, match=r"kept\.npz: not the file of a fit .*Fit again: `prism-jax fit"):
        Fit.load(kept)


def test_a_file_of_earlier_versions_is_told_as_that(kept):
    kept.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(DataError, match="netCDF, which earlier versions wrote"):
        Fit.load(kept)


def test_other_archives_are_refused(kept):
    archive.write_archive(kept, "calibration", {}, {"a": np.zeros(3)})
    with pytest.raises(DataError, match="not the file of a fit but of 'calibration'"):
        Fit.load(kept)
    np.savez(kept, a=np.zeros(3))
    with pytest.raises(DataError, match="not the file of a fit"):
        Fit.load(kept)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda about: about.update(format=99), "format 99, but this version reads 2. Fit again"),
        (lambda about: about.update(model="os.system"), "'os.system' is unknown"),
        (lambda about: about.update(model=["fleet"]), "not the file of a fit"),
        (lambda about: about.pop("model"), "model"),
        (lambda about: about.pop("verdict"), "verdict"),
        (lambda about: about["verdict"].pop("ok"), "ok"),
        (lambda about: about["verdict"].update(more=1), "more"),
        (lambda about: about.update(hygiene=3), "not the file of a fit"),
        (lambda about: about["hygiene"].update(n_read="many"), "n_read is of another type"),
        (lambda about: about["hygiene"].update(notes=[1]), "notes is of another type"),
        (lambda about: about["hygiene"].update(dropped=[1]), "dropped is of another type"),
        (lambda about: about["verdict"].update(n_diverging=True), "n_diverging is of another type"),
        (lambda about: about["verdict"].update(sentence=None), "sentence is of another type"),
        (lambda about: about.update(method=["nuts"]), "method is of another type"),
        (lambda about: about.update(record=[]), "record is of another type"),
        (lambda about: about["record"].update(versions=[]), "versions of the record is of another type"),
        (lambda about: about["record"].update(seed="x"), "seed of the record is of another type"),
        (lambda about: about.update(k_hat="x"), "not the file of a fit"),
        (lambda about: about["data"].update(levels="one"), "levels is of another type"),
        (lambda about: about["data"].update(levels=[["one"]]), "levels is of another type"),
        (lambda about: about["data"].update(count=1e30), "count is of another type"),
        (lambda about: about["data"].update(other=1), "'other' is not a field of"),
        (lambda about: about["data"].pop("levels"), "levels of AllKinds is missing. Fit again"),
    ],
)
def test_what_does_not_fit_this_version_is_refused(edit, says, kept):
    changed(kept, lambda about, _: edit(about))
    with pytest.raises(DataError, match=r"kept\.npz: ") as refused:
        Fit.load(kept)
    assert says in str(refused.value)


def test_a_default_stands_in_for_a_field_of_a_later_version(kept):
    changed(kept, lambda about, _: about["data"].pop("later"))
    assert Fit.load(kept).data.later == 2.5


@pytest.mark.parametrize("gone", ["sample_stats/n_steps", "sample_stats/diverging", "constant_data/table"])
def test_missing_arrays_are_refused(gone, kept):
    changed(kept, lambda _, arrays: arrays.pop(gone))
    with pytest.raises(DataError, match=r"kept\.npz: "):
        Fit.load(kept)


WRONG = {
    "posterior/mean": [
        np.zeros(5), np.zeros((2, 6)), np.zeros((0, 5)), np.zeros((2, 5, 0)),
        np.full((2, 5), np.nan), np.full((2, 5), "x"), np.zeros((2, 5), bool)
    ],
    "posterior/vector": [np.full((2, 5, 3), np.inf), np.zeros((5, 2, 3))],
    "sample_stats/diverging": [np.zeros((2, 5)), np.zeros((1, 5), bool), np.zeros(10, bool), np.array("x")],
    "sample_stats/n_steps": [np.zeros((2, 5)), np.zeros((2, 4), int)],
    "constant_data/number": [np.array(["a"]), np.zeros((4, 2)), np.array(1.0)],
    "constant_data/index": [np.array([0, 3, 0]), np.array([0, -2, 0]), np.zeros(3), np.array(["a", "b", "c"])],
    "constant_data/other": [np.zeros(3)],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_arrays_of_another_type_shape_or_range_are_refused(name, value, kept):
    changed(kept, lambda _, arrays: arrays.update({name: value}))
    with pytest.raises(DataError, match=r"kept\.npz: .* Fit again: "):
        Fit.load(kept)


def test_what_its_model_cannot_describe_is_refused(kept):
    changed(kept, lambda _, arrays: arrays.pop("posterior/vector"))
    found = Fit.load(kept)
    with pytest.raises(DataError, match=r"kept\.npz: not the file of a fit \(KeyError: 'vector'\)\. Fit again"):
        found.summary()


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
        assert "Fit again" in str(error)

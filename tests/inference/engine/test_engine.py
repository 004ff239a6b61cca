"""Fits: the posterior is that of the closed form, interrupted or not, and parts are fitted apart."""

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import pytest
from numpyro.handlers import scope
from scipy import stats

import inference
from inference import Settings
from inference.engine.diagnostics import verdict
from inference.engine.program import PosteriorDraws, independent, together
from inference.fitting.fit import posterior, posterior_near
from prism_jax.core.errors import DataError, FitError
from prism_jax.core.processes import Progress, silent
from tests.inference.engine.toy import Toy, ToyData, exact, readings
from tests.support.files.archives import changed, npy

SETTINGS = Settings(
    n_chain=2, n_warmup=100, n_draw=300, block=50, n_svi_step=200, n_approximate_draw=2000, n_extension=0
)
SHORT = Settings(n_chain=2, n_warmup=20, n_draw=40, block=20)
FEWEST_EFFECTIVE = 300.0  # of 600 draws of two chains; of 2,000 that were drawn again out of 8,000 weighted ones
SIGMA = 5.0  # two-sided false-alarm rate 6e-7 per comparison, 18 comparisons: 1e-5
PROBABILITIES = (0.05, 0.5, 0.95)


def short(seed: int = 0, frame_seed: int = 1, **more) -> PosteriorDraws:
    data = Toy().prepare(readings(20, seed=frame_seed))
    return posterior(Toy(), data, "nuts", jax.random.key(seed), settings=more.pop("settings", SHORT), **more)


def same(one: PosteriorDraws, other: PosteriorDraws) -> bool:
    equal = [np.array_equal(one.draws[name], other.draws[name]) for name in one.draws]
    return all([one.draws.keys() == other.draws.keys(), *equal, np.array_equal(one.n_leapfrog, other.n_leapfrog)])


@pytest.fixture(scope="module")
def uninterrupted() -> PosteriorDraws:
    return short()


@pytest.mark.parametrize("method", ["nuts", "svi", "map"])
def test_draws_follow_the_known_posterior(method):
    frame = readings()
    fitted = inference.fit(frame, model=Toy(), method=method, key=jax.random.key(3), settings=SETTINGS)
    assert fitted.verdict.k_hat < 0.4 or method == "nuts"
    if method == "nuts":
        assert fitted.sampled.draws["mean"].shape == (2, 300)
        assert fitted.verdict.r_hat < 1.05
        assert not fitted.sampled.diverging.any()
    for site, law in exact(frame).items():
        draws = fitted.draws[site]
        for p in PROBABILITIES:
            error = SIGMA * np.sqrt(p * (1.0 - p) / FEWEST_EFFECTIVE)
            assert (draws < law.ppf(p)).mean() == pytest.approx(p, abs=error), (site, p)
    np.testing.assert_allclose(fitted.draws["spread"], fitted.draws["precision"] ** -0.5)


def test_the_posterior_is_in_double_precision_and_the_setting_is_left_alone(uninterrupted):
    assert uninterrupted.draws["mean"].dtype == np.float64
    assert not jax.config.read("jax_enable_x64")


def test_the_same_seed_gives_the_same_draws_and_another_one_others(uninterrupted):
    assert same(short(), uninterrupted)
    other = short(seed=1)
    assert not np.isin(other.draws["mean"], uninterrupted.draws["mean"]).any()


def test_chains_go_on_where_their_draws_will_not_do(uninterrupted, tmp_path):
    """Never enough: as often as is allowed; the first draws are those of a run that was not prolonged."""
    file, asked = tmp_path / "fit.partial", []

    def enough(drawn: PosteriorDraws) -> bool:
        asked.append(drawn.diverging.shape[1])
        return False

    data = Toy().prepare(readings(20, seed=1))
    longer = posterior(Toy(), data, "nuts", jax.random.key(0), settings=SHORT, resume=file, enough=enough)
    first = SHORT.n_draw
    assert asked == [first, 2 * first]
    assert longer.draws["mean"].shape == (2, (1 + SHORT.n_extension) * first)
    np.testing.assert_array_equal(longer.draws["mean"][:, :first], uninterrupted.draws["mean"])
    again = posterior(Toy(), data, "nuts", jax.random.key(0), settings=SHORT, resume=file, enough=enough)
    assert same(again, longer), "a finished run is read"


def test_chains_that_are_stopped_while_they_go_on_are_judged_where_they_would_have_been(tmp_path):
    def run(file: Path, progress: Progress = silent) -> PosteriorDraws:
        def enough(drawn: PosteriorDraws) -> bool:
            return drawn.diverging.shape[1] > SHORT.n_draw

        data = Toy().prepare(readings(20, seed=1))
        key = jax.random.key(0)
        return posterior(Toy(), data, "nuts", key, settings=SHORT, resume=file, enough=enough, progress=progress)

    blocks: list[float] = []

    def stops(done: float, what: str = "", /) -> None:
        blocks.append(done)
        if len(blocks) == SHORT.n_block + 1:  # the first of those that were not planned
            raise Interrupted

    whole = run(tmp_path / "whole.partial")
    with pytest.raises(Interrupted):
        run(tmp_path / "fit.partial", stops)
    assert same(run(tmp_path / "fit.partial"), whole)


def test_chains_of_a_run_differ(uninterrupted):
    one, two = uninterrupted.draws["mean"]
    assert not np.isin(one, two).any()


def test_the_same_seed_gives_the_same_approximate_draws():
    data = Toy().prepare(readings(20))
    few = Settings(n_svi_step=200, n_approximate_draw=100)
    one, again, other = (posterior(Toy(), data, "map", jax.random.key(seed), settings=few) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.draws["mean"], again.draws["mean"])
    assert not np.array_equal(one.draws["mean"], other.draws["mean"])


class Interrupted(Exception):
    """What Ctrl-C is in these tests."""


def stop_after(share: float):
    def progress(done: float) -> None:
        if done >= share:
            raise Interrupted

    return progress


@pytest.mark.parametrize("share", [0.3, 0.6], ids=["in the warm-up", "among the draws"])
def test_an_interrupted_run_goes_on_to_the_same_draws(share, uninterrupted, tmp_path):
    file = tmp_path / "fit.partial"
    with pytest.raises(Interrupted):
        short(resume=file, progress=stop_after(share))
    assert file.exists()
    shares: list[float] = []
    continued = short(resume=file, progress=shares.append)
    assert same(continued, uninterrupted)
    assert len(shares) == SHORT.n_block - round(np.ceil(share * SHORT.n_block)), (
        "blocks that were done are not done again"
    )


def test_a_finished_run_is_read_and_not_run_again(uninterrupted, tmp_path):
    file = tmp_path / "fit.partial"
    short(resume=file)
    shares: list[float] = []
    assert same(short(resume=file, progress=shares.append), uninterrupted)
    assert shares == []


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory) -> bytes:
    file = tmp_path_factory.mktemp("unfinished") / "fit.partial"
    with pytest.raises(Interrupted):
        short(resume=file, progress=stop_after(0.6))
    return file.read_bytes()


@pytest.mark.parametrize(
    "other",
    [{"seed": 1}, {"frame_seed": 2}, {"settings": Settings(n_chain=2, n_warmup=20, n_draw=20, block=20)}],
    ids=["seed", "data", "settings"],
)
def test_what_another_run_left_is_refused_and_kept(other, unfinished, tmp_path):
    file = tmp_path / "fit.partial"
    file.write_bytes(unfinished)
    with pytest.raises(DataError, match="belongs to another unfinished fit.*or remove it"):
        short(resume=file, **other)
    assert file.read_bytes() == unfinished


def broken_files(good: bytes) -> dict[str, bytes]:
    half, middle = len(good) // 2, len(good) // 3
    return {
        "empty": b"",
        "text": b"step,time\n1,2\n",
        "cut": good[:half],
        "damaged": good[:middle] + bytes(200) + good[middle + 200 :],
        "a pickle": b"\x80\x04N.",
        "an array": npy(np.zeros(3)),
    }


@pytest.mark.parametrize("kind", broken_files(b""))
def test_a_damaged_file_is_refused(kind, unfinished, tmp_path):
    file = tmp_path / "fit.partial"
    file.write_bytes(broken_files(unfinished)[kind])
    with pytest.raises(DataError, match=r"fit\.partial: .*or remove it to start over"):
        short(resume=file)


@pytest.mark.parametrize("seed", range(5))
def test_damaged_bytes_give_one_kind_of_error_or_none_that_matters(seed, uninterrupted, unfinished, tmp_path):
    rng, damaged = np.random.default_rng(seed), bytearray(unfinished)
    for at in rng.integers(0, len(damaged), 30):
        damaged[at] ^= 1 << int(rng.integers(8))
    file = tmp_path / "fit.partial"
    file.write_bytes(damaged)
    with contextlib.suppress(DataError):
        assert same(short(resume=file), uninterrupted)


WRONG = {
    "draws that are missing": lambda _, arrays: arrays.pop("kept/1"),
    "states that are missing": lambda _, arrays: arrays.pop("state/0"),
    "an unknown array": lambda _, arrays: arrays.update(more=np.zeros(3)),
    "draws of another shape": lambda _, arrays: arrays.update({"kept/0": arrays["kept/0"][:, :-1]}),
    "draws of another type": lambda _, arrays: arrays.update({"kept/1": np.full(arrays["kept/1"].shape, "x")}),
    "states of another shape": lambda _, arrays: arrays.update({"state/0": np.zeros((3, 3))}),
    "more blocks than draws": lambda about, _: about.update(n_block=about["n_block"] + 1),
    "no number of blocks": lambda about, _: about.update(n_block="x"),
    "blocks without end": lambda about, _: about.update(n_block=1 << 60),
    "fewer blocks than none": lambda about, _: about.update(n_block=-1),
    "no identity": lambda about, _: about.pop("identity"),
    "another identity": lambda about, _: about.update(identity=[1]),
    "draws from nowhere": lambda _, arrays: arrays["kept/0"].fill(np.nan),
    "chains that are nowhere": lambda _, arrays: [own.fill(np.nan) for own in arrays.values() if own.dtype.kind == "f"],
    "pickles": lambda _, arrays: arrays.update({"state/0": npy(np.array([None], dtype=object))}),
}


@pytest.mark.parametrize("edit", WRONG.values(), ids=WRONG)
def test_an_unfinished_fit_that_contradicts_itself_is_refused(edit, unfinished, tmp_path):
    file = tmp_path / "fit.partial"
    file.write_bytes(unfinished)
    changed(file, edit)
    with pytest.raises(DataError, match=r"fit\.partial: .*or remove it to start over"):
        short(resume=file)


def test_unknown_names_get_a_hint():
    key = jax.random.key(0)
    with pytest.raises(FitError, match="'nutz' is unknown; known are nuts, svi, map"):
        inference.fit(readings(20), model=Toy(), method="nutz", key=key)
    with pytest.raises(FitError, match="did you mean fleet"):
        inference.fit(readings(20), model="flet", key=key)


@pytest.mark.parametrize("wrong", [{"n_chain": 0}, {"n_draw": 75}, {"block": 0}, {"n_approximate_draw": 0}])
def test_settings_that_make_no_run_are_refused(wrong):
    with pytest.raises(FitError, match=next(iter(wrong))):
        Settings(**wrong)


def test_a_fit_of_fewer_data_begins_where_another_ended():
    """The posterior of half the readings, from draws of that of all: as good as from nothing."""
    frame = readings()
    data = Toy().prepare(frame)
    few = Settings(n_approximate_draw=2000)
    everything = posterior(Toy(), data, "map", jax.random.key(0), settings=few)
    fewer = frame.iloc[::2]
    half = Toy().prepare(fewer)
    found = posterior_near(Toy(), half, everything.flat, "svi", jax.random.key(1), settings=few)
    assert found.k_hat < 0.7
    for site, law in exact(fewer).items():
        for p in PROBABILITIES:
            error = SIGMA * np.sqrt(p * (1.0 - p) / FEWEST_EFFECTIVE)
            assert (found.draws[site] < law.ppf(p)).mean() == pytest.approx(p, abs=error), (site, p)


# --- Parts -----------------------------------------------------------------------------------------------------------
# A posterior that factorises is sampled part by part: the same law as that of the whole, judged by its worst part.


PARTS_SETTINGS = inference.Settings(n_chain=2, n_warmup=100, n_draw=100, n_approximate_draw=1000)


@dataclass(frozen=True)
class TwoData:
    """Readings of two instruments [obs]."""

    first: np.ndarray
    second: np.ndarray


class Two(Toy):
    """Two instruments that have nothing in common."""

    reported: ClassVar[tuple[str, ...]] = ("first_mean", "second_mean")

    def parts(self, data: TwoData) -> dict[str, tuple[Toy, ToyData]]:
        none = np.array([], dtype=str)
        return {name: (Toy(), ToyData(getattr(data, name), none)) for name in ("first", "second")}

    def joined(self, found: dict[str, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        return {f"{part}_{site}": value for part, draws in found.items() for site, value in draws.items()}

    def program(self, data: TwoData) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for name, (part, own) in self.parts(data).items():
            with scope(prefix=name):
                part.program(own)


TABLES = {"first": readings(seed=1), "second": readings(25, seed=2, mean=-4.0, spread=0.2)}
DATA = TwoData(*(table["reading"].to_numpy() for table in TABLES.values()))


@pytest.mark.parametrize("method", ["map", "nuts"])
def test_every_part_has_the_law_that_it_has_alone(method: str) -> None:
    """KS distance of 200 to 1,000 draws at most 2.2 / sqrt(effective draws): a false alarm in 7,000 per figure."""
    found: Any = posterior(Two(), DATA, method, jax.random.key(3), settings=PARTS_SETTINGS)
    for part, table in TABLES.items():
        for site, law in exact(table).items():
            draws = found.draws[f"{part}_{site}"].ravel()
            assert stats.kstest(draws, law.cdf).statistic < 2.2 / np.sqrt(100.0)


def test_parts_do_not_share_their_noise() -> None:
    found: Any = posterior(Two(), DATA, "map", jax.random.key(0), settings=PARTS_SETTINGS)
    one, other = (stats.rankdata(found.draws[f"{part}_mean"][0]) for part in TABLES)
    assert abs(np.corrcoef(one, other)[0, 1]) < 4.0 / np.sqrt(1000.0)


def drawn(k_hat: float, seed: int) -> PosteriorDraws:
    draws = np.random.default_rng(seed).standard_normal(400)
    return independent({"mean": draws}, k_hat, draws[:, None])


def test_the_worst_part_is_the_verdict() -> None:
    found = together(Two().joined, {"first": drawn(0.1, 0), "second": drawn(0.9, 1)})
    assert found.k_hat == 0.9
    assert verdict(found, ()).cause == "approximation"


def test_a_longer_part_is_thinned_and_keeps_its_chains_and_columns() -> None:
    short, long = drawn(np.nan, 0), drawn(np.nan, 1)
    draws = np.arange(1600.0).reshape(2, 800)
    none = np.zeros(draws.shape, dtype=int)
    long = replace(long, draws={"mean": draws}, diverging=none == 1, n_leapfrog=none, flat=draws.reshape(-1, 1))
    short = replace(
        short,
        draws={"mean": draws[:, :400]}, diverging=none[:, :400] == 0, n_leapfrog=none[:, :400] + 3,
        flat=draws[:, :400].reshape(-1, 1),
    )  # fmt: skip
    found = together(Two().joined, {"first": long, "second": short})
    kept = found.draws["first_mean"]
    assert kept.shape == (2, 400)
    assert (kept[0] < 800).all()
    assert (kept[1] >= 800).all()
    assert found.flat is not None
    np.testing.assert_array_equal(found.flat[:, 0], kept.ravel())
    assert found.diverging.all()
    assert (found.n_leapfrog == 3).all()

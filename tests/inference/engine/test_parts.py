"""A posterior that factorises is sampled part by part: the same law as that of the whole, judged by its worst part."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import numpy as np
import pytest
from numpyro.handlers import scope
from scipy import stats

import inference
from inference.engine.diagnostics import verdict
from inference.engine.program import PosteriorDraws, independent, together
from inference.fitting.fit import posterior

from .toy import Toy, ToyData, exact, readings

SETTINGS = inference.Settings(n_chain=2, n_warmup=100, n_draw=100, n_approximate_draw=1000)


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
    found: Any = posterior(Two(), DATA, method, jax.random.key(3), settings=SETTINGS)
    for part, table in TABLES.items():
        for site, law in exact(table).items():
            draws = found.draws[f"{part}_{site}"].ravel()
            assert stats.kstest(draws, law.cdf).statistic < 2.2 / np.sqrt(100.0)


def test_parts_do_not_share_their_noise() -> None:
    found: Any = posterior(Two(), DATA, "map", jax.random.key(0), settings=SETTINGS)
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

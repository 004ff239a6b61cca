# pyright: reportArgumentType=false
# (of pandas without stubs, every expression may be of any type)
"""Lengths of documents and routing: what was put in is found again, intervals cover it, wrong tables are refused."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import inference
from inference.work import sample_gini
from prism_jax.core.errors import DataError, FitError
from prism_jax.fits.models import model_named
from prism_jax.job.read_tables import read_counts
from prism_jax.shell.app import main
from prism_jax.workload.transformer.routing import ExpertRouting, concentration_of, gini_of

MEAN, CV, CUT = 700.0, 1.2, 4096
EXPERTS = 16
GINI = 0.2
N_SET = 100


def documents(rng: np.random.Generator, n: int = 400) -> pd.DataFrame:
    """Documents of a log-normal family, those beyond the longest cut off."""
    spread = np.sqrt(np.log1p(CV**2))
    tokens = rng.lognormal(np.log(MEAN) - 0.5 * spread**2, spread, n)
    return pd.DataFrame({"tokens": np.clip(np.rint(tokens), 1, CUT), "source": np.where(np.arange(n) % 2, "a", "b")})


def counts(rng: np.random.Generator, n_layer: int = 4, n_step: int = 3, stays: bool = False) -> pd.DataFrame:
    """Tokens of experts by layer and step, of popularity that is drawn anew or stays."""
    a, rows = concentration_of(GINI, EXPERTS), []
    for layer in range(n_layer):
        share = rng.dirichlet(np.full(EXPERTS, a))
        for step in range(n_step):
            share = share if stays else rng.dirichlet(np.full(EXPERTS, a))
            rows += [(layer, step, expert, n) for expert, n in enumerate(rng.multinomial(8192, share))]
    return pd.DataFrame(rows, columns=["layer", "step", "expert", "tokens"])


def fitted(name: str, frame: pd.DataFrame) -> Any:
    return inference.fit(frame, model=name, key=jax.random.key(0))


def test_mean_and_spread_of_lengths_are_found() -> None:
    fit = fitted("lengths", documents(np.random.default_rng(0), 20_000))
    told = fit.model.describe(fit.data, fit.draws)
    assert told["mean_tokens"]["median"] == pytest.approx(MEAN, rel=0.02)
    assert told["cv"]["median"] == pytest.approx(CV, rel=0.03)
    assert told["n_cut"] > 50
    assert "notes" not in told
    lengths = fit.model.law(fit.data, fit.draws)
    assert lengths.n_tokens / lengths.n_documents == pytest.approx(MEAN, rel=0.03)
    assert lengths.written["kind"] == "log_normal"


def test_counts_of_lengths_say_as_much_as_documents() -> None:
    table = documents(np.random.default_rng(1))
    few = pd.DataFrame({"tokens": table["tokens"].unique()})
    few["documents"] = [(table["tokens"] == tokens).sum() for tokens in few["tokens"]]
    one, other = (fitted("lengths", frame).draws["level"] for frame in (table, few))
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_documents_of_one_length_are_documents() -> None:
    """Multiples of 256, which no rounding explains: none is a copy of another, and nothing is said of them."""
    tokens = 256 * np.random.default_rng(7).integers(1, 9, 500)
    fit = fitted("lengths", pd.DataFrame({"tokens": tokens}))
    assert fit.hygiene.n_kept == 500
    assert not fit.hygiene.notes


@pytest.mark.parametrize("name", ["lengths", "routing"])
def test_replicated_values_are_those_that_were_measured(name: str) -> None:
    """By the truth's own data; of a mixture of two kinds they are not."""
    rng = np.random.default_rng(8)
    checks = fitted(name, documents(rng, 2000) if name == "lengths" else counts(rng, 8, 8)).check()
    assert checks is not None
    assert checks.coverage(0.9) == pytest.approx(0.9, abs=0.05)
    if name == "lengths":
        two = pd.DataFrame({"tokens": np.rint(np.concatenate([rng.normal(200, 5, 500), rng.normal(6000, 50, 500)]))})
        assert fitted(name, two).check().coverage(0.5) < 0.1  # both kinds lie beyond the middle of one family


def test_lengths_of_two_kinds_are_told_apart_from_a_family() -> None:
    rng = np.random.default_rng(2)
    tokens = np.concatenate([rng.normal(200, 5, 500), rng.normal(6000, 50, 500)])
    fit = fitted("lengths", pd.DataFrame({"tokens": np.rint(tokens)}))
    assert "the table itself" in fit.model.describe(fit.data, fit.draws)["notes"][0]


def test_the_gini_coefficient_of_routing_is_found() -> None:
    fit = fitted("routing", counts(np.random.default_rng(3), 12, 6))
    told = fit.model.describe(fit.data, fit.draws)
    assert told["gini"]["median"] == pytest.approx(GINI, rel=0.05)
    assert told["share_that_stays"] < 0.2
    law = fit.model.law(fit.data, fit.draws)
    assert isinstance(law, ExpertRouting)
    assert law.gini == pytest.approx(GINI, rel=0.05)


def test_popularity_that_stays_is_said() -> None:
    fit = fitted("routing", counts(np.random.default_rng(4), stays=True))
    told = fit.model.describe(fit.data, fit.draws)
    assert told["share_that_stays"] > 0.9
    assert "stays from step to step" in told["notes"][0]


def drifting(
    rng: np.random.Generator, drift: float, n_layer: int = 12, n_step: int = 60, every: int = 1
) -> pd.DataFrame:
    """Tokens of experts whose popularity is renewed by a share in every step, of which some are logged."""
    a, rows = concentration_of(GINI, EXPERTS), []
    g = rng.gamma(a, size=(n_layer, EXPERTS))
    for step in range(n_step * every):
        if step % every == 0:
            tokens = rng.multinomial(8192, g / g.sum(axis=1, keepdims=True))
            rows += [(step, layer, *own) for layer, own in enumerate(tokens.tolist())]
        g = rng.beta(a * (1.0 - drift), a * drift, g.shape) * g + rng.gamma(a * drift, size=g.shape)
    return pd.DataFrame(rows, columns=["step", "layer", *map(str, range(EXPERTS))])


@pytest.mark.parametrize(("drift", "every"), [(0.1, 1), (0.4, 1), (0.02, 10)])
def test_the_drift_of_popularity_is_found(drift: float, every: int, tmp_path: Path) -> None:
    """In tables with a column per expert, as jobs take them."""
    table = drifting(np.random.default_rng(9), drift, every=every)
    table.to_csv(tmp_path / "counts.csv", index=False)
    fit: Any = inference.fit(tmp_path / "counts.csv", model="routing", key=jax.random.key(0))
    told = fit.model.describe(fit.data, fit.draws)
    assert told["drift"] == pytest.approx(drift, rel=0.15)
    assert told["model.moe.routing"] == {"gini": pytest.approx(GINI, rel=0.1), "drift": told["drift"]}
    assert fit.model.law(fit.data, fit.draws).drift == told["drift"]
    np.testing.assert_array_equal(
        fit.data.tokens.reshape(12, -1, EXPERTS).swapaxes(0, 1), read_counts(tmp_path / "counts.csv").tokens
    )


def test_popularity_that_is_new_in_every_step_has_no_drift() -> None:
    fit = fitted("routing", counts(np.random.default_rng(10), 8, 20))
    assert "drift" not in fit.model.describe(fit.data, fit.draws)
    assert fit.model.law(fit.data, fit.draws).drift is None


def test_sources_and_layers_that_were_left_out_are_scored() -> None:
    rng = np.random.default_rng(5)
    table = documents(rng, 2000)
    fit = fitted("lengths", table[table["source"] == "a"])
    (score,) = fit.model.score(fit.data, fit.draws, table[table["source"] == "b"], "source", jax.random.key(1))
    assert max(score.ks, score.ks_empirical) < 0.07
    table = counts(rng, 8, 6)
    fit = fitted("routing", table[table["layer"] < 7])
    (score,) = fit.model.score(fit.data, fit.draws, table[table["layer"] == 7], "layer", jax.random.key(1))
    assert score.coverage_90 >= 0.5


def test_gini_of_counts() -> None:
    assert sample_gini(np.array([1, 1, 1, 1])) == 0.0
    assert sample_gini(np.array([0, 0, 0, 1])) == 0.75
    rng = np.random.default_rng(6)
    drawn = [sample_gini(rng.dirichlet(np.full(EXPERTS, 3.0))) for _ in range(4000)]
    assert np.mean(drawn) == pytest.approx(gini_of(3.0, EXPERTS), rel=0.01)


@pytest.mark.parametrize(
    ("name", "frame", "said"),
    [
        ("lengths", pd.DataFrame({"tokens": [512] * 30}), "1 unlike lengths"),
        ("lengths", pd.DataFrame({"tokens": [512, -1, 3] * 10}), "tokens"),
        ("routing", pd.DataFrame({"expert": ["a"] * 30, "tokens": [3] * 30}), "all rows are of one expert, 'a'"),
        ("routing", pd.DataFrame({"expert": list("ab") * 15, "tokens": [0] * 30}), "no expert has any tokens"),
    ],
)
def test_wrong_tables_are_refused(name: str, frame: pd.DataFrame, said: str) -> None:
    with pytest.raises(DataError, match=said):
        fitted(name, frame)


@pytest.mark.parametrize("name", ["lengths", "routing"])
def test_they_say_nothing_of_gpus(name: str) -> None:
    with pytest.raises(FitError, match="not how GPUs vary"):
        model_named(name).variability(None, {})


@pytest.mark.parametrize("name", ["lengths", "routing"])
def test_intervals_cover_what_was_put_in(name: str) -> None:
    """90% intervals of 100 data sets hold the truth 85 to 95 times."""
    wanted = {"lengths": (("mean_tokens", MEAN), ("cv", CV)), "routing": (("gini", GINI),)}[name]
    held = dict.fromkeys((what for what, _ in wanted), 0)
    for seed in range(N_SET):
        rng = np.random.default_rng(1000 + seed)
        fit = fitted(name, documents(rng) if name == "lengths" else counts(rng))
        told = fit.model.describe(fit.data, fit.draws)
        for what, truth in wanted:
            held[what] += told[what]["p5"] <= truth <= told[what]["p95"]
    assert all(85 <= n <= 95 for n in held.values()), held


def test_a_fit_that_leaves_its_data_outside_of_its_band_is_not_called_good(tmp_path: Path, capsys: Any) -> None:
    """One hot expert, a new one in every step, is no draw of a Dirichlet law; the even ones are."""
    rng, rows = np.random.default_rng(11), []
    for step in range(30):
        share = 0.7 * rng.dirichlet(np.full(EXPERTS, 50.0)) + 0.3 * (np.arange(EXPERTS) == rng.integers(EXPERTS))
        rows += [(step, expert, n) for expert, n in enumerate(rng.multinomial(8192, share))]
    hot = pd.DataFrame(rows, columns=["step", "expert", "tokens"])
    for table, judged in ((hot, "Unlike the data: 9"), (counts(rng, 6, 5), "Good: ")):
        table.to_csv(tmp_path / "routing.csv", index=False)
        main(["fit", "routing", str(tmp_path / "routing.csv"), "--details"])
        told = capsys.readouterr().out
        assert told.splitlines()[1].startswith(judged)
        assert ("Give the job the table itself: model.moe.routing" in " ".join(told.split())) == (table is hot)

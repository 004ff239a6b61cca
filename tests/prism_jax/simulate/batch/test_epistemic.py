"""The band of what is not known: nothing where nothing is unknown, and as wide as what the draws disagree about."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from prism_jax.core.kernels import COMPUTE_CLASSES
from prism_jax.simulate import columns
from prism_jax.simulate.batches import alike, epistemic_band
from prism_jax.simulate.predict import columns_or_full, predict
from prism_jax.simulate.program import lower
from prism_jax.variability.families import LogNormal
from prism_jax.variability.family_registry import Mixture
from prism_jax.variability.tree import ClassVariability, Variability
from tests.support.jobs import make_job

KEY = jax.random.key(0)
QUANTILES = {"p5": 0.05, "p50": 0.5, "p95": 0.95}
N = 300


def step_varies(cv: float) -> Variability:
    return Variability("step", step=LogNormal(cv))


JOB = make_job(step_varies(0.1), tp=1, pp=1, dp=2, n_micro_batch=1)


def band(*cvs: float, **more) -> dict[str, tuple[float, float]]:
    return epistemic_band(JOB, [step_varies(cv) for cv in cvs], QUANTILES, key=KEY, n_samples=N, **more)


@pytest.mark.parametrize("n_draw", [1, 3])
def test_draws_that_agree_leave_a_band_of_no_width_at_the_prediction(n_draw):
    predicted = predict(JOB, key=KEY, n_samples=N)
    for name, (low, high) in band(*[0.1] * n_draw).items():
        assert low == high == pytest.approx(predicted.quantile(QUANTILES[name]), rel=1e-6)


def test_the_band_holds_the_quantiles_of_its_draws():
    """Two draws: the 5 % and 95 % points between their quantiles, by interpolation."""
    ends = np.array([[band(cv)[name][0] for name in QUANTILES] for cv in (0.05, 0.2)])
    for i, (low, high) in enumerate(band(0.05, 0.2).values()):
        assert (low, high) == pytest.approx(tuple(np.quantile(ends[:, i], [0.05, 0.95])), rel=1e-9)


def test_the_less_is_known_the_wider_the_band():
    known, unknown = band(0.09, 0.1, 0.11), band(0.02, 0.1, 0.3)
    for name in ("p5", "p95"):
        assert np.ptp(known[name]) < np.ptp(unknown[name])


def test_the_variability_of_the_job_itself_does_not_count():
    quiet = make_job(Variability(), tp=1, pp=1, dp=2, n_micro_batch=1)
    draws = [step_varies(0.05), step_varies(0.2)]
    assert epistemic_band(quiet, draws, QUANTILES, key=KEY, n_samples=N) == band(0.05, 0.2)


def mixtures() -> list[Variability]:
    """Laws that need different numbers of knots."""
    laws = [
        LogNormal(0.02),
        Mixture(0.02, 0.05, 1.3, 0.05),
        Mixture(0.001, 0.2, 1.5, 0.01),
        Mixture(0.1, 0.01, 1.1, 0.1),
    ]
    trees = [
        ClassVariability(gpu=law, node=LogNormal(0.01), call=LogNormal(cv))
        for law, cv in zip(laws, (0.01, 0.2, 0.5, 0.9), strict=True)
    ]
    return [Variability("mixture", dict.fromkeys(COMPUTE_CLASSES, tree)) for tree in trees]


def test_chains_of_equal_length_change_no_prediction():
    """Up to the order in which single precision adds."""
    programs = [lower(replace(JOB, variability=tree)) for tree in mixtures()[:2]]
    assert len({len(program.gpu[0].knots) for program in programs}) == 2
    for program, padded in zip(programs, alike(programs), strict=True):
        before, after = (columns_or_full(p, KEY, N).samples_s for p in (program, padded))
        np.testing.assert_allclose(after, before, rtol=1e-5)


def test_one_compilation_serves_all_draws(monkeypatch):
    made = {}
    original = columns._compiled

    def recorded(*arguments):
        made[arguments] = original(*arguments)
        return made[arguments]

    original.cache_clear()
    monkeypatch.setattr(columns, "_compiled", recorded)
    epistemic_band(JOB, mixtures(), QUANTILES, key=KEY, n_samples=N)
    assert [function._cache_size() for function in made.values()] == [1]


def test_progress_is_told():
    shares: list[float] = []
    band(0.1, 0.1, progress=shares.append)
    assert shares == [0.5, 1.0]

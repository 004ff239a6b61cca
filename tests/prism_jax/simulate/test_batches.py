"""Many jobs at once: draws of a fit, and jobs of one shape."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import jax
import numpy as np
import pytest
from jax import monitoring

from prism_jax.core.errors import ConfigError
from prism_jax.core.kernels import COMPUTE_CLASSES
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.prediction.predict import predict_many
from prism_jax.result.distribution import MedianInterval
from prism_jax.simulate import batches, columns
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
    return ends(epistemic_band(JOB, [step_varies(cv) for cv in cvs], QUANTILES, key=KEY, n_samples=N, **more))


def ends(found: dict[str, MedianInterval]) -> dict[str, tuple[float, float]]:
    assert all(one.p5 <= one.median <= one.p95 for one in found.values())
    return {name: (one.p5, one.p95) for name, one in found.items()}


@pytest.mark.parametrize("n_draw", [1, 3])
def test_draws_that_agree_leave_a_band_of_no_width_at_the_prediction(n_draw):
    predicted = predict(JOB, key=KEY, n_samples=N)
    for name, (low, high) in band(*[0.1] * n_draw).items():
        assert low == high == pytest.approx(predicted.quantile(QUANTILES[name]), rel=1e-6)


def test_the_band_holds_the_quantiles_of_its_draws():
    """Two draws: the 5% and 95% points between their quantiles, by interpolation."""
    lone = np.array([[band(cv)[name][0] for name in QUANTILES] for cv in (0.05, 0.2)])
    for i, (low, high) in enumerate(band(0.05, 0.2).values()):
        assert (low, high) == pytest.approx(tuple(np.quantile(lone[:, i], [0.05, 0.95])), rel=1e-9)


def test_the_less_is_known_the_wider_the_band():
    known, unknown = band(0.09, 0.1, 0.11), band(0.02, 0.1, 0.3)
    for name in ("p5", "p95"):
        assert np.ptp(known[name]) < np.ptp(unknown[name])


def test_the_variability_of_the_job_itself_does_not_count():
    quiet = make_job(Variability(), tp=1, pp=1, dp=2, n_micro_batch=1)
    draws = [step_varies(0.05), step_varies(0.2)]
    assert ends(epistemic_band(quiet, draws, QUANTILES, key=KEY, n_samples=N)) == band(0.05, 0.2)


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


# --- Sweeps: many jobs at once give what each gives alone, and another spread compiles nothing -----------------------


COMPILED = "/jax/core/compile/backend_compile_duration"
SCALES = (0.5, 0.8, 1.0, 1.5, 2.0)


@contextmanager
def compilations() -> Iterator[list[str]]:
    """Names of what is compiled, or read from the cache, inside."""
    found: list[str] = []
    is_on = True

    def note(event: str, duration_secs: float, **_: str | int) -> None:
        if is_on and event == COMPILED:
            found.append(event)

    monitoring.register_event_duration_secs_listener(note)
    yield found
    is_on = False


@pytest.fixture(scope="module")
def job() -> Job:
    plan = ["plan.tp=2", "plan.pp=2", "plan.dp=4", "plan.global_batch=16", "plan.micro_batch=1"]
    return load_job("gpt3_175b_1024", [*plan, "plan.virtual_stages=1", "plan.schedule=1f1b", "cluster.n_devices=16"])


def varied(job: Job, scale: float) -> Job:
    return replace(job, variability=job.variability.scaled(scale))


def test_many_jobs_give_what_each_gives_alone(job):
    plans = [job.plan, replace(job.plan, tp=1, dp=8), replace(job.plan, pp=1, tp=4)]
    jobs = [varied(replace(job, plan=plan), scale) for plan, scale in product(plans, (0.5, 1.5))]
    told = []
    found = predict_many(jobs, key=KEY, n_samples=64, progress=lambda done, what="", /: told.append(done))
    for one, own in zip(jobs, found, strict=True):
        alone = predict(one, key=KEY, n_samples=64, pad=True)
        assert np.array_equal(alone.samples_s, own.samples_s)
    assert told == pytest.approx(np.arange(1, len(jobs) + 1) / len(jobs))


def test_on_an_accelerator_all_spreads_of_a_job_are_one_call(job, monkeypatch):
    jobs = [varied(job, scale) for scale in SCALES]
    one_by_one = predict_many(jobs, key=KEY, n_samples=64)
    calls, original = [], columns.gathered
    for module in (batches, columns):
        monkeypatch.setattr(module, "on_accelerator", lambda: True)
    monkeypatch.setattr(columns, "gathered", lambda times: calls.append(times.shape) or original(times))
    together = predict_many(jobs, key=KEY, n_samples=64)
    assert [shape[0] for shape in calls] == [8]  # five, and three more of the last
    for one, other in zip(one_by_one, together, strict=True):
        np.testing.assert_allclose(other.samples_s, one.samples_s, rtol=1e-5)


def test_another_spread_compiles_nothing(job):
    predict_many([job], key=KEY, n_samples=64)
    with compilations() as compiled:
        found = predict_many([varied(job, scale) for scale in SCALES], key=KEY, n_samples=64)
        assert compiled == []
    spread = [one.std_s for one in found]
    assert spread == sorted(spread)
    with compilations() as compiled:
        predict(replace(job, plan=replace(job.plan, tp=1, dp=8)), key=KEY, n_samples=32)
        assert compiled  # the count would see it


def test_a_job_that_cannot_be_is_refused(job):
    with pytest.raises(ConfigError, match="no such file"):
        predict_many([job, "no_such_job.yaml"], key=KEY)
    assert predict_many([], key=KEY) == []

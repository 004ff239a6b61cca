"""A job fitted on its recording: moments, and the shape of its factors."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.recorded.effects import fit_effects
from prism_jax.recorded.factor_shape import FACTOR_SHAPES, MARGIN, POOL, _kernel, choose_shape, reshaped
from prism_jax.recorded.prediction import MomentMatch
from prism_jax.recorded.recorded_job import RecordedJob, fit_job
from prism_jax.recorded.unseen_steps import match_moments, predict_job
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import Law, draws, effects_of, ops_of, planted, record, timed, without_micro_batches

JOB = PipelineJob(pp=2, dp=4, n_micro_batch=4)


def test_work_of_the_simulator_is_found() -> None:
    recording = record(JOB, 3, *draws(2, host_s=0.001))
    job = fit_job(recording.trace())
    run_s, gap_s = recording.truth(job.trace)
    np.testing.assert_allclose(job.run_s, run_s, atol=1e-10)
    np.testing.assert_allclose(job.gap_s[~job.waits.unexplained], gap_s[~job.waits.unexplained], atol=1e-10)
    assert effects_of(job).op.shape == (4, 4)


def test_transfers_of_a_part_of_the_replicas_are_freed_of_the_wait_for_the_others() -> None:
    """Half of 8 replicas: a reduction takes 40 ms, and seems to take more whenever the last replica is not among them."""
    job = PipelineJob(pp=1, dp=8, n_micro_batch=2)
    trace = timed(job, planted(job, 40, 0, Law(micro_batch=0.2)).run_s)
    part = fit_job(trace.choose(replicas=np.arange(4)))
    meets = ops_of(trace, "grads-reduce-scatter")
    whole = fit_job(trace)
    np.testing.assert_allclose(whole.run_s[meets], 0.04, atol=1e-12)
    raw = whole.trace.end_s[meets] - whole.trace.start_s[meets, :4].max(axis=1, keepdims=True)
    assert raw.mean() > 0.05
    assert part.run_s[meets].mean() == pytest.approx(0.04, rel=0.1)


# --- Moments ---------------------------------------------------------------------------------------------------------
# Drawn steps held against recorded ones: what differs by chance is left alone, what is really off is put right.


MOMENTS_JOB, NOISE = PipelineJob(2, 2, 4), Law(micro_batch=0.2, own=0.02)


def fitted(n_step: int, seed: int = 1) -> RecordedJob:
    return fit_job(timed(MOMENTS_JOB, planted(MOMENTS_JOB, n_step, seed, NOISE).run_s))


def longer(job: RecordedJob, factor: float) -> RecordedJob:
    """A job that takes its compute for so many times as long as it is."""
    return replace(job, effects=replace(effects_of(job), base=effects_of(job).base + np.log(factor)))


def test_a_job_that_the_model_describes_is_left_alone() -> None:
    """Two factors of ten jobs: a factor is off by more than two standard errors once in twenty times at most."""
    found = [match_moments(fitted(40, seed)).agreement for seed in range(10)]
    touched = sum((agreement.mean != 1.0) + (agreement.spread != 1.0) for agreement in found)
    assert touched <= 5  # binomial(20, 0.05) exceeds it with probability 3e-4


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_steps_that_are_off_are_moved(factor: float) -> None:
    """Compute that is really longer or shorter than what was learned, as where processes take turns."""
    job = fitted(60)
    wrong = longer(job, 1 / factor)
    mean = match_moments(wrong).agreement.mean
    assert mean == pytest.approx(factor, rel=0.03)
    drawn = predict_job(replace(wrong, agreement=MomentMatch(mean=mean)), key=jax.random.key(3))
    assert drawn.step_s.mean() == pytest.approx(predict_job(job, key=jax.random.key(3)).step_s.mean(), rel=0.03)


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_steps_that_are_nothing_like_the_recorded_ones_are_refused(factor: float) -> None:
    with pytest.raises(DataError, match=r"times the recorded ones on average.*does not describe.*log of steps"):
        match_moments(longer(fitted(20), factor))


def test_compute_that_often_takes_no_time_is_drawn_as_long_as_it_was() -> None:
    """As between overlapping collectives: of every second worker's step all forward compute is in the next op."""
    trace = timed(MOMENTS_JOB, planted(MOMENTS_JOB, 30, 1, NOISE).run_s)
    plain = without_micro_batches(trace)
    compute = [i for i, op in enumerate(plain.ops) if op.op_type == "forward-compute" and op.stage == 0]
    job = fit_job(plain)
    run_s = job.run_s.copy()
    none = np.random.default_rng(0).random(run_s.shape[1:]) < 0.5
    run_s[compute[1]] += np.where(none, run_s[compute[0]], 0.0)
    run_s[compute[0]] = np.where(none, 0.0, run_s[compute[0]])
    drawn = predict_job(replace(job, run_s=run_s, effects=fit_effects(plain, run_s)), key=jax.random.key(1))
    assert drawn.step_s.mean() == pytest.approx(trace.step_s.mean(), rel=0.1)


def test_agreement_keeps_the_mean_where_it_stretches() -> None:
    step_s = np.array([[1.0, 2.0], [3.0, 6.0]])
    np.testing.assert_allclose(MomentMatch().applied(step_s), step_s)
    stretched = MomentMatch(mean=2.0, spread=0.5).applied(step_s)
    assert stretched.mean() == pytest.approx(6.0)
    assert stretched.std() == pytest.approx(0.5 * step_s.std())


def test_a_few_steps_tell_nothing() -> None:
    assert match_moments(fitted(4)).agreement == MomentMatch()


# --- Factor shape ----------------------------------------------------------------------------------------------------
# Shapes of the micro-batch factor: the right family wins on values of a known law, and none where none fits or
# tells.


SIZE = (4, 8, 30)


def values(law: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return {
        "normal": rng.normal(0.1, 0.1, SIZE),
        "student_t": 0.1 * rng.standard_t(3, SIZE),
        "exponential": rng.exponential(0.1, SIZE),
        "uniform": rng.uniform(0.0, 0.1, SIZE),
        "two": rng.normal(0.0, 0.01, SIZE) + 0.3 * (rng.random(SIZE) < 0.2),
    }[law]


@pytest.mark.parametrize(("law", "name"), [("student_t", "student_t"), ("exponential", POOL), ("uniform", POOL)])
def test_family_is_chosen_where_it_describes_held_out_steps_better(law: str, name: str) -> None:
    found = choose_shape(values(law))
    assert found.name == name
    assert set(found.scores) == {POOL, *FACTOR_SHAPES.names}
    best = max(found.scores[family] for family in FACTOR_SHAPES.names)
    assert (found.name == POOL) == (best <= found.scores[POOL] + MARGIN)


def test_mixture_tells_two_kinds_of_micro_batches_apart() -> None:
    scores = choose_shape(values("two")).scores
    assert scores["mixture"] > max(scores["normal"], scores["student_t"]) + 0.3


def test_pool_is_kept_where_nothing_can_be_told() -> None:
    assert choose_shape(values("normal")[..., :1]).name == POOL
    assert choose_shape(np.full(SIZE, 0.3)).name == POOL
    assert choose_shape(np.full(SIZE, 0.3) + 1e-12 * values("normal")).name == POOL


@pytest.mark.parametrize("name", [*FACTOR_SHAPES.names, POOL])
@pytest.mark.parametrize("law", ["normal", "student_t", "two"])
def test_densities_are_densities_and_quantiles_their_inverse(name: str, law: str) -> None:
    """By quadrature; the quantile of a kernel density is that of its values."""
    shape = (_kernel if name == POOL else FACTOR_SHAPES.named(name).fit)(values(law).ravel()[:300])
    reach, n = {"student_t": (60.0, 2_400_001), POOL: (3.0, 30_001)}.get(name, (3.0, 600_001))
    x = np.linspace(-reach, reach, n)
    density = np.concatenate([np.exp(shape.log_density(part)) for part in np.array_split(x, 600)])
    below = np.cumsum(density) * (x[1] - x[0])
    assert below[-1] == pytest.approx(1.0, abs=2e-3)
    if name != POOL:
        for u in (0.05, 0.3, 0.5, 0.9, 0.99):
            assert np.interp(shape.quantile(np.array([u]))[0], x, below) == pytest.approx(u, abs=2e-3)


def test_reshaped_pool_keeps_its_order_and_lies_on_the_family() -> None:
    pool = np.sort(values("normal"), axis=None)
    assert reshaped(pool, POOL) is pool
    for name in FACTOR_SHAPES.names:
        found = reshaped(pool, name)
        assert (np.diff(found) >= 0).all()
        np.testing.assert_allclose(np.quantile(found, [0.1, 0.5, 0.9]), np.quantile(pool, [0.1, 0.5, 0.9]), atol=0.02)


@pytest.mark.parametrize("name", FACTOR_SHAPES.names)
def test_strange_values_give_finite_shapes(name: str) -> None:
    """Constant, two values, one far outlier."""
    for strange in (np.full(20, 0.1), np.repeat([0.0, 1.0], 10), np.append(np.zeros(50), 100.0)):
        shape = FACTOR_SHAPES.named(name).fit(strange)
        assert np.isfinite(shape.quantile((np.arange(9) + 0.5) / 9)).all()
        assert not np.isnan(shape.log_density(strange)).any()

"""Planted effects are recovered, absent ones are found absent, and the strange shapes of short recordings do no harm."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st

from prism_jax.recorded.effects import PRIOR, SIGNIFICANCE, Effects, Signature, fit_effects, kept_share, normal_scores
from prism_jax.recorded.factor_shape import POOL, ShapeChoice
from prism_jax.trace.trace import Trace
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import Law, Planted, ops_of, planted, skeleton, without_micro_batches

JOB = PipelineJob(pp=2, dp=8, n_micro_batch=4)
N_STEP = 20
NOISE = Law(micro_batch=0.1, own=0.03)
STEP_NOISE = 0.1 / np.sqrt(4 * 8)  # of the mean over micro-batches and replicas
RANK_NOISE = 0.1 / np.sqrt(4 * N_STEP)


@pytest.fixture(autouse=True)
def pool_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Micro-batch factors stay as recorded, unless the test is about families; choosing one takes most of the time of a fit."""
    if "shape" not in request.node.name:
        monkeypatch.setattr("prism_jax.recorded.effects.choose_shape", lambda log_factor: ShapeChoice(POOL, {}))


def trace_of(job: PipelineJob) -> Trace:
    return skeleton(replace(job, dp=min(job.dp, 2)))[0]


def fit(truth: Planted | np.ndarray, of: PipelineJob | Trace = JOB) -> Effects:
    """Effects of work that was planted, or of its seconds."""
    trace = of if isinstance(of, Trace) else trace_of(of)
    found = fit_effects(trace, truth.run_s if isinstance(truth, Planted) else truth)
    assert found is not None
    return found


def of_stage(effects: Effects, values: np.ndarray, stage: int) -> np.ndarray:
    """Mean over the signatures of a stage."""
    return values[[signature.stage == stage for signature in effects.signatures]].mean(axis=0)


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


@pytest.mark.parametrize(("n_replica", "n_step"), [(8, N_STEP), (1, 20), (8, 1)])
def test_absent_effects_are_found_absent(n_replica: int, n_step: int) -> None:
    """At most 7 false alarms in 200 recordings where 2 are expected: exceeded with probability 0.1%."""
    job, alarms = replace(JOB, dp=n_replica), np.zeros(2)
    for seed in range(200):
        found = fit(planted(job, n_step, seed, NOISE), job).evidence
        alarms += np.array([found.step_p, found.rank_p]) < SIGNIFICANCE
    assert alarms.max() <= 7


def test_without_effects_there_is_nothing_but_micro_batches() -> None:
    found = fit(planted(JOB, N_STEP, 1, NOISE))
    assert not found.step.any()
    assert not found.rank.any()
    share = NOISE.micro_batch**2 / (NOISE.micro_batch**2 + NOISE.own**2)
    assert found.evidence.micro_batch == pytest.approx(share, abs=0.05)
    assert found.evidence.strata == pytest.approx((1.0, 1.0), abs=3 * np.sqrt(2 / (N_STEP - 1)))


def test_step_effects_are_recovered() -> None:
    """To the noise of a step's mean."""
    for seed in range(10):
        truth = planted(JOB, N_STEP, seed, replace(NOISE, step=0.05))
        found = fit(truth)
        assert rms(found.step.mean(axis=0) - (truth.step - truth.step.mean())) < 1.3 * STEP_NOISE
        assert found.evidence.step_p < SIGNIFICANCE


def test_step_effects_that_are_redrawn_have_the_spread_that_was_planted() -> None:
    """Best guesses would vary less: here by 16%. Mean over 40 recordings, to 7%."""
    spread = []
    for seed in range(40):
        truth = planted(JOB, N_STEP, seed, replace(NOISE, step=0.03))
        spread.append(fit(truth).step.std(axis=1).mean() / truth.step.std())
    assert np.mean(spread) == pytest.approx(1.0, abs=0.07)


def test_rank_effects_are_recovered() -> None:
    for seed in range(10):
        truth = planted(JOB, N_STEP, seed, replace(NOISE, rank=0.05))
        found = fit(truth)
        centred = truth.rank - truth.rank.mean(axis=0)
        error = [of_stage(found, found.rank, s) - centred[:, s] for s in (0, 1)]
        assert rms(np.array(error)) < 1.3 * RANK_NOISE
        assert found.evidence.rank_p < SIGNIFICANCE


@pytest.mark.parametrize(("size", "ratio"), [(0.5, 0.7), (3.0, 1.05)])
def test_shrunk_effects_are_nearer_to_the_truth_than_raw_means(size: float, ratio: float) -> None:
    """Much nearer where noise is larger than the effects, and not further away where it is smaller."""
    shrunk, raw = [], []
    for seed in range(10):
        truth = planted(JOB, N_STEP, seed, replace(NOISE, rank=size * RANK_NOISE))
        found = fit(truth)
        log_s = np.log(truth.run_s[found.op]).mean(axis=(0, 3))
        for stage in (0, 1):
            centred = truth.rank[:, stage] - truth.rank[:, stage].mean()
            shrunk.append(of_stage(found, found.rank, stage) - centred)
            raw.append(of_stage(found, log_s - log_s.mean(axis=1, keepdims=True), stage) - centred)
    assert rms(np.array(shrunk)) < ratio * rms(np.array(raw))


@pytest.mark.parametrize("seed", range(3))
def test_one_slow_rank_is_kept_while_the_rest_is_shrunk(seed: int) -> None:
    """30% on one of 32 workers of the last stage; the others move by less than a worker's noise, the other stage not at all."""
    job = replace(JOB, dp=32)
    found = fit(planted(job, N_STEP, seed, replace(NOISE, slow={(5, 1): np.log(1.3)})), job)
    rank = of_stage(found, found.rank, 1)
    assert rank[5] == pytest.approx(np.log(1.3) * 31 / 32, abs=3 * RANK_NOISE)
    assert np.abs(np.delete(rank, 5)).max() < RANK_NOISE
    assert rms(of_stage(found, found.rank, 0)) < 0.3 * RANK_NOISE


def test_position_in_the_step_is_recovered_and_otherwise_forgotten() -> None:
    """The first micro-batch takes 20% longer; without that, positions differ by less than their means do by chance."""
    run_s = planted(JOB, N_STEP, 3, NOISE).run_s
    run_s[[op.micro_batch == 0 for op in trace_of(JOB).ops]] *= 1.2
    base = fit(run_s).base
    noise = 0.1 / np.sqrt(8 * N_STEP)
    np.testing.assert_allclose(base[0] - base[1:].mean(axis=0), np.log(1.2), atol=4 * noise)
    flat = np.concatenate([fit(planted(JOB, N_STEP, seed, NOISE)).base.std(axis=0) for seed in range(20)])
    assert flat.mean() < 0.5 * noise


def test_recorded_micro_batches_are_kept_whole() -> None:
    """Every entry of the pool is what one micro-batch took in all its ops, and entries go from short to long."""
    found = fit(planted(JOB, N_STEP, 1, NOISE))
    log_s = np.log(planted(JOB, N_STEP, 1, NOISE).run_s[found.op])
    residual = np.moveaxis(log_s - found.base[:, :, None, None], 1, 0).reshape(4, -1)  # no step, no rank effect
    step = np.broadcast_to(np.arange(N_STEP), (4, 8, N_STEP)).ravel()
    order = np.argsort(residual[0])
    mine = np.argsort(found.pool[0])
    np.testing.assert_allclose(found.pool[:, mine], residual[:, order], atol=1e-12)
    np.testing.assert_array_equal(found.pool_step[mine], step[order])
    seconds = np.exp(found.pool + found.base.mean(axis=0)[:, None]).sum(axis=0)
    assert (np.diff(seconds) >= 0).all()


def test_shape_of_the_pool_is_the_family_that_describes_it() -> None:
    """Normal factors: entries keep their order and step, and their factor lies on the quantiles of a normal."""
    found = fit(planted(JOB, N_STEP, 0, NOISE))
    assert found.evidence.shape.name == "normal"
    factor = np.log(np.exp(found.pool + found.base.mean(axis=0)[:, None]).sum(axis=0))
    straight = np.corrcoef(normal_scores(factor), factor)[0, 1]
    assert straight > 0.99999
    assert factor.std() == pytest.approx(NOISE.micro_batch, rel=0.1)


@pytest.mark.parametrize(("replica", "step"), [(0.2, 0.2), (1.0, 1.0), (4.0, 1.0)])
def test_strata_say_whether_micro_batches_are_alike_or_balance(replica: float, step: float) -> None:
    """Below one if the micro-batches of a replica balance, above one if they are alike; both drawn a little towards one."""
    n_step = 40
    law = Law(micro_batch=0.1, replica_stratum=replica, step_stratum=step)
    found = np.array([fit(planted(JOB, n_step, seed, law)).strata for seed in range(10)])
    free = np.array([n_step * 7, n_step - 1])
    expected = (free * [replica, step] + PRIOR) / (free + PRIOR)
    np.testing.assert_allclose(found.mean(axis=0), expected, rtol=4 * np.sqrt(2 / free[1] / 10))


def test_effects_do_not_depend_on_the_order_of_replicas_or_steps() -> None:
    truth = planted(JOB, N_STEP, 4, replace(NOISE, rank=0.05, step=0.05))
    rng = np.random.default_rng(0)
    replica, step = rng.permutation(JOB.dp), rng.permutation(N_STEP)
    a, b = fit(truth), fit(truth.run_s[:, replica][:, :, step])
    np.testing.assert_allclose(b.base, a.base, atol=1e-12)
    np.testing.assert_allclose(b.rank, a.rank[:, replica], atol=1e-12)
    np.testing.assert_allclose(b.step, a.step[:, step], atol=1e-12)
    np.testing.assert_allclose(b.pool, a.pool, atol=1e-12)
    np.testing.assert_array_equal(step[b.pool_step], a.pool_step)
    assert b.strata == pytest.approx(a.strata)
    assert b.evidence.rank_p == pytest.approx(a.evidence.rank_p)


@pytest.mark.parametrize(("n_mb", "n_replica", "n_step"), list(product((1, 2), (1, 2), (1, 2, 5))))
def test_short_recordings_can_be_fitted(n_mb: int, n_replica: int, n_step: int) -> None:
    job = PipelineJob(2, n_replica, n_mb)
    law = replace(NOISE, rank=0.05, step=0.05)
    for run_s in (planted(job, n_step, 0, law).run_s, planted(job, n_step, 0, Law()).run_s):
        found = fit(run_s, job)
        for values in (found.base, found.step, found.rank, found.pool, np.array(found.strata)):
            assert np.isfinite(values).all()
        evidence = found.evidence
        shares = [evidence.position, evidence.step, evidence.rank, evidence.micro_batch, evidence.own]
        assert min(shares) >= 0
        assert sum(shares) in (0.0, pytest.approx(1.0))
        assert 0 <= evidence.step_p <= 1
        assert 0 <= evidence.rank_p <= 1


def test_compute_of_length_zero_can_be_fitted() -> None:
    run_s = planted(JOB, 3, 0, NOISE).run_s
    run_s[ops_of(trace_of(JOB), "forward-compute")] = 0.0
    assert np.isfinite(fit(run_s).pool).all()


def test_virtual_stages_are_signatures_of_their_own() -> None:
    job = PipelineJob(2, 2, 4, 2)
    found = fit(planted(job, 4, 0, NOISE), job)
    assert found.op.shape == (4, 8)
    assert Signature("backward-compute", 1, 1) in found.signatures
    ops = trace_of(job).ops
    for mb, row in enumerate(found.op):
        assert [(ops[i].op_type, ops[i].stage, ops[i].chunk) for i in row] == list(found.signatures)
        assert {ops[i].micro_batch for i in row} == {mb}


def test_without_micro_batches_the_compute_of_a_step_counts_as_one() -> None:
    plain = without_micro_batches(trace_of(JOB))
    found = fit(planted(JOB, N_STEP, 0, NOISE), plain)
    assert found.op.shape[0] == 1
    assert {"forward-compute", "backward-compute", "optimizer"} <= {s.op_type for s in found.signatures}
    assert {plain.ops[i].op_type for i in found.op[0]}.isdisjoint({"forward-send", "params-all-gather"})


def test_without_micro_batches_a_drawn_worker_step_is_a_recorded_one_times_one_factor() -> None:
    """Whatever its ops did: one took no time at all in half of the steps, which no factor of its own may make up for."""
    plain, run_s = without_micro_batches(trace_of(JOB)), planted(JOB, N_STEP, 0, NOISE).run_s
    run_s[ops_of(plain, "forward-compute")[0], :, ::2] = 0.0
    found = fit(run_s, plain)
    drawn_s = np.exp(found.base[0][:, None] + found.pool)  # [signature, entry]
    stage = np.array([signature.stage for signature in found.signatures])
    recorded_s = run_s[found.op[0]].reshape(len(stage), -1)
    for s in np.unique(stage):
        shares = [x[stage == s] / x[stage == s].sum(axis=0) for x in (drawn_s, recorded_s)]
        first = [np.sort(share[0]) for share in shares]
        np.testing.assert_allclose(first[0], first[1], atol=1e-6)
        assert drawn_s[stage == s].sum(axis=0).max() < 1.5 * recorded_s[stage == s].sum(axis=0).max()


def test_without_compute_there_are_no_effects() -> None:
    trace = trace_of(JOB)
    meeting = replace(trace, ops=tuple(op._replace(group="g", micro_batch=-1) for op in trace.ops))
    assert fit_effects(meeting, planted(JOB, 3, 0, NOISE).run_s) is None


@given(
    mean=st.lists(st.floats(-10, 10), min_size=1, max_size=12), noise=st.lists(st.floats(0, 10), min_size=1, max_size=3)
)
def test_kept_share_lies_between_nothing_and_all(mean: list[float], noise: list[float]) -> None:
    kept = kept_share(np.tile(mean, (len(noise), 1)), np.array(noise))
    assert ((kept >= 0) & (kept <= 1 + 1e-12)).all()


def test_kept_share_has_the_right_limits() -> None:
    mean = np.random.default_rng(0).standard_normal((1, 50))
    assert kept_share(mean, np.array([1e-12])).min() > 0.999
    assert kept_share(1e-3 * mean, np.array([1.0])).max() < 0.01


def test_normal_scores_keep_the_order_and_are_standard() -> None:
    values = np.random.default_rng(0).lognormal(size=(5, 200))
    found = normal_scores(values)
    np.testing.assert_array_equal(np.argsort(found), np.argsort(values, axis=None))
    assert found.mean() == pytest.approx(0.0, abs=1e-12)
    assert found.std() == pytest.approx(1.0, abs=0.01)

"""Ways to compose durations: closed forms of sums and maxima, and a simulation of a small pipeline."""

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import norm

from experiments.composition.methods import (
    METHODS,
    Moments,
    Parts,
    clark,
    extreme_values,
    fft,
    later_of,
    replica,
    step_quantiles,
)
from experiments.composition.run import as_calls, columns_of, compared, is_series_parallel, quantiles
from prism_jax.simulate.program import Program
from prism_jax.variability.families import Normal
from prism_jax.variability.tree import ClassVariability, Variability
from tests.support.jobs import EVERYTHING, make_job, make_program, network_varies

GEMM = Variability("t", {"gemm": ClassVariability(call=Normal(0.1))})
PROBS = [0.5, 0.95, 0.99]


def chain(tp: int = 1, dp: int = 1) -> Program:
    """Ops one after another, of which a part is normal."""
    return make_program(GEMM, tp=tp, pp=1, dp=dp)


@pytest.mark.parametrize("name", ["FFT", "Clark"])
def test_sums_of_normal_durations_are_exact(name: str) -> None:
    program = chain()
    graph = program.graph
    mean = graph.compute_s.sum() + graph.comm_s.sum() + graph.end_compute_s[0] + graph.end_comm_s[0]
    sd = 0.1 * np.sqrt((graph.compute_s[..., 0] ** 2).sum())
    found = step_quantiles(program, METHODS[name](program), PROBS)
    np.testing.assert_allclose(found, mean + sd * ndtri(PROBS), atol=2e-4 * sd, rtol=0)


def test_the_fft_algebra_has_the_quantiles_of_n_alike() -> None:
    program = chain(dp=64)
    one = replica(program, clark(program))
    assert isinstance(one, Moments)
    expected = one.mean + one.sd * ndtri(np.array(PROBS) ** (1.0 / 64))
    np.testing.assert_allclose(step_quantiles(program, fft(program), PROBS), expected, atol=1e-3 * one.sd, rtol=0)


def test_the_later_of_two_has_the_moments_of_a_simulation() -> None:
    rng = np.random.default_rng(0)
    drawn = np.maximum(rng.normal(1.0, 0.2, 1 << 20), rng.normal(1.1, 0.1, 1 << 20))
    found = later_of(Moments(1.0, 0.2), Moments(1.1, 0.1))
    assert found.mean == pytest.approx(drawn.mean(), abs=1e-3)
    assert found.sd == pytest.approx(drawn.std(), abs=1e-3)


def test_extreme_values_have_the_gumbel_limit() -> None:
    """Of many normal times: mean + sd (u_n + (-log(-log p)) / (n phi(u_n))), u_n the score of 1 - 1/n."""
    program = chain(dp=4096)
    one = replica(program, extreme_values(program))
    assert isinstance(one, Moments)
    level = ndtri(1.0 - 1.0 / 4096)
    scale = 1.0 / (4096 * norm.pdf(level))
    expected = one.mean + one.sd * (level - scale * np.log(-np.log(PROBS)))
    np.testing.assert_allclose(step_quantiles(program, extreme_values(program), PROBS), expected, rtol=1e-9)


@pytest.mark.parametrize("tp", [1, 4])
def test_series_parallel_steps_are_those_of_a_simulation(tp: int) -> None:
    """Members, communication and replicas; the error of the reference is a tenth of the tolerance."""
    program = make_program(as_calls(make_job(EVERYTHING)).variability, tp=tp, pp=1, dp=8)
    assert is_series_parallel(program)
    time_s, _ = columns_of(program, 1 << 17, 0)
    found = step_quantiles(program, fft(program), PROBS)
    np.testing.assert_allclose(found, quantiles(program, time_s, 1 << 17, 0), rtol=5e-4)


def test_a_pipeline_is_not_series_parallel_and_is_predicted_too_long() -> None:
    program = make_program(Variability("t", {**GEMM.classes, **network_varies(call=Normal(0.05))}), dp=8)
    assert not is_series_parallel(program)
    time_s, _ = columns_of(program, 1 << 16, 0)
    bias = step_quantiles(program, fft(program), PROBS) / quantiles(program, time_s, 1 << 16, 0) - 1.0
    assert 0.0 < bias[0] < 0.05


def test_ops_without_spread_are_points() -> None:
    program = chain()
    point = fft(program).op(Parts(1.0, 0.0, 1, 0.5, 0.0))
    assert fft(program).quantile(point, 0.5) == pytest.approx(1.5, rel=1e-3)


def test_a_job_is_compared_by_all_methods() -> None:
    config = {"seed": 0, "columns_per_replica": 1, "least_columns": 1 << 12, "n_monte_carlo": 100, "n_repeat": 4}
    rows, plain = compared("one", make_job(EVERYTHING, pp=1), config)
    assert plain
    assert set(rows) == {"reference", "Monte Carlo", "F^n", *METHODS}
    assert abs(rows["FFT"]["p99"]) < 0.01

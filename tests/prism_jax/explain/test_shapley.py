"""Shapley values: axioms and closed forms; of jobs, the sum and what single removals do."""

import jax
import numpy as np
import pytest

from prism_jax import explain_step
from prism_jax.core.errors import DataError
from prism_jax.explain.explain import attribute
from prism_jax.explain.shapley import OTHERS, owners_of, shapley_falls, shapley_values
from prism_jax.simulate.predict import symmetric
from prism_jax.variability.families import LogNormal, Normal
from prism_jax.variability.tree import ClassVariability, Stall, Variability
from tests.support.jobs import EVERYTHING, make_job, make_program

KEY = jax.random.key(0)


def value_of(game) -> np.ndarray:
    """v [subset] of a game of three players as a function of their set."""
    return np.array([float(game({k for k in range(3) if subset >> k & 1})) for subset in range(8)])


def test_known_games_have_their_values() -> None:
    glove = value_of(lambda s: 0 in s and len(s) > 1)  # a left glove and two right ones
    np.testing.assert_allclose(shapley_values(glove), [4 / 6, 1 / 6, 1 / 6], rtol=1e-12)
    linear = value_of(lambda s: sum(k + 1.0 for k in s))
    np.testing.assert_allclose(shapley_values(linear), [1.0, 2.0, 3.0], rtol=1e-12)
    airport = value_of(lambda s: max((k + 1.0 for k in s), default=0.0))  # who needs the longest runway pays the rest
    np.testing.assert_allclose(shapley_values(airport), [1 / 3, 1 / 3 + 1 / 2, 1 / 3 + 1 / 2 + 1], rtol=1e-12)


def test_values_of_any_game_sum_to_its_total() -> None:
    value = np.random.default_rng(0).normal(size=(1 << 10, 3))
    np.testing.assert_allclose(shapley_values(value).sum(axis=0), value[-1] - value[0], atol=1e-12)


def test_owners_of_a_job_share_out_the_rise_of_p95() -> None:
    program = make_program(EVERYTHING, dp=8)
    found = shapley_falls(program, KEY, n_column=512, most_owners=4)
    assert sum(found.value_s.values()) == pytest.approx(found.total_s, rel=1e-9)
    assert len(found.value_s) == 4
    assert {*found.value_s, *found.rest} == {*owners_of(program), OTHERS}
    whole = symmetric(program, KEY, 512)
    assert found.total_s == pytest.approx(whole.quantile(0.95) - whole.deterministic_s, rel=0.02)
    assert [*found.value_s] == sorted(found.value_s, key=lambda name: -found.value_s[name])


def test_an_owner_alone_has_all_and_one_that_takes_no_time_has_none() -> None:
    tree = Variability(
        "t", {"gemm": ClassVariability(call=Normal(0.05)), "all_to_all": ClassVariability(call=Normal(0.5))}
    )
    found = shapley_falls(make_program(tree), KEY)
    assert [*found.value_s] == ["gemm.call"]
    assert found.value_s["gemm.call"] == found.alone_s["gemm.call"] == found.last_s["gemm.call"] == found.total_s > 0.0


def test_rare_stalls_raise_p95_only_together_with_others() -> None:
    """One step in 30 stalls: alone that is beyond p95, in a step that varies it moves every quantile."""
    tree = Variability("t", step=LogNormal(0.02), stalls=(Stall(1 / 30, 0.0, 1.0),))
    found = shapley_falls(make_program(tree), KEY)
    assert found.alone_s["stalls"] == 0.0
    assert found.last_s["stalls"] > 0.0
    assert found.value_s["stalls"] == pytest.approx(0.5 * found.last_s["stalls"])


def test_nothing_varies_nothing_is_shared_out() -> None:
    found = attribute(make_job(), key=0)
    assert not found.p95.value_s
    assert not found.step_time.first


def test_the_report_holds_the_attribution_and_refuses_known_gpus() -> None:
    job = make_job(Variability("t", {"gemm": ClassVariability(gpu=LogNormal(0.03))}))
    report = explain_step(job, attributed=True)
    assert report.attribution is not None
    assert report.attribution.step_time.first.keys() == {"gpu"}
    assert type(report).from_dict(report.to_dict()).attribution == report.attribution
    assert any("Shapley" in line for line in report.lines(100))
    with pytest.raises(DataError, match="--attribution"):
        explain_step(job, attributed=True, slowdowns={"gemm": {0: 1.1}})

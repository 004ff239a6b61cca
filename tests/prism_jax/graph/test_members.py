"""The slowest member of a group: every member drawn, or its maximum drawn directly from a table."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from prism_jax.graph.draws import both, key_words, normal_pairs, residual_map, standardised, word_pairs
from prism_jax.graph.members import ExplicitMembers, OpNoise, member_table
from prism_jax.graph.propagate import GraphArrays
from prism_jax.simulate.columns import ColumnInputs
from prism_jax.simulate.inputs import column_inputs, regime_factors
from prism_jax.variability.families import Family, LogNormal, Normal, StudentT
from prism_jax.variability.family_registry import Mixture
from prism_jax.variability.tree import Variability
from tests.support.jobs import compute_varies, make_program

N_COLUMN, N_LEVEL = 1024, 32
SD = 0.02
RESIDUALS: dict[str, Family] = {
    "normal": Normal(SD),
    "skewed": LogNormal(0.3),
    "student": StudentT(SD, 3.0),
    "rare spikes": Mixture(0.01, 0.01, 1.5, 0.1),
}


def words(n_draw: int, n_lane: int, level: jax.Array | int = 0) -> jax.Array:
    return word_pairs(key_words(jax.random.key(3)), jnp.asarray(level, jnp.uint32), n_draw, n_lane, N_COLUMN // 2)


def test_explicit_members_are_the_maximum_over_members() -> None:
    rng = np.random.default_rng(0)
    chip = rng.lognormal(0.0, 0.1, (2, 5, 3, N_COLUMN)).astype(np.float32)
    compute_s, call_sd = rng.random((3, 3)).astype(np.float32), np.array([0.1, 0.2, 0.0], np.float32)
    chain, w = standardised(residual_map(LogNormal(0.2))), words(6, 3)  # one row more than the members need
    got = ExplicitMembers(jnp.asarray(chip)).duration(jnp.asarray(compute_s), OpNoise(jnp.asarray(call_sd), w, chain))
    residual = np.asarray(chain(both(normal_pairs(w))))[:5]
    seconds = np.einsum("lf,fmlc->mlc", compute_s[:, :2], chip) + compute_s[:, 2][:, None]
    expected = (seconds * (1.0 + call_sd[:, None] * residual)).max(axis=0)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=3e-6)


def test_without_residual_the_slowest_chip_decides() -> None:
    chip = jnp.asarray(np.random.default_rng(1).lognormal(0.0, 0.1, (1, 7, 2, 8)), jnp.float32)
    compute_s = jnp.array([[2.0, 0.0], [3.0, 1.0]], jnp.float32)
    got = ExplicitMembers(chip).duration(compute_s)
    expected = np.asarray(chip)[0].max(axis=0) * np.array([[2.0], [3.0]]) + np.array([[0.0], [1.0]])
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-6)


def inputs_of(residual: Family) -> ColumnInputs:
    """A pipeline of one lane whose compute classes all have the same residual, all varying between GPUs."""
    tree = Variability("t", compute_varies(gpu=LogNormal(0.01), call=residual))
    program = make_program(tree, pp=1, dp=1)
    return column_inputs(program, regime_factors(program, np.zeros(1)))


def drawn_from_table(inputs: ColumnInputs, factor: np.ndarray) -> np.ndarray:
    """Durations over the noise-free seconds [draw] of a group with these persistent factors, by the table."""
    chip = jnp.broadcast_to(jnp.asarray(factor, jnp.float32)[None, :, None, None], (1, len(factor), 1, N_COLUMN))

    residual = inputs.compute
    assert residual is not None

    @jax.jit
    def draws(graph: GraphArrays, chip: jax.Array) -> jax.Array:
        table = member_table(graph.compute_s, graph.call_sd, chip, inputs.compute)
        one = jax.vmap(
            lambda level: table.duration(graph.compute_s[0], OpNoise(graph.call_sd[0], words(1, 1, level), residual))
        )
        return one(jnp.arange(N_LEVEL)) / graph.compute_s[0].sum()

    return np.asarray(draws(inputs.graph, chip), np.float64).ravel()


def drawn_one_by_one(inputs: ColumnInputs, factor: np.ndarray) -> np.ndarray:
    """The same by NumPy, member by member."""
    rng, sd = np.random.default_rng(5), float(inputs.graph.call_sd[0, 0])
    slowest = np.full(N_LEVEL * N_COLUMN, -np.inf)
    value_at = np.linspace(-6.5, 6.5, 20_001)
    value = np.asarray(inputs.compute(jnp.asarray(value_at)))  # type: ignore[misc]
    for own in factor:
        residual = np.interp(rng.standard_normal(slowest.size), value_at, value)
        np.maximum(slowest, own * (1.0 + sd * residual), out=slowest)
    return slowest


FLEETS = {
    "alike": lambda n: np.ones(n),
    "spread": lambda n: np.random.default_rng(2).lognormal(0.0, 0.02, n),
    "one outlier": lambda n: np.append(np.random.default_rng(2).lognormal(0.0, 0.01, n - 1), 1.15),
}


# Residual, fleet, members, largest error of a quantile in units of the maximum's 16-84% range.
TABLES = [
    ("normal", "alike", 32, 0.03),
    ("normal", "spread", 32, 0.03),
    ("normal", "one outlier", 32, 0.03),
    ("normal", "spread", 256, 0.03),
    ("skewed", "spread", 32, 0.03),
    ("student", "alike", 256, 0.05),
    ("student", "one outlier", 32, 0.05),
    ("rare spikes", "spread", 32, 0.25),  # a jump between two knots
]


@pytest.mark.parametrize(("residual", "fleet", "n_member", "allowed"), TABLES)
def test_table_draws_the_maximum_of_the_group(residual: str, fleet: str, n_member: int, allowed: float) -> None:
    """From p1 to p99.9, beyond 5 standard errors of the draws."""
    inputs, factor = inputs_of(RESIDUALS[residual]), FLEETS[fleet](n_member)
    table, explicit = drawn_from_table(inputs, factor), drawn_one_by_one(inputs, factor)
    spread = np.quantile(explicit, 0.84) - np.quantile(explicit, 0.16)
    for p in (0.01, 0.1, 0.5, 0.9, 0.99, 0.999):
        error = 5 * np.sqrt(2 * p * (1 - p) / explicit.size)
        low, high = np.quantile(explicit, np.clip([p - error, p + error], 0.0, 1.0))
        value = np.quantile(table, p)
        assert low - allowed * spread <= value <= high + allowed * spread, (
            p,
            (value - low) / spread,
            (value - high) / spread,
        )


def test_table_of_equal_members_agrees_with_order_statistics() -> None:
    """Kolmogorov-Smirnov against Phi(z)^n, normal residual; false alarm 1e-3, table error 0.6% in probability."""
    inputs = inputs_of(Normal(SD))
    z = (drawn_from_table(inputs, np.ones(64)) - 1.0) / float(inputs.graph.call_sd[0, 0])
    distance = stats.kstest(z, lambda z: stats.norm.cdf(z) ** 64).statistic
    assert distance < stats.kstwo.ppf(1 - 1e-3, z.size) + 0.006


def test_table_without_residual_is_the_slowest_chip() -> None:
    inputs = inputs_of(Normal(SD))
    chip = jnp.asarray(np.random.default_rng(4).lognormal(0.0, 0.02, (1, 40, 1, 8)), jnp.float32)
    got = member_table(inputs.graph.compute_s, inputs.graph.call_sd, chip, None).duration(inputs.graph.compute_s[0])
    expected = ExplicitMembers(chip).duration(inputs.graph.compute_s[0])
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6, 0.0])
def test_table_of_a_vanishing_residual_is_the_slowest_chip(scale: float) -> None:
    """What is far below the resolution of a factor in single precision moves the maximum by no more than itself."""
    inputs = inputs_of(Normal(SD))
    assert inputs.compute is not None
    graph = eqx.tree_at(lambda g: g.call_sd, inputs.graph, scale * inputs.graph.call_sd)
    chip = jnp.asarray(np.random.default_rng(4).lognormal(0.0, 0.02, (1, 40, 1, N_COLUMN)), jnp.float32)
    table = member_table(graph.compute_s, graph.call_sd, chip, inputs.compute)
    got = table.duration(graph.compute_s[0], OpNoise(graph.call_sd[0], words(1, 1), inputs.compute))
    slowest = member_table(graph.compute_s, graph.call_sd, chip, None).duration(graph.compute_s[0])
    assert float(jnp.abs(got / slowest - 1.0).max()) < 6.0 * SD * scale + 1e-6

"""Shapes of the micro-batch factor: the right family wins on values of a known law, and none where none fits or tells."""

import numpy as np
import pytest

from prism_jax.recorded.factor_shape import FACTOR_SHAPES, MARGIN, POOL, _kernel, choose_shape, reshaped

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

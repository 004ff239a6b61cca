"""Changes of level: planted ones are named, steady logs have none."""

import numpy as np
import pytest

from prism_jax.trace.level_changes import level_changes, level_note


def series(levels: list[tuple[int, float]], seed: int = 0, sd: float = 0.01) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([level * np.exp(sd * rng.standard_normal(n)) for n, level in levels])


def test_a_planted_change_is_named_with_both_levels() -> None:
    (found,) = level_changes(series([(200, 0.6), (200, 0.72)]), np.arange(100, 500))
    assert found.step == pytest.approx(300, abs=2)
    assert (found.before_s, found.after_s) == pytest.approx((0.6, 0.72), rel=0.01)
    note = level_note([found])
    assert f"changes at step {found.step} from 6" in note
    assert " ms to 7" in note
    assert "`prism-jax watch`" in note


def test_many_changes_are_counted() -> None:
    found = level_changes(series([(100, level) for level in (1.0, 1.3, 1.0, 1.4, 1.0, 1.2)]))
    assert len(found) == 5
    assert " and 2 more" in level_note(found)


@pytest.mark.parametrize("seed", range(8))
def test_steady_steps_have_one_level(seed: int) -> None:
    assert level_note(level_changes(series([(400, 2.0)], seed, sd=0.03))) == ""


@pytest.mark.parametrize("step_s", [[], [1.0], [1.0, 0.0, 2.0], [float("nan")] * 50])
def test_what_cannot_be_told_is_no_change(step_s: list[float]) -> None:
    assert level_changes(step_s) == []

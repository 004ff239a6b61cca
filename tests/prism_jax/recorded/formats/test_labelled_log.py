"""Logs that nobody has described: read by their labelled numbers, whatever trainer wrote them."""

from pathlib import Path

import numpy as np
import pytest

from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.trace.step_log import StepLog
from tests.support.trainer_lines import BY_BAR, BY_CLOCK, BY_RATE, REPORTED, write

RANDOM = np.random.default_rng(7)
STEP_S = (2.0 * np.exp(0.02 * RANDOM.standard_normal(120))).round(4).tolist()
STEP_S[0], STEP_S[40], STEP_S[80] = 3.0, 2.6, 2.7


def read(folder: Path, text: str, name: str = "train.log", **stated: object) -> StepLog:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    found = open_trace(path, **stated)  # pyright: ignore[reportArgumentType]
    assert isinstance(found, StepLog)
    return found


def ratio(log: StepLog, step_s: list[float]) -> float:
    return float(np.median(np.repeat(log.step_s, log.n_steps))) / float(np.median(step_s))


@pytest.mark.parametrize("name", REPORTED)
def test_reported_times_are_read_step_by_step(name: str, tmp_path: Path):
    log = read(tmp_path, write(REPORTED[name], STEP_S))
    assert log.step.tolist() == list(range(1, 121))
    np.testing.assert_allclose(log.step_s, STEP_S, rtol=6e-3)


@pytest.mark.parametrize("name", BY_BAR)
def test_rates_of_a_bar(name: str, tmp_path: Path):
    log = read(tmp_path, write(BY_BAR[name], STEP_S).replace("\nTrain", "\rTrain"))
    assert ratio(log, STEP_S) == pytest.approx(1.0, rel=5e-3)
    assert len(log) == 120


@pytest.mark.parametrize("name", BY_CLOCK)
def test_times_of_day(name: str, tmp_path: Path):
    log = read(tmp_path, write(BY_CLOCK[name], STEP_S))
    np.testing.assert_allclose(log.step_s, STEP_S[1:], atol=2e-3)


@pytest.mark.parametrize("name", BY_RATE)
def test_a_rate_of_work_is_scaled_to_a_coarse_clock(name: str, tmp_path: Path):
    log = read(tmp_path, write(BY_RATE[name], STEP_S))
    assert ratio(log, STEP_S) == pytest.approx(1.0, rel=1e-2)

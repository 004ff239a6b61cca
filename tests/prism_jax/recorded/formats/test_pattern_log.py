"""Step times that a user's own regular expression finds."""

from pathlib import Path

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.recorded.formats import pattern_log
from tests.support.training_logs import read_log

TEXT = "".join(f"upd#{n} rank-{rank} spent [{1e3 * n + rank:.1f}]\n" for n in range(1, 5) for rank in (0, 1))


def test_named_groups_say_what_is_found(tmp_path: Path):
    log = read_log(tmp_path, TEXT, pattern=r"upd#(?P<step>\d+) rank-(?P<rank>\d) spent \[(?P<time_ms>[\d.]+)\]")
    assert log.step.tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(log.step_s, [1.001, 2.001, 3.001, 4.001])  # the slower rank
    assert log.ranks is not None
    assert log.ranks.names == ("0", "1")


def test_a_log_of_ranks_that_starts_over_keeps_its_order(tmp_path):
    """Steps 1 to 4 take 5 s, then 3 to 6 take 1 s; rank 1 takes .1 s longer, and ranks write in any order."""
    passes = [(n, 5.0) for n in range(1, 5)] + [(n, 1.0) for n in range(3, 7)]
    text = "".join(
        f"r{rank} it {n} took {s + 0.1 * rank:.1f}\n"
        for k, (n, s) in enumerate(passes)
        for rank in ((0, 1), (1, 0))[k % 2]
    )
    log = read_log(tmp_path, text, pattern=r"r(?P<rank>\d) it (?P<step>\d+) took (?P<time_s>[\d.]+)")
    assert log.step.tolist() == [1, 2, 3, 4, 3, 4, 5, 6]
    np.testing.assert_allclose(log.step_s, [5.1] * 4 + [1.1] * 4)


def test_rates_clocks_and_units(tmp_path: Path):
    rate = read_log(tmp_path, "a 1: 2.0\na 2: 4.0\n", pattern=r"a (?P<step>\d): (?P<steps_per_s>[\d.]+)")
    assert rate.step_s.tolist() == [0.5, 0.25]
    work = read_log(tmp_path, "a 1: 1,000\n", pattern=r"a (?P<step>\d): (?P<rate>[\d,.]+)", work_per_step=2000.0)
    assert work.step_s.tolist() == [2.0]
    clock = read_log(tmp_path, "1@10:00:00.5\n2@10:00:02.5\n", pattern=r"(?P<step>\d)@(?P<clock>[\d:.]+)")
    assert clock.step_s.tolist() == [2.0]
    unit = read_log(tmp_path, "a 1: 1500\n", pattern=r"a (?P<step>\d): (?P<time>\d+)", unit="ms")
    assert unit.step_s.tolist() == [1.5]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"r(?P<rank>\d) t=(?P<time_s>\d+)", "with a group rank, a group step says which lines are of one step"),
        ("(?P<step>", "not a regular expression"),
        (r"(?P<stp>\d)", "unknown group stp"),
        (r"(?P<step>\d)", "no group says how long a step takes"),
        (r"(?P<time_s>\d)(?P<time_ms>\d)", "both say how long"),
        (r"(?P<rate>\d)", "needs the work of a step"),
        (r"nowhere (?P<time_s>\d)", "is found in no line"),
        ("x" * 3000, "more than 2,000 characters"),
    ],
)
def test_what_a_pattern_must_be(pattern: str, message: str, tmp_path: Path):
    with pytest.raises(DataError, match=message):
        read_log(tmp_path, TEXT, pattern=pattern)


def test_an_expression_without_an_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pattern_log, "MOST_SECONDS", 0.25)
    with pytest.raises(DataError, match="takes more than 0.25 s"):
        read_log(tmp_path, "a" * 60 + "\n", pattern=r"(a+)+(?P<time_s>\d)")

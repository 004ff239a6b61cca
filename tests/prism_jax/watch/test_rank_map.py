"""Ranks compared step by step: closed forms on synthetic recordings, and the slow rank of the shipped one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prism_jax.recorded.trace_facts import recorded, recorded_ops
from prism_jax.tables.streams import example_traces
from prism_jax.trace.rank_times import RankTimes
from prism_jax.trace.step_log import StepLog
from prism_jax.watch.rank_map import MOST_COLUMNS, MOST_OTHERS, MOST_SLOW, PhaseSteps, RankMap, rank_map


def log_of(values: np.ndarray, parts: dict[str, np.ndarray] | None = None) -> StepLog:
    """A log of [rank, step] seconds."""
    n_rank, n_step = values.shape
    ranks = RankTimes(
        tuple(map(str, range(n_rank))),
        np.repeat(np.arange(n_step), n_rank),
        np.tile(np.arange(n_rank), n_step),
        values.T.ravel(),
        {name: own.T.ravel() for name, own in (parts or {}).items()},
    )
    return StepLog("a.csv", "a", np.arange(n_step) + 100, values.max(axis=0), np.ones(n_step, int), ranks=ranks)


def shown_map(*asked: Any) -> RankMap:
    """The map of a recording that has one; arguments as those of `rank_map`."""
    found = rank_map(*asked)
    assert found is not None
    return found


def noise(n_rank: int, n_step: int, sd: float = 0.002) -> np.ndarray:
    return np.exp(np.random.default_rng(3).normal(0.0, sd, (n_rank, n_step)))


def test_excess_is_that_over_the_middle_rank_of_the_same_step() -> None:
    values = np.array([[1.0, 2.0, 4.0], [1.5, 2.0, 6.0], [1.0, 3.0, 4.0]])
    found = shown_map(log_of(values))
    np.testing.assert_allclose(found.cells, values / np.median(values, axis=0) - 1.0)
    assert {row.rank: (row.median_s, row.excess, row.slowest) for row in found.rows} == {
        "0": (2.0, 0.0, 0.0),
        "1": (2.0, pytest.approx(0.5), pytest.approx(2 / 3)),
        "2": (3.0, 0.0, pytest.approx(1 / 3)),
    }
    assert found.rows[0].rank == "1"


def test_a_slow_rank_is_named_with_its_size() -> None:
    values = noise(16, 60)
    values[5] *= 1.2
    found = shown_map(log_of(values))
    assert found.slow == ("5",)
    assert found.verdict.startswith("Rank 5 is slow: its step is 20% longer than that of the middle rank")


def test_even_ranks_have_no_slow_one() -> None:
    for n_rank in (2, 3, 4, 64):
        found = shown_map(log_of(noise(n_rank, 60)))
        assert not found.slow, n_rank
        assert found.verdict.startswith("No rank is slow")


def test_a_slow_one_of_two_is_the_longest_in_nearly_all_steps() -> None:
    values = noise(2, 40)
    values[1] *= 1.1
    found = shown_map(log_of(values))
    assert found.slow == ("1",)
    few = shown_map(log_of(values[:, :4]))
    assert not few.slow


def test_the_part_by_which_a_rank_stands_out_is_chosen() -> None:
    data = 0.1 * noise(8, 50)
    data[3] *= 3.0
    log = log_of(np.full((8, 50), 2.0), {"data_s": data, "forward_s": noise(8, 50)})
    found = shown_map(log)
    assert (found.quantity, found.slow) == ("data_s", ("3",))
    other = shown_map(log, "forward_s")
    assert (other.quantity, other.slow) == ("forward_s", ())
    unknown = shown_map(log, "nothing")
    assert unknown.quantity == "data_s"


def test_ranks_are_judged_by_the_steps_of_a_phase() -> None:
    values = noise(8, 100)
    values[2, 70:] *= 1.3
    whole = shown_map(log_of(values))
    found = shown_map(log_of(values), None, PhaseSteps(170, None))
    assert abs(whole.rows[0].excess) < 0.01
    assert found.slow == ("2",)
    assert found.rows[0].excess == pytest.approx(0.3, abs=0.01)
    assert found.cells.shape == (8, 100)
    assert " since step 170" in found.verdict
    before = shown_map(log_of(values), None, PhaseSteps(100, 170))
    assert not before.slow


def test_many_ranks_and_steps_are_drawn_as_some() -> None:
    values = noise(300, 1001)
    values[299] *= 1.5
    found = shown_map(log_of(values))
    assert found.cells.shape == (MOST_SLOW + MOST_OTHERS, MOST_COLUMNS)
    assert "299" in found.shown
    assert found.n_per_column == 6
    assert found.steps[0] == 100
    assert found.last_step == 1100
    assert len(found.rows) == 300
    row = found.cells[found.shown.index("299")]
    assert row.mean() == pytest.approx(0.5, abs=0.01)


def test_order_of_ranks_does_not_matter() -> None:
    values = noise(6, 30)
    values[4] *= 1.1
    found, turned = shown_map(log_of(values)), shown_map(log_of(values[::-1]))
    assert [5 - int(row.rank) for row in turned.rows] == [int(row.rank) for row in found.rows]


def test_a_recording_without_ranks_has_no_map() -> None:
    assert rank_map(log_of(noise(1, 20))) is None


def test_the_slow_worker_of_the_shipped_trace_is_compared_with_its_stage() -> None:
    found = shown_map(recorded(example_traces()["local_cluster"]))
    assert found.slow == ("3",)
    assert found.quantity == "compute"
    by_rank = {row.rank: row.excess for row in found.rows}
    assert by_rank["3"] == pytest.approx(-by_rank["2"], abs=0.02)


def test_stages_of_one_replica_are_compared_with_themselves() -> None:
    trace = recorded_ops(example_traces()["local_cluster"])
    found = shown_map(trace.choose(replicas=np.array([0])))
    assert found.slow == ()
    assert found.verdict.startswith("No two ranks have the same work")
    assert [row.excess for row in found.rows] == pytest.approx([0.0, 0.0], abs=1e-12)

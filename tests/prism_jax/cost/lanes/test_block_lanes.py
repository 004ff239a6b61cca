"""What of a block's communication shows, by the order of its rows."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from prism_jax.cost import lanes as block_lanes
from prism_jax.cost.lanes import Overlapping, laned_seconds
from prism_jax.workload.base.kernels import Kernel
from prism_jax.workload.base.workload import Comm, LanedRow

FREE = Overlapping(0.0, 1.0)
TP = 0  # index of the axis


@dataclass
class Rows:
    """A block of rows."""

    laned: list[LanedRow]
    repeats: list[tuple[int, int, int]] = field(default_factory=list)


def kernel(index: int, phase: str = "F", times: int = 1) -> LanedRow:
    return LanedRow(index, phase, times, kernel=Kernel("mm", phase, "gemm"))


def comm(index: int, wait: int | None = None, phase: str = "F", times: int = 1, axis: str = "tp") -> LanedRow:
    return LanedRow(index, phase, times, Comm(axis, "all_reduce", phase, 1.0, 1, 2), wait=wait)


def found(block: Any, seconds: list[float], overlapping: Overlapping = FREE):
    return laned_seconds(block, seconds, [0] * len(seconds), 3, overlapping)


def test_a_collective_that_blocks_shows_whole():
    out = found(Rows([kernel(0), comm(1), kernel(2)]), [1.0, 0.5, 2.0])
    assert out.exposed_s[0, TP] == pytest.approx(0.5)
    assert out.hidden_s.sum() == 0.0
    assert out.compute_s[0, 0] == pytest.approx(3.0)


def test_a_collective_hides_behind_what_runs_until_it_is_waited_for():
    out = found(Rows([kernel(0), comm(1, wait=3), kernel(2), kernel(3)]), [1.0, 2.5, 2.0, 1.0])
    assert out.exposed_s[0, TP] == pytest.approx(0.5)
    assert out.hidden_s[0, TP] == pytest.approx(2.0)


def test_two_that_block_one_after_another_both_show_though_the_second_does_not():
    out = found(Rows([comm(0), comm(1, wait=9, axis="dp"), kernel(2)]), [1.0, 0.5, 2.0])
    assert out.exposed_s[0, TP] == pytest.approx(1.0)
    assert out.hidden_s[0].sum() == pytest.approx(0.5)


def test_a_collective_slows_the_compute_beside_it():
    out = found(Rows([kernel(0), comm(1, wait=9), kernel(2)]), [1.0, 1.0, 2.0], Overlapping(0.25, 1.0))
    assert out.compute_s[0, 0] == pytest.approx(3.0 + 0.25 / 1.25)


def test_passes_do_not_overlap():
    out = found(Rows([kernel(0), comm(1, wait=9), kernel(2, "B")]), [1.0, 1.0, 2.0])
    assert out.exposed_s[0, TP] == pytest.approx(1.0)
    assert out.compute_s[1, 0] == pytest.approx(2.0)


def test_what_is_fetched_one_run_ahead_shows_once_if_it_is_shorter_than_a_run():
    rows = [comm(0), comm(1, wait=1, times=5), kernel(2, times=5)]
    out = found(Rows(rows, [(1, 3, 5)]), [0.5, 0.5, 1.0])
    assert out.exposed_s[0, TP] == pytest.approx(0.5)
    assert out.compute_s[0, 0] == pytest.approx(5.0)


@pytest.mark.parametrize("seconds", [[0.3, 1.0, 0.4], [1.7, 1.0, 0.4]])
def test_a_few_runs_stand_for_many(seconds: list[float], monkeypatch: pytest.MonkeyPatch):
    rows = [comm(0, wait=0, times=200), kernel(1, times=200), comm(2, times=200, axis="dp")]
    block = Rows(rows, [(0, 3, 200)])
    whole = found(block, seconds, Overlapping(0.2, 1.0))
    monkeypatch.setattr(block_lanes, "MOST_TASKS", 50)
    few = found(block, seconds, Overlapping(0.2, 1.0))
    for name in ("compute_s", "exposed_s", "hidden_s"):
        np.testing.assert_allclose(getattr(few, name), getattr(whole, name), rtol=1e-9, atol=1e-12)

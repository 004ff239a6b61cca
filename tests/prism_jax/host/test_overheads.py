"""Overheads of the host by operator."""

import numpy as np
import pytest

from prism_jax.host.program import (
    FEWEST,
    Action,
    Call,
    Operator,
    Overhead,
    TimedCall,
    overheads,
    recorded_calls,
    without_outliers,
)


def operator(name, start, n_call=2):
    """Two launches of 1 s, 2 s into the operator, 3 s apart, 4 s before its end."""
    calls = [
        TimedCall(Call(Action.KERNEL, call_s=1.0, busy_s=0.5), start + 2 + 4 * i, start + 3 + 4 * i)
        for i in range(n_call)
    ]
    return Operator(name, start, calls[-1].end_s + 4, tuple(calls))


STEP = [operator("linear", 10.0), operator("linear", 27.0), Operator("view", 42.0, 42.5)]  # each linear takes 11 s


def test_the_five_overheads_are_read_off():
    table = overheads([STEP])
    assert table.of(Overhead.T1, "linear") == pytest.approx(6)
    assert table.of(Overhead.T1, "linear after linear") == pytest.approx(6)
    assert table.of(Overhead.T1, "view after linear") == pytest.approx(4)
    assert table.of(Overhead.T2, "linear") == pytest.approx(2)
    assert table.of(Overhead.T2, "view") == pytest.approx(0.5)
    assert table.of(Overhead.T3, "linear") == pytest.approx(4)
    assert table.of(Overhead.T4, "linear") == pytest.approx(1)
    assert table.of(Overhead.T5, "linear") == pytest.approx(3)


def test_operators_never_seen_have_the_mean_of_all():
    table = overheads([STEP])
    assert table.of(Overhead.T3, "conv") == table.of(Overhead.T3, "")
    assert overheads([]).of(Overhead.T1, "conv") == 0.0


def test_recorded_gaps_fill_the_step():
    calls = recorded_calls(STEP, 5.0, 60.0)
    assert sum(c.gap_s + c.call_s for c in calls) == pytest.approx(55.0)


def test_outliers_are_left_out_of_many_values_only():
    many = np.append(np.linspace(1.0, 2.0, 20), 100.0)
    assert 100.0 not in without_outliers(many)
    assert 100.0 in without_outliers(many[-FEWEST + 1 :])

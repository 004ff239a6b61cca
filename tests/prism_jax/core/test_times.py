"""Times are written in the unit in which they read best: on the screen, with errors, and on the axes of pictures."""

from __future__ import annotations

import pytest

from prism_jax.core.picture import name_time_axis, new_axes
from prism_jax.core.readable import duration, time_to, time_with_error, value_with_error


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5e-3, "2.5 ms"), (3e-6, "3 us"), (0.0, "0 s"), (30.0, "30 s"), (720.0, "12 min"), (7.4 * 3600, "7.4 h")],
)
def test_durations_below_a_second_are_ms_or_us(seconds: float, text: str):
    assert duration(seconds) == text


def test_an_error_has_the_unit_of_its_duration():
    assert duration(0.4021, 0.0021) == time_with_error(0.4021, 0.0021) == "402 ± 2 ms"
    assert duration(7200.0, 360.0) == "2 ± 0.1 h"
    assert value_with_error(0.4021, 0.0021, "s") == "402 ± 2 ms"
    assert value_with_error(0.4021, 0.0021, "kWh") == "0.402 ± 0.002 kWh"  # no time


def test_digits_reach_down_to_the_smallest_difference_in_any_unit():
    assert time_to(1.23456, 0.01) == "1.23 s"
    assert time_to(0.0123456, 1e-5) == "12.35 ms"
    assert time_to(12.3456e-6, 1e-7) == "12.3 us"


@pytest.mark.parametrize(
    ("end_s", "unit", "scale"), [(8.0, "s", 1.0), (0.4, "ms", 1e3), (2e-5, "us", 1e6)], ids=["s", "ms", "us"]
)
def test_ticks_and_label_of_an_axis_share_one_unit(end_s: float, unit: str, scale: float):
    ax = new_axes()
    ax.plot([0.0, end_s], [0.0, 1.0])
    ax.set_xlim(0.0, end_s)
    name_time_axis(ax.xaxis, "step time")
    assert ax.get_xlabel() == f"step time ({unit})"
    written = [float(text) for text in ax.xaxis.get_major_formatter().format_ticks(ax.get_xticks().tolist())]
    assert written == pytest.approx(scale * ax.get_xticks())


def test_what_does_not_vary_has_no_error_and_says_so():
    assert value_with_error(1.840647e-3, 0.0, "s") == "1.8406 ms (constant)"
    assert value_with_error(12.5, 0.0, "kWh") == "12.5 kWh (constant)"

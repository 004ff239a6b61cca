"""Units of durations and of what a GPU log holds: from wherever they are said, and refused where they are not."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from inference.data.columns import ModelColumn
from inference.data.read import tidy
from prism_jax.core.errors import UnitError

from .tables import COLLECTIVES, FLEET, OVERLAP, STEPS, accounted, fleet_frame, read_text


@pytest.mark.parametrize(("unit", "factor"), [("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)])
def test_a_time_is_the_same_however_its_unit_is_said(unit: str, factor: float) -> None:
    frame = fleet_frame().rename(columns={"time_ms": "elapsed"})
    expected = frame["elapsed"].to_numpy() * factor
    ways = [
        tidy(frame.rename(columns={"elapsed": f"elapsed_{unit}"}), FLEET),
        tidy(frame.rename(columns={"elapsed": f"Elapsed [{unit}]"}), FLEET),
        tidy(frame.assign(elapsed_unit=unit), FLEET),
        tidy(frame.assign(duration_unit=unit), FLEET),
        tidy(frame.assign(unit=unit.upper()), FLEET),
        tidy(frame, FLEET, units={"duration": unit}),
        tidy(frame, FLEET, units={"duration_s": unit}),
        tidy(frame, FLEET, units={"elapsed": unit}),
        tidy(frame.assign(elapsed=[f"{value!r} {unit}" for value in frame["elapsed"].tolist()]), FLEET),
    ]
    for found in ways:
        np.testing.assert_allclose(found.frame["duration_s"], expected, rtol=1e-12)


def test_a_time_of_unknown_unit_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(UnitError, match=r"times\.csv: the unit of elapsed is not known.*--unit duration=ms"):
        read_text(tmp_path, "kernel,gpu,elapsed\na,1,2\n")


def test_a_declared_unit_that_the_file_contradicts_is_refused() -> None:
    with pytest.raises(UnitError, match=r"time_ms is in ms, but --unit says us"):
        tidy(fleet_frame(), FLEET, units={"duration": "us"})
    frame = fleet_frame().rename(columns={"time_ms": "elapsed"}).assign(elapsed_unit="ms")
    with pytest.raises(UnitError, match=r"elapsed_unit says other units"):
        tidy(frame, FLEET, units={"duration": "us"})


@pytest.mark.parametrize(
    ("units", "match"),
    [
        ({"duration": "fortnights"}, r"fortnights is not a unit of duration_s; units are s, ms, us, ns"),
        ({"duration": "GB"}, r"GB is not a unit of duration_s"),
        ({"kernel": "ms"}, r"kernel has no unit"),
    ],
)
def test_a_wrong_unit_is_refused(units: dict[str, str], match: str) -> None:
    with pytest.raises(UnitError, match=match):
        tidy(fleet_frame(), FLEET, units=units)


def test_rows_whose_unit_is_no_plain_unit_of_time_are_dropped_and_counted() -> None:
    frame = fleet_frame().rename(columns={"time_ms": "elapsed"})
    frame["elapsed_unit"] = ["ms"] * 10 + ["us/ms as in the benchmark"] * 6 + ["GB/s"] * 3 + [None]
    found = tidy(frame, FLEET)
    assert found.hygiene.dropped == {"duration_s has no unit of time in elapsed_unit": 10}
    assert accounted(found)


def test_units_may_differ_from_row_to_row() -> None:
    frame = fleet_frame().rename(columns={"time_ms": "elapsed"}).assign(elapsed=1.0)
    frame["elapsed_unit"] = ["s", "ms", "us", "ns"] * 5
    assert tidy(frame, FLEET).frame["duration_s"].unique().tolist() == [1.0, 1e-3, 1e-6, 1e-9]


def test_a_unit_column_of_something_else_is_not_taken() -> None:
    frame = fleet_frame().rename(columns={"time_ms": "elapsed"}).assign(unit="rack 7")
    assert len(tidy(frame, FLEET, units={"duration": "ms"}).frame) == 20
    with pytest.raises(UnitError):
        tidy(frame, FLEET)


def test_the_metric_of_a_row_says_its_unit() -> None:
    frame = pd.DataFrame({"run_id": 1, "metric": ["step_s", "log_dt_ms", "tokens_per_s"], "value": [2.0, 3000.0, 7.0]})
    found = tidy(frame, STEPS)
    assert found.frame["duration_s"].tolist() == [2.0, 3.0]
    assert found.hygiene.dropped == {"duration_s has no unit of time in metric": 1}


def test_exports_of_profilers_are_in_nanoseconds_and_a_note_says_so(tmp_path: Path) -> None:
    text = "ID,id,kShortName,Kernel Name,duration,ground_truth,overlap_ratio\n0,1,copy,copy,4000,5000,1\n"
    found = read_text(tmp_path, text, OVERLAP)
    assert found.frame["duration_s"].tolist() == pytest.approx([4e-6])
    assert found.frame["overlapped_s"].tolist() == pytest.approx([5e-6])
    assert sum("ns is assumed" in note for note in found.hygiene.notes) == 2


def test_sizes_clocks_and_powers_have_units_too() -> None:
    frame = pd.DataFrame({"op": "all_gather", "size [MiB]": [1, 2], "time [us]": [5.0, 6.0]})
    assert tidy(frame, COLLECTIVES).frame["message_bytes"].tolist() == [2.0**20, 2.0**21]
    covariates = fleet_frame(1, 1).assign(**{"clocks.sm [GHz]": 1.41, "power.draw [mW]": 250e3, "temperature.gpu": 60})
    row = tidy(covariates, FLEET).frame.iloc[0]
    assert (row["clock_mhz"], row["power_w"], row["temp_c"]) == (1410.0, 250.0, 60.0)


def test_a_rate_is_no_duration() -> None:
    assert not ModelColumn("bandwidth_bytes_per_s").is_duration
    assert not ModelColumn("kind_s", text=True).is_duration

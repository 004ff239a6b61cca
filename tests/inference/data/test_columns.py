"""Columns: names of tools that are understood, and units."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from inference.data.columns import ModelColumn, understand
from inference.data.read import read_measurements, tidy
from prism_jax.core.errors import DataError, UnitError
from prism_jax.fits.models import model_named
from tests.inference.data.tables import COLLECTIVES, FLEET, OVERLAP, STEPS, accounted, fleet_frame, read_text, values


@pytest.mark.parametrize(
    ("name", "base", "unit"),
    [
        ("time_us", "time", "us"),
        ("dt_ms", "dt", "ms"),
        ("time_us_out_of_place", "time_out_of_place", "us"),
        ("Step Time (s)", "step_time", "s"),
        ("elapsed [ms]", "elapsed", "ms"),
        ("durationNs", "duration", "ns"),
        ("latency.usec", "latency", "us"),
        ("time (µs)", "time", "us"),
        ("duration", "duration", ""),
        ("duration_min", "duration_min", ""),
        ("numGPUs", "num_gpus", ""),
        ("tokens_per_s", "tokens_per_s", ""),
        ("busbw_gb_s", "busbw_gb_s", ""),
        ("us_per_ms", "us_per_ms", ""),
        ("Model (temp)", "model_temp", ""),
    ],
)
def test_the_unit_of_a_time_stands_in_its_name(name: str, base: str, unit: str) -> None:
    found = understand(name, "s")
    assert (found.base, found.unit) == (base, unit)


def test_case_and_punctuation_do_not_matter() -> None:
    frame = fleet_frame().rename(columns={"kernel": "Kernel Name", "gpu": "GPU.UUID", "time_ms": "Time MS"})
    assert list(tidy(frame, FLEET).frame) == ["kernel", "gpu", "run", "duration_s"]


def test_the_first_alias_wins_and_a_note_says_so() -> None:
    frame = fleet_frame().assign(elapsed_us=7.0)
    found = tidy(frame, FLEET)
    assert min(values(found.frame, "duration_s")) > 0.01
    assert any("duration_s is read from time_ms, not from elapsed_us" in note for note in found.hygiene.notes)


def test_a_key_that_tells_nodes_apart_comes_before_their_number_in_a_rack() -> None:
    frame = fleet_frame().assign(node=1, node_key="rack7-1")
    assert set(tidy(frame, FLEET).frame["node"]) == {"rack7-1"}


def test_an_alias_does_not_take_the_name_of_another_column() -> None:
    columns = (ModelColumn("a", ("b",), required=True), ModelColumn("b", ("a",), required=True))
    frame = pd.DataFrame({"b": [2.0] * 20, "a": [1.0] * 20, "n": range(20)})
    assert values(tidy(frame, columns).frame, "a").tolist() == [1.0] * 20


def test_a_step_number_is_no_step_time() -> None:
    columns = (ModelColumn("duration_s", ("step_s",), required=True),)
    with pytest.raises(DataError, match=r"no column duration_s"):
        tidy(pd.DataFrame({"step": [1, 2]}), columns)


def test_a_mapping_names_the_column_with_or_without_unit() -> None:
    frame = fleet_frame().rename(columns={"time_ms": "t_ms"})
    for key in ("duration", "duration_s", "Duration"):
        assert min(values(tidy(frame, FLEET, mapping={key: "t_ms"}).frame, "duration_s")) > 0.02


def test_a_mapping_wins_over_the_names_in_the_file() -> None:
    frame = fleet_frame().assign(duration_s=5.0)
    assert set(tidy(frame, FLEET).frame["duration_s"]) == {5.0}
    assert max(tidy(frame, FLEET, mapping={"duration": "time_ms"}).frame["duration_s"]) < 1.0


@pytest.mark.parametrize(
    ("mapping", "match"),
    [
        (
            {"durations": "time_ms"},
            r"--map durations=time_ms: the model has no column durations, did you mean duration_s",
        ),
        ({"duration": "time_sm"}, r"no column time_sm for duration_s, did you mean time_ms"),
        ({"time_ms": "duration"}, r"the name in the model comes first. Write --map duration=time_ms"),
        ({"duration": "time_ms", "duration_s": "gpu"}, r"duration_s is mapped to time_ms already"),
    ],
)
def test_a_wrong_mapping_is_refused_with_its_remedy(mapping: dict[str, str], match: str) -> None:
    with pytest.raises(DataError, match=match):
        tidy(fleet_frame(), FLEET, mapping=mapping)


def test_a_missing_column_names_the_file_what_was_looked_for_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"times\.csv: no column kernel .*kernel_name.*kernal.*--map kernel=NAME"):
        read_text(tmp_path, "kernal,gpu,time_ms\na,1,2\n")


def test_a_name_that_stands_twice_is_refused_only_where_it_is_needed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"times\.csv: column time_ms is there 2 times"):
        read_text(tmp_path, "kernel,gpu,time_ms,time_ms\na,1,2,3\n")
    assert len(read_text(tmp_path, "kernel,gpu,time_ms,x,x\na,1,2,3,4\n").frame) == 1


def test_labels_are_text_and_whole_numbers_have_no_point(tmp_path: Path) -> None:
    found = read_text(tmp_path, "kernel,gpu,run,time_ms\na,1.0,3,2\na,1.5,,2\n").frame
    assert found["gpu"].tolist() == ["1", "1.5"]
    assert found["run"].tolist()[0] == "3"
    assert found["run"].isna().tolist() == [False, True]


def test_columns_without_a_value_are_left_out() -> None:
    frame = fleet_frame().assign(temp_c=float("nan"))
    assert "temp_c" not in tidy(frame, FLEET).frame


def test_a_column_without_a_name_is_none_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "gemm.csv").write_text(",m,n,k,dtype,gpu,time_us\nx,512,512,512,bf16,h100-sxm,32\n")
    found = read_measurements([tmp_path / "gemm.csv"], model_named("kernels").columns)  # "s", its alias, is a unit too
    assert "seq_len" not in found.frame


# --- Units of durations and of what a GPU log holds: from wherever they are said, and refused where they are not -----


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

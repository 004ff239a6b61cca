"""Rows that are dropped: by rule, counted, never silently."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from inference.data.columns import ModelColumn
from inference.data.read import read_measurements, tidy
from prism_jax.core.errors import DataError
from prism_jax.core.page import Facts, Note, Table
from prism_jax.core.report import to_plain
from prism_jax.fits.report import CleaningReport
from tests.inference.data.tables import FLEET, STEPS, accounted, fleet_frame, read_text, values, write


def test_every_kind_of_invalid_row_is_counted_under_its_rule(tmp_path: Path) -> None:
    rows = [
        "a,1,2.0",
        "a,2,nan",
        "a,3,",
        "a,4,inf",
        "a,5,-3",
        "a,6,0",
        "a,7,soon",
        ",8,2.0",
        "a,,2.0",
        "a,9,N/A",
        "a,1,2.0",
    ]
    found = read_text(tmp_path, "kernel,gpu,time_ms\n" + "\n".join(rows) + "\n")
    assert found.hygiene.dropped == {
        "kernel is missing": 1,
        "gpu is missing": 1,
        "duration_s is missing": 3,
        "duration_s is not a number": 1,
        "duration_s is infinite": 1,
        "duration_s is negative": 1,
        "duration_s is zero": 1,
        "the same row again": 1,
    }
    assert (found.hygiene.n_read, found.hygiene.n_kept) == (11, 1)
    assert accounted(found)


def test_a_placeholder_for_what_did_not_finish_is_no_duration() -> None:
    frame = fleet_frame()
    frame.loc[:2, "time_ms"] = 1e9
    assert tidy(frame, FLEET).hygiene.dropped == {"duration_s is longer than 5 days, a placeholder": 3}


def test_a_blank_stays_where_it_may() -> None:
    frame = fleet_frame().assign(temp_c=[np.nan, 60.0] * 10, node=["n1", None] * 10)
    found = tidy(frame, FLEET)
    assert found.hygiene.dropped == {}
    assert [found.frame[name].isna().tolist().count(True) for name in ("temp_c", "node")] == [10, 10]
    strict = tidy(frame, (*FLEET[:7], ModelColumn("temp_c", required=True)))
    assert strict.hygiene.dropped == {"temp_c is missing": 10}


def test_what_is_no_number_in_a_column_that_may_be_blank_counts_as_blank_and_is_noted() -> None:
    found = tidy(fleet_frame().assign(temp_c=["hot", "inf", "N/A", 60] * 5), FLEET)
    assert found.frame["temp_c"].notna().tolist().count(True) == 5
    assert any("10 values of temp_c are infinite or no numbers" in note for note in found.hygiene.notes)


def test_nothing_left_is_an_error_with_counts() -> None:
    with pytest.raises(DataError, match=r"none of 20 rows is left \(20 duration_s is negative\)"):
        tidy(fleet_frame().assign(time_ms=-1.0), FLEET)


# --- Rows that were read before ---------------------------------------------------------------------------------------


def test_copied_rows_are_dropped() -> None:
    frame = fleet_frame()
    found = tidy(pd.concat([frame, frame.iloc[:7]]), FLEET)
    assert found.hygiene.dropped == {"the same row again": 7}
    assert accounted(found)


def test_rows_that_differ_in_a_column_the_model_does_not_know_are_not_the_same() -> None:
    frame = fleet_frame().assign(time_ms=5.0)
    twice = pd.concat([frame.assign(attempt=1), frame.assign(attempt=2)])
    assert len(tidy(twice, FLEET).frame) == 40


def test_rounded_repeats_without_number_are_no_copies() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"kernel": "gemm", "gpu": "g0", "time_ms": rng.integers(90, 110, 2000)})
    found = tidy(frame, FLEET)
    assert len(found.frame) == 2000
    assert any("equal to one before and stay" in note for note in found.hygiene.notes)


def test_a_table_given_twice_over_is_halved_although_its_times_are_rounded() -> None:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"kernel": "gemm", "gpu": range(500), "time_ms": rng.integers(90, 110, 500)})
    assert tidy(pd.concat([frame, frame]), FLEET).hygiene.dropped == {"the same row again": 500}


def test_a_file_named_twice_is_read_once_and_a_copy_of_it_adds_nothing(tmp_path: Path) -> None:
    text = fleet_frame().to_csv(index=False)
    one, two = write(tmp_path / "a.csv", text), write(tmp_path / "b.csv", text)
    once = read_measurements([one, one], FLEET)
    assert once.hygiene.n_read == 20
    assert any("named 2 times" in note for note in once.hygiene.notes)
    both = read_measurements([one, two], FLEET)
    assert both.hygiene.dropped == {"the same row again": 20}
    assert both.sources == (str(one), str(two))


def test_the_order_of_columns_does_not_make_rows_different(tmp_path: Path) -> None:
    frame = fleet_frame()
    one = write(tmp_path / "a.csv", frame.to_csv(index=False))
    two = write(tmp_path / "b.csv", frame[frame.columns[::-1]].to_csv(index=False))
    assert read_measurements([one, two], FLEET).hygiene.dropped == {"the same row again": 20}


def test_runs_that_were_submitted_before_are_dropped() -> None:
    frame = pd.DataFrame({"run_id": [1, 1, 2, 2, 3, 3], "dup_of": [np.nan, np.nan, 1, 1, np.nan, np.nan]})
    frame["dt_ms"] = np.arange(6) + 1.0
    found = tidy(frame, STEPS)
    assert found.hygiene.dropped == {"a run that was submitted before (dup_of)": 2}
    assert found.frame["run"].unique().tolist() == ["1", "3"]


def test_one_copy_stands_for_an_original_that_is_not_there() -> None:
    frame = pd.DataFrame(
        {"run_id": [2, 3, 1], "dup_of": [1, 1, np.nan], "site": ["b", "b", "a"], "dt_ms": [1.0, 2.0, 3.0]}
    )
    assert tidy(frame, STEPS).frame["run"].tolist() == ["1"]
    assert tidy(frame, STEPS, where={"site": "b"}).frame["run"].tolist() == ["2"]


# --- What is suspicious and stays ------------------------------------------------------------------------------------


def test_a_constant_duration_is_noted() -> None:
    notes = tidy(fleet_frame(10, 5).assign(time_ms=3.0), FLEET).hygiene.notes
    assert any("is 0.003 in all 50 rows" in note for note in notes)


def test_heaps_a_thousand_apart_are_noted_and_kept() -> None:
    frame = fleet_frame(10, 10)
    frame.loc[frame["gpu"] < 3, "time_ms"] /= 1000
    found = tidy(frame, FLEET)
    assert len(found.frame) == 100
    assert any("two heaps about 1,000 apart" in note for note in found.hygiene.notes)


def test_sizes_and_kernels_of_any_scale_are_not_suspicious() -> None:
    frame = fleet_frame(10, 10)
    frame.loc[frame["gpu"] < 3, ["time_ms", "kernel"]] = [[20e-3, "small"]] * 30
    assert tidy(frame, FLEET).hygiene.notes == ()


# --- Nothing is lost -------------------------------------------------------------------------------------------------

cells = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from(["", "12 ms", "12", "soon", None, "N/A", "-3 us", "1e400", "[Not Supported]", True, 10**400]),
)


@given(
    times=st.lists(cells, min_size=1, max_size=30),
    gpu=st.lists(st.sampled_from(["g0", "g1", "", None, 3, 4.0]), min_size=30, max_size=30),
    unit=st.sampled_from(["ms", "us", None, "GB/s"]),
)
def test_every_row_is_kept_or_counted(times: list, gpu: list, unit: str | None) -> None:
    frame = pd.DataFrame({"kernel": "k", "gpu": gpu[: len(times)], "elapsed": pd.Series(times, dtype=object)})
    frame["elapsed_unit"] = [unit if index % 3 else "ms" for index in range(len(times))]
    try:
        found = tidy(frame, FLEET)
    except DataError as error:
        assert "is left" in str(error)
    else:
        assert accounted(found)
        assert (values(found.frame, "duration_s") > 0).all()
        assert np.isfinite(values(found.frame, "duration_s")).all()


@given(text=st.text(max_size=200), name=st.sampled_from(["a.csv", "a.tsv", "a.log", "a.txt", "a"]))
def test_any_text_is_read_or_refused_with_its_name(
    text: str, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("any") / name
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        read_measurements([path], FLEET)


def test_an_account_as_object_and_as_lines() -> None:
    hygiene = CleaningReport(10, 7, {"a": 1, "b": 2}, ("odd",))
    assert to_plain(hygiene) == {"n_read": 10, "n_kept": 7, "dropped": {"a": 1, "b": 2}, "notes": ["odd"]}
    facts, dropped, note = hygiene.blocks()
    assert isinstance(facts, Facts)
    assert facts.facts == {"read": "10 rows", "kept": "7 rows"}
    assert isinstance(dropped, Table)
    assert dropped.rows == [("2", "b"), ("1", "a")]
    assert note == Note("note: odd")


def test_a_table_in_memory_is_left_as_it_is() -> None:
    frame = fleet_frame().assign(time_ms=-1.0)
    frame.loc[3, "time_ms"] = 4.0
    before = frame.copy()
    tidy(frame, FLEET)
    pd.testing.assert_frame_equal(frame, before)

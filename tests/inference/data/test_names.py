"""Names of columns: which column of a file is which column of the model."""

from pathlib import Path

import pandas as pd
import pytest

from inference.data.columns import ModelColumn, understand
from inference.data.read import read_measurements, tidy
from inference.fitting.models import model_named
from prism_jax.core.errors import DataError

from .tables import FLEET, fleet_frame, read_text, values


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

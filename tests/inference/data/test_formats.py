"""Formats of measurements, values taken strictly, and files that are broken."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import inference
from inference.data import raw_table
from inference.data.checks import ROW
from inference.data.read import read_measurements, tidy
from inference.engine.model import random_key
from inference.fitting.fit import fit
from prism_jax.core.errors import DataError, UnitError
from tests.inference.data.broken_measurements import BROKEN
from tests.inference.data.tables import COLLECTIVES, FLEET, STEPS, fleet_frame, read_text, write
from tests.support.files.broken import Broken


def _written(frame: pd.DataFrame, path: Path) -> Path:
    plain = frame.to_csv(index=False, sep={".tsv": "\t", ".txt": ";"}.get(path.suffix, ",")).encode()
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    elif path.suffix == ".zst":
        with pa.output_stream(str(path), compression="zstd") as stream:
            stream.write(plain)
    else:
        path.write_bytes(gzip.compress(plain) if path.suffix == ".gz" else plain)
    return path


@pytest.mark.parametrize(
    "name", ["a.csv", "a.tsv", "a.txt", "a.csv.gz", "a.csv.zst", "a.parquet", "a.dat", "noending", "A.CSV"]
)
def test_a_table_is_the_same_in_every_format(name: str, tmp_path: Path) -> None:
    frame = fleet_frame().assign(node=["n1", None] * 10)
    found = read_measurements([_written(frame, tmp_path / name)], FLEET)
    pd.testing.assert_frame_equal(found.frame, tidy(frame, FLEET).frame, check_dtype=False)
    assert found.hygiene.n_read == 20


def test_formats_of_one_table_hold_the_same_rows(tmp_path: Path) -> None:
    files = [_written(fleet_frame(), tmp_path / name) for name in ("a.csv", "b.parquet", "c.tsv")]
    found = read_measurements(files, FLEET)
    assert found.hygiene.dropped == {"the same row again": 40}


def test_a_table_that_is_read_in_pieces_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = fleet_frame(7, 9).assign(node=[None] * 40 + ["n7"] * 23)
    path = _written(pd.concat([frame, frame.iloc[:5]]), tmp_path / "a.csv")
    monkeypatch.setattr(raw_table, "ROWS_AT_ONCE", 8)
    found = read_measurements([path], FLEET)
    pd.testing.assert_frame_equal(found.frame, tidy(frame, FLEET).frame, check_dtype=False)
    assert found.hygiene.dropped == {"the same row again": 5}


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_numbers_of_rows_do_not_make_rows_different(name: str, tmp_path: Path) -> None:
    frame = pd.concat([fleet_frame(), fleet_frame().iloc[:5]], ignore_index=True)
    frame.index = pd.Index(range(100, 125))
    if name.endswith("csv"):
        frame.to_csv(tmp_path / name)
    else:
        frame.to_parquet(tmp_path / name, index=True)
    found = read_measurements([tmp_path / name], FLEET)
    assert found.hygiene.dropped == {"the same row again": 5}


def test_a_byte_order_mark_blank_lines_and_spaces_do_not_matter(tmp_path: Path) -> None:
    found = read_text(tmp_path, "\ufeff\nkernel, gpu, time_ms\r\n\r\ngemm, 1, 2.5\r\n")
    assert found.frame.iloc[0].to_dict() == pytest.approx({"kernel": "gemm", "gpu": "1", "duration_s": 0.0025})


def test_quoted_fields_hold_separators(tmp_path: Path) -> None:
    assert read_text(tmp_path, 'kernel,gpu,time_ms\n"gemm, big",1,2\n').frame["kernel"].tolist() == ["gemm, big"]


def test_labels_of_any_script_stay_as_they_are(tmp_path: Path) -> None:
    found = read_text(tmp_path, "kernel,gpu,time_ms\nφ-ядро,显卡,2\n")
    assert found.frame[["kernel", "gpu"]].to_numpy().tolist() == [["φ-ядро", "显卡"]]


def test_types_of_parquet_columns_are_understood(tmp_path: Path) -> None:
    table = pa.table(
        {
            "kernel": pa.array(["gemm"] * 3).dictionary_encode(),
            "gpu": pa.array([1, None, 2], pa.int32()),
            "duration": pa.array([1500, 2500, None], pa.duration("us")),
            "time": pa.array([0, 10**9, 2 * 10**9], pa.timestamp("ns")),
            "blob": pa.array([b"1", b"2", b"3"]),
        }
    )
    import pyarrow.parquet as pq

    pq.write_table(table, tmp_path / "a.parquet")
    found = read_measurements([tmp_path / "a.parquet"], (*FLEET[:5], FLEET[5]))
    assert found.hygiene.dropped == {"gpu is missing": 1, "duration_s is missing": 1}
    row = found.frame.iloc[0]
    assert (row["gpu"], row["duration_s"], row["time"]) == ("1", 0.0015, 0.0)


def test_dates_are_seconds_since_1970() -> None:
    frame = fleet_frame(1, 3).assign(timestamp=["1970-01-02", "1970/01/01 00:00:01.500", "1970-01-01T01:00:00+01:00"])
    assert tidy(frame, FLEET).frame["time"].tolist() == [86400.0, 1.5, 0.0]


def test_types_of_columns_in_memory_do_not_matter() -> None:
    plain = fleet_frame()
    other = plain.assign(
        kernel=plain["kernel"].astype("category"),
        gpu=plain["gpu"].astype("Int64"),
        time_ms=plain["time_ms"].astype("Float64"),
    )
    other.index = pd.Index(np.arange(20) // 3)
    pd.testing.assert_frame_equal(tidy(other, FLEET).frame, tidy(plain, FLEET).frame)


# --- Rows that are events are refused by their number, not dropped: a rate without them would be wrong ---------------


HEADER = "system,node,start,end\n"


def read(tmp_path: Path, *rows: str, header: str = HEADER) -> pd.DataFrame:
    path = tmp_path / "log.csv"
    path.write_text(header + "\n".join(rows) + "\n")
    return inference.measured([str(path)], "repairs").frame


GOOD = "a,1,2026-03-01T10:00:00Z,2026-03-01T11:00:00+01:00"


def test_offsets_count(tmp_path: Path) -> None:
    frame = read(tmp_path, GOOD, "a,2,2026-03-01T12:00:00+02:00,2026-03-01T10:30:00Z")
    assert frame["start_time"].tolist() == [frame["start_time"].iloc[0]] * 2
    assert (frame["end_time"] - frame["start_time"]).tolist() == [0.0, 1800.0]
    assert frame[ROW].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("a,2,2026-03-01 10:00:00,", "row 2: start '2026-03-01 10:00:00' has no time zone. Write"),
        ("a,2,2026-03-01T10:00:00Z,2026-03-01 12:00", "row 2: end '2026-03-01 12:00' has no time zone"),
        ("a,2,2026-03-01T10:00:00Z,2026-03-01T09:00:00Z", "row 2: end_time is 3,600 s before start_time"),
        ("a,2,,", "row 2: start is missing"),
        ("a,2,soonZ,", "row 2: start 'soonZ' is not a date with its zone"),
        ("a,2,1772359200000,", "row 2: start 1772359200000 is after the year 2200"),
        (",2,2026-03-01T10:00:00Z,", "row 2: system is missing"),
    ],
)
def test_a_wrong_row_is_named_with_its_file(tmp_path: Path, row: str, text: str) -> None:
    good = "a,1,1772359200," if "1772" in row else GOOD
    with pytest.raises(DataError) as error:
        read(tmp_path, good, row)
    assert text in str(error.value)
    assert "log.csv" in str(error.value)


def test_a_typed_clock_without_a_zone_is_told(tmp_path: Path) -> None:
    times = pd.to_datetime(["2026-03-01 10:00", "2026-03-01 12:00"])
    path = tmp_path / "log.parquet"
    pd.DataFrame({"system": ["a", "a"], "start": times}).to_parquet(path)
    assert "names no zone: one clock" in " ".join(inference.measured([str(path)], "repairs").hygiene.notes)


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"log\.csv"):
        read(tmp_path)


@pytest.mark.parametrize("header", ["batch,step_ms", "batch_size,step_time_ms"])
def test_a_wrong_value_is_told_in_the_name_and_unit_of_the_file(header: str, tmp_path: Path) -> None:
    file = tmp_path / "ladder.csv"
    file.write_text(f"{header}\n8,30\n16,-4\n")
    name = header.split(",")[1]
    with pytest.raises(DataError, match=rf"row 2: {name} -4.* must be above 0"):
        inference.measured(file, "ladder")


# --- Broken files: one error, with the file's name and a remedy, and never another exception -------------------------


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.name)
def test_a_broken_file_is_refused_with_its_name(kind: Broken, tmp_path: Path) -> None:
    path = kind.make(tmp_path)
    columns = {"all_reduce.log": COLLECTIVES, "run.log": STEPS}.get(path.name, FLEET)
    if not kind.match:  # readable all the same
        assert len(read_measurements([path], columns).frame) > 0
        return
    with pytest.raises((DataError, UnitError), match=kind.match):
        read_measurements([path], columns)


ENOUGH_WITH_ANOTHER = ("no valid row", "words for times", "a quote without end", "nvidia-smi alone")
"""What is no error beside a good file, because enough is left or because it is joined to that."""


@pytest.mark.parametrize(
    "kind", [kind for kind in BROKEN if kind.match and kind.name not in ENOUGH_WITH_ANOTHER], ids=lambda kind: kind.name
)
def test_a_broken_file_beside_a_good_one_is_refused_too(kind: Broken, tmp_path: Path) -> None:
    good = write(tmp_path / "good.csv", fleet_frame().to_csv(index=False))
    with pytest.raises((DataError, UnitError)):
        read_measurements([good, kind.make(tmp_path)], FLEET)


def test_a_file_that_unpacks_to_more_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_table, "MAX_BYTES", 2**20)
    path = write(tmp_path / "times.csv", "kernel,gpu,time_ms\n" + "gemm,1,2.5\n" * 200_000)
    with pytest.raises(DataError, match=r"times\.csv: more than 0\.000976562 GiB, unpacked"):
        read_measurements([path], FLEET)


def test_no_files_and_no_rows_are_refused() -> None:
    with pytest.raises(DataError, match="no files"):
        read_measurements([], FLEET)
    with pytest.raises(DataError, match="table: no rows"):
        tidy(fleet_frame().iloc[:0], FLEET)


def test_a_table_in_memory_with_a_name_twice_or_in_levels_is_refused() -> None:
    frame = fleet_frame()
    with pytest.raises(DataError, match=r"table: column gpu is there 2 times"):
        tidy(frame.rename(columns={"run": "gpu"}), FLEET)
    with pytest.raises(DataError, match=r"in 2 levels"):
        tidy(frame.T.set_index([[1, 2, 3, 4]], append=True).T, FLEET)


@pytest.mark.parametrize("n", [1, 5])
def test_what_a_model_refuses_after_reading_names_the_files(n: int, tmp_path: Path) -> None:
    text = "gpu,kernel,duration_ms\n" + "".join(
        f"{gpu},gemm,{10 + gpu + 0.1 * i}\n" for gpu in range(3) for i in range(9)
    )
    files = [write(tmp_path / f"times {i}.csv", text.replace("gemm", f"gemm{i}")) for i in range(n)]
    more = "" if n == 1 else " and 2 more"
    with pytest.raises(DataError, match=rf"times 0\.csv.*{more}: 3 GPUs are too few"):
        fit(files, model="fleet", key=random_key(0, 0))

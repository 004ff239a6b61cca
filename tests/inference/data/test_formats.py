"""Tables as files: separators, packing, parquet, and encodings that are read."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from inference.data import raw_table as delimited
from inference.data.read import read_measurements, tidy

from .tables import FLEET, fleet_frame, read_text


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
    monkeypatch.setattr(delimited, "ROWS_AT_ONCE", 8)
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

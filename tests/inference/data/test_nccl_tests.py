"""Logs of nccl-tests of several versions. The logs are written here, after the programs' print statements."""

from pathlib import Path

import pytest

from inference import measured
from inference.data.clean import Measurements
from inference.data.read import read_measurements
from prism_jax.core.errors import DataError, FitError
from tests.inference.data.tables import COLLECTIVES, accounted, records, write

UNITS = (
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
)
NEW = (
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong\n"
    + UNITS
)
OLD = (
    "#       size         count    type   redop     time   algbw   busbw     error     time   algbw   busbw     error\n"
    + UNITS
)
STARTS = (
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1\n"
)


def ranks(n: int, per_host: int, group: str = "Group  0 ") -> str:
    lines = []
    for rank in range(n):
        host, device = divmod(rank, per_host)
        place = f"Pid  {4000 + rank} on  host-{host} device  {device} [0x{rank:02x}] NVIDIA H100 80GB"
        lines.append(f"#  Rank {rank:2d} {group}{place}\n")
    return "#\n# Using devices\n" + "".join(lines) + "#\n"


def row(size: int, out_us: object, in_us: object, root: str = "     -1") -> str:
    what = f"{size:12d}{size // 4:14d}     float     sum{root}"
    return f"{what} {out_us!s:>8}    0.00    0.00       0 {in_us!s:>8}    0.00    0.00     N/A\n"


def read(folder: Path, text: str, name: str = "run.log") -> Measurements:
    return read_measurements([write(folder / name, text)], COLLECTIVES)


def test_a_log_gives_every_size_out_of_place_and_in_place(tmp_path: Path) -> None:
    text = (
        "# nccl-tests version 2.17.1 nccl-headers=22704 nccl-library=22704\n# Collective test starting: all_reduce_perf\n"
        + STARTS + ranks(16, 8) + NEW + row(8, 21.5, 21.25) + row(16, 22.5, 20.75)
        + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.5\n#\n"
    )  # fmt: skip
    found = read(tmp_path, text)
    frame = found.frame
    assert frame["message_bytes"].tolist() == [8, 8, 16, 16]
    assert frame["duration_s"].tolist() == pytest.approx([21.5e-6, 21.25e-6, 22.5e-6, 20.75e-6])
    assert frame["in_place"].tolist() == ["out", "in"] * 2
    common = {
        "op": "all_reduce",
        "n_gpus": 16,
        "n_nodes": 2,
        "gpus_per_node": 8,
        "gpu": "NVIDIA H100 80GB",
        "library": "NCCL 2.27.4",
    }
    assert records(frame, list(common)) == [common]
    assert accounted(found)


def test_an_old_log_has_no_root_and_no_group(tmp_path: Path) -> None:
    text = (
        STARTS
        + ranks(4, 4, group="")
        + "NCCL version 2.7.8+cuda11.0\n"
        + OLD
        + row(1024, 30, 31, root="").replace("N/A", "0e+00")
    )
    found = read(tmp_path, text, "allgather_4gpus.txt").frame
    assert found["op"].tolist() == ["all_gather"] * 2
    assert found["library"].tolist() == ["NCCL 2.7.8"] * 2
    assert found["n_nodes"].tolist() == [1, 1]


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "0: ", "    "])
def test_what_a_launcher_puts_before_lines_is_taken_off(prefix: str, tmp_path: Path) -> None:
    text = "$ mpirun ./build/alltoall_perf -b 8\n" + STARTS + ranks(8, 4) + NEW + row(64, 10, 11)
    frame = read(tmp_path, "".join(prefix + line for line in text.splitlines(keepends=True))).frame
    assert frame["op"].tolist() == ["alltoall"] * 2
    assert frame["n_gpus"].tolist() == [8, 8]


def test_several_tests_in_one_log_keep_apart(tmp_path: Path) -> None:
    one = "# Collective test starting: sendrecv_perf\n" + STARTS + ranks(2, 1) + NEW + row(8, 1, 2)
    two = "# Collective test starting: reduce_scatter_perf\n" + STARTS + ranks(4, 4) + NEW + row(8, 3, 4)
    frame = read(tmp_path, one + "host:1:2 [0] NCCL INFO Init COMPLETE\n" + two).frame
    assert frame["op"].tolist() == ["send_recv"] * 2 + ["reduce_scatter"] * 2
    assert frame["n_gpus"].tolist() == [2, 2, 4, 4]
    assert frame["n_nodes"].tolist() == [2, 2, 1, 1]


def test_a_row_without_a_time_is_counted(tmp_path: Path) -> None:
    text = (
        "all_reduce_perf\n"
        + STARTS
        + ranks(2, 2)
        + NEW
        + row(8, "nan", 2)
        + row(16, "inf", "N/A")
        + row(32, 1, 2)[:45]
        + "\n"
    )
    found = read(tmp_path, text)
    assert found.hygiene.n_read == 6
    assert sum(found.hygiene.dropped.values()) == 5
    assert accounted(found)


def test_a_log_without_devices_leaves_their_number_blank_and_says_so(tmp_path: Path) -> None:
    found = read(tmp_path, "all_reduce_perf\n" + STARTS + NEW + row(8, 1, 2))
    assert "n_gpus" not in found.frame
    assert any("without a list of devices" in note for note in found.hygiene.notes)


def test_the_same_log_under_another_name_adds_nothing_and_a_repeat_does(tmp_path: Path) -> None:
    text = "all_reduce_perf\n" + STARTS + ranks(2, 2) + NEW + row(8, 1, 2) + row(16, 3, 4)
    files = [
        write(tmp_path / "a.log", text),
        write(tmp_path / "b.log", text),
        write(tmp_path / "c.log", text.replace("16", "32")),
    ]
    found = read_measurements(files, COLLECTIVES)
    assert found.hygiene.dropped == {"the same row again": 4}
    assert len(found.frame) == 8


def test_logs_and_tables_go_together(tmp_path: Path) -> None:
    log = write(tmp_path / "a.log", "all_reduce_perf\n" + STARTS + ranks(2, 2) + NEW + row(8, 1, 2))
    table = write(tmp_path / "b.csv", "collective,bytes,ngpus,time_us\nall_reduce,8,4,3\n")
    found = read_measurements([log, table], COLLECTIVES)
    assert found.frame["n_gpus"].tolist() == [2, 2, 4]
    assert found.frame["in_place"].isna().tolist() == [False, False, True]


def test_the_collective_of_a_log_that_does_not_say_it_is_given_and_one_that_says_another_is_refused(
    tmp_path: Path,
) -> None:
    plain = STARTS + ranks(8, 8) + NEW + row(8, 21.5, 21.25)
    log = write(tmp_path / "run.log", plain)
    found = read_measurements([log], COLLECTIVES, collective="reduce_scatter")
    assert set(found.frame["op"]) == {"reduce_scatter"}
    says = write(tmp_path / "says.log", "# Collective test starting: all_gather_perf\n" + plain)
    assert set(read_measurements([says], COLLECTIVES, collective="all_gather").frame["op"]) == {"all_gather"}
    with pytest.raises(DataError, match=r"says\.log: a log of all_gather, not of reduce_scatter"):
        read_measurements([says], COLLECTIVES, collective="reduce_scatter")
    with pytest.raises(FitError, match="did you mean reduce_scatter"):
        measured([log], "collectives", collective="reduce_scater")
    with pytest.raises(FitError, match="a model of fleet has none"):
        measured([log], "fleet", collective="reduce_scatter")

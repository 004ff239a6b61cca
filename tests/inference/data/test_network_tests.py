"""Logs of nccl-tests of several versions, OSU, perftest and others, written here after the programs' print statements."""

from pathlib import Path

import pytest

from inference import measured
from inference.data.clean import Measurements
from inference.data.network_tests import read_network_tests
from inference.data.read import read_measurements
from prism_jax.core.errors import DataError, FitError
from prism_jax.fits.models import CollectiveRun
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


def test_a_log_without_devices_asks_for_their_number_and_takes_it(tmp_path: Path) -> None:
    text = "all_reduce_perf\n" + STARTS + NEW + row(8, 1, 2)
    with pytest.raises(DataError, match="does not say among how many GPUs it ran. Say it: --gpus 16 --nodes 2"):
        read(tmp_path, text)
    log = write(tmp_path / "said.log", text)
    found = read_measurements([log], COLLECTIVES, collective=CollectiveRun(n_gpus=32, n_nodes=4))
    assert records(found.frame, ["n_gpus", "n_nodes"]) == [{"n_gpus": 32, "n_nodes": 4}]
    guess = read_measurements([log], COLLECTIVES, collective=CollectiveRun(n_gpus=20))
    assert set(guess.frame["n_nodes"]) == {3}
    assert any("taken as 8 GPUs to a node" in note for note in guess.hygiene.notes)


def test_one_process_with_several_gpus_says_how_many(tmp_path: Path) -> None:
    frame = read(tmp_path, "all_reduce_perf\n" + STARTS.replace("nGpus 1", "nGpus 8") + NEW + row(8, 1, 2)).frame
    assert records(frame, ["n_gpus", "n_nodes"]) == [{"n_gpus": 8, "n_nodes": 1}]


def test_gpus_that_the_log_contradicts_are_refused(tmp_path: Path) -> None:
    log = write(tmp_path / "a.log", "all_reduce_perf\n" + STARTS + ranks(16, 8) + NEW + row(8, 1, 2))
    with pytest.raises(DataError, match="a test among 16 gpus, not 8. Leave --gpus out"):
        read_measurements([log], COLLECTIVES, collective=CollectiveRun(n_gpus=8))


@pytest.mark.parametrize("root", ["     -1", "", "       "])
def test_rows_without_any_header_are_read_with_what_options_say(root: str, tmp_path: Path) -> None:
    log = write(tmp_path / "pasted.txt", row(1024, 30.5, 31.5, root) + row(2048, 32.5, 33.5, root))
    found = read_measurements([log], COLLECTIVES, collective=CollectiveRun("all_gather", 16, 2)).frame
    assert found["message_bytes"].tolist() == [1024, 1024, 2048, 2048]
    assert found["duration_s"].tolist() == pytest.approx([30.5e-6, 31.5e-6, 32.5e-6, 33.5e-6])


def test_marks_and_debug_lines_do_not_matter(tmp_path: Path) -> None:
    text = "all_reduce_perf\n" + STARTS + ranks(8, 8) + NEW + row(8, 1, 2) + row(16, 3, 4)
    plain = read(tmp_path, text, "a.log").frame
    assert read(tmp_path, text.replace("#", " "), "b.log").frame.equals(plain)
    noisy = text.replace("\n", "\nhost-0:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n")
    assert read(tmp_path, noisy, "c.log").frame.equals(plain)
    stamped = "".join(f"2025-03-01T10:00:00.123Z {line}" for line in text.splitlines(keepends=True))
    assert read(tmp_path, stamped, "d.log").frame.equals(plain)


def test_an_operation_whose_redop_is_blank_has_its_times_where_they_are(tmp_path: Path) -> None:
    line = row(64, 10.5, 11.5, root="").replace("     sum", "        ")
    frame = read(tmp_path, "all_gather_perf\n" + STARTS + ranks(8, 8) + OLD + line).frame
    assert frame["duration_s"].tolist() == pytest.approx([10.5e-6, 11.5e-6])


OSU_TITLES = {
    "OSU MPI-CUDA Allreduce Latency Test v7.3": ("all_reduce", 1),
    "OSU MPI Allgather Latency Test v5.6.2": ("all_gather", 16),
    "OSU NCCL-CUDA Alltoall Latency Test v7.4": ("alltoall", 16),
    "OSU MPI-ROCM Reduce_scatter Latency Test v7.3": ("reduce_scatter", 1),
    "OSU MPI Broadcast Latency Test": ("broadcast", 1),
}


@pytest.mark.parametrize("title", OSU_TITLES)
def test_osu_collectives_count_what_goes_to_one_rank(title: str, tmp_path: Path) -> None:
    op, factor = OSU_TITLES[title]
    text = f"# {title}\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)   Min Latency(us)\n1024 30.5 29.0\n2048 31.5 30.0\n"
    log = write(tmp_path / "osu.txt", text)
    frame = read_measurements([log], COLLECTIVES, collective=CollectiveRun(n_gpus=16, n_nodes=2)).frame
    assert set(frame["op"]) == {op}
    assert frame["message_bytes"].tolist() == [1024 * factor, 2048 * factor]
    assert frame["duration_s"].tolist() == pytest.approx([30.5e-6, 31.5e-6])


@pytest.mark.parametrize(
    ("text", "n_bytes", "seconds"),
    [
        ("# OSU MPI-CUDA Latency Test v7.3\n# Size          Latency (us)\n8      2.50\n", 8, 2.5e-6),
        (
            "# OSU MPI-CUDA Bandwidth Test v7.3\n# Size      Bandwidth (MB/s)\n8 1.0\n1048576     20000.00\n",
            64 * 2**20,
            64 * 2**20 / 20e9,
        ),
        (
            "# OSU MPI-CUDA Bi-Directional Bandwidth Test v7.3\n# Size      Bandwidth (MB/s)\n1048576     40000.00\n",
            64 * 2**20,
            64 * 2**20 / 20e9,
        ),
        (
            "                    RDMA_Write BW Test\n Mtu             : 4096[B]\n"
            " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
            " 65536      5000             400.00             392.00     0.747\n",
            65536 * 5000,
            65536 * 5000 / 49e9,
        ),
        (
            " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
            " 1048576      1000             11000.00             10000.00     0.01\n",
            2**20 * 1000,
            0.1,
        ),
        (
            "                    RDMA_Read Latency Test\n"
            " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
            "99% percentile[usec]   99.9% percentile[usec]\n"
            " 2       1000          2.90           9.00         3.00               3.10           0.20            3.30   8.00\n",
            2,
            3e-6,
        ),
        (
            "# Benchmarking PingPong\n# #processes = 2\n       #bytes #repetitions      t[usec]   Mbytes/sec\n"
            "         1024         1000         5.00       204.80\n",
            1024,
            5e-6,
        ),
    ],
)
def test_tests_between_two_are_read(text: str, n_bytes: float, seconds: float, tmp_path: Path) -> None:
    log = write(tmp_path / "test.txt", text)
    run = CollectiveRun("p2p" if "Test" not in text and "PingPong" not in text else None, 2, 2)
    frame = read_measurements([log], COLLECTIVES, collective=run).frame
    assert set(frame["op"]) == {"p2p"}
    assert frame["message_bytes"].tolist() == [n_bytes]
    assert frame["duration_s"].tolist() == pytest.approx([seconds])


def test_intel_benchmarks_and_tables_of_all_reduce_bench_say_how_many_ranks(tmp_path: Path) -> None:
    intel = (
        "# Benchmarking Allreduce \n# #processes = 16 \n#----\n"
        "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n            8   1000   1.50   2.50   2.00\n"
    )
    frame = read(tmp_path, intel, "imb.txt").frame
    assert records(frame, ["op", "n_gpus", "message_bytes"]) == [{"op": "all_reduce", "n_gpus": 16, "message_bytes": 8}]
    bench = (
        "The average bandwidth of all_reduce over 16 ranks (5 warmups / 20 trials):\n\n"
        "| payload |    busbw   |    algbw   |\n| ------: | ---------: | ---------: |\n|    32KB |   2.04GBps |   1.00GBps |\n"
    )
    frame = read(tmp_path, bench, "bench.txt").frame
    assert frame["duration_s"].tolist() == pytest.approx([32.768e-6])
    assert records(frame, ["n_gpus", "n_nodes"]) == [{"n_gpus": 16, "n_nodes": 2}]


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
    found = read_measurements([log], COLLECTIVES, collective=CollectiveRun("reduce_scatter"))
    assert set(found.frame["op"]) == {"reduce_scatter"}
    says = write(tmp_path / "says.log", "# Collective test starting: all_gather_perf\n" + plain)
    assert set(read_measurements([says], COLLECTIVES, collective=CollectiveRun("all_gather")).frame["op"]) == {
        "all_gather"
    }
    with pytest.raises(DataError, match=r"says\.log: a log of all_gather, not of reduce_scatter"):
        read_measurements([says], COLLECTIVES, collective=CollectiveRun("reduce_scatter"))
    with pytest.raises(FitError, match="did you mean reduce_scatter"):
        measured([log], "collectives", collective="reduce_scater")
    with pytest.raises(FitError, match="a model of fleet has none"):
        measured([log], "fleet", collective="reduce_scatter")


@pytest.mark.parametrize(
    ("name", "before", "day"),
    [
        ("all_reduce_perf-2025-03-07.log", "", "2025-03-07"),
        ("20250307_nodes.log", "", "2025-03-07"),
        ("nodes.log", "[2025-03-08 11:00:01] ", "2025-03-08"),
        ("all_reduce_perf.log", "", ""),
    ],
)
def test_nodes_and_the_day_of_a_test_are_known_where_the_log_tells(
    tmp_path: Path, name: str, before: str, day: str
) -> None:
    text = "# Collective test starting: all_reduce_perf\n" + STARTS + ranks(4, 2) + NEW + row(1 << 30, 5000.0, 5100.0)
    log = write(tmp_path / name, "".join(before + line for line in text.splitlines(keepends=True)))
    frame = read_network_tests(log).frame
    assert frame["node"].tolist() == ["host-0,host-1"] * 2
    assert frame["day"].tolist() == [day] * 2

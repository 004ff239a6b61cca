"""Logs of tests of a network: collectives and messages between two, size by size.

| tool | header | a row gives |
|---|---|---|
| nccl-tests, rccl-tests (all_reduce_perf, ...) | size count type redop root time algbw busbw #wrong, twice | two times |
| OSU micro-benchmarks (osu_allreduce, osu_latency, osu_bw, ...) | # Size  Avg Latency(us); # Size  Bandwidth (MB/s) | a time |
| perftest (ib_write_bw, ib_read_lat, ...) | #bytes #iterations BW average[Gb/sec]; t_typical[usec] | a time |
| Intel MPI Benchmarks (Allreduce, PingPong, ...) | #bytes #repetitions t_avg[usec] | a time |
| all_reduce_bench.py (ml-engineering) | payload, busbw, algbw | a time |

Out of place and in place are two rows. Which nodes took part is in a column `node` where the log lists ranks, and the
`day` where times stand before lines or a date in the file's name. A test of bandwidth sends many messages at once, so a row of
it is one long message: all bytes over the bandwidth (perftest: of all iterations; OSU: of a window of 64). Its sizes below 64
KB tell how many messages pass per second, not how many bytes, and are left out.

What a launcher puts before a line ("[1,0]<stdout>:", "0: ", a time) is taken off; lines between the rows (NCCL_DEBUG) do not
matter. A row of nccl-tests is told by its type, so a log without its header is read, too; what it then does not say is said by
options. Sizes are those of nccl-tests: OSU and Intel count what one rank sends to one rank (all-gather, all-to-all).

Several logs of one test, of pairs of nodes as a rule: a fit of them all is one of the fabric, and a bad pair is noise in it. So
each log is compared with the others at the sizes that they share, large messages only (from a 64th of the largest on), where
bandwidth decides: the median over sizes of its time over the median of the logs (`notes_on_logs`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from prism_jax.core.errors import DataError
from prism_jax.core.robust import robust_sd
from prism_jax.fits.models import CollectiveRun
from prism_jax.tables.streams import lines

from .raw_table import RawTable, hash_as_one

MAX_TESTS = 10_000_000  # rows
GPUS_PER_NODE = 8  # where nothing says it
WINDOW = 64  # messages in flight in osu_bw, by default
LEAST_STREAMED = 65536  # bytes of a message from which on a test of bandwidth measures bytes
_OPS = "all_reduce|all_gather|reduce_scatter|alltoall|sendrecv|broadcast|reduce|gather|scatter|hypercube"
_OP = re.compile(rf"\b({_OPS})_perf\w{{0,8}}\b")
_IN_NAME = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast", re.IGNORECASE)
_PREFIX = re.compile(
    r"^\s{0,20}(?:\[\d{1,6},\d{1,6}\](?:<std\w{2,4}>)?:\s?|\d{1,6}:\s"
    r"|\[?\d{4}-\d\d-\d\d[T ][\d:.,]{5,20}(?:Z|[+-]\d\d:?\d\d)?\]?\s)"
)
_RANK = re.compile(
    r"(?:^|#)\s{0,20}Rank\s{1,20}(\d{1,9})\s.{0,80}?\bon\s{1,40}(\S{1,255})\s{1,20}device\s{1,20}\d{1,4}\s{0,9}\[[^\]]{0,40}\]\s{0,9}(.{0,120})"
)
_DATE = re.compile(r"(20\d\d)[-_]?([01]\d)[-_]?([0-3]\d)(?!\d)")
_STARTS = re.compile(r"(?:^|#)\s{0,20}nThreads?\s{1,9}(\d{1,6})\s{1,9}nGpus\s{1,9}(\d{1,6})|#\s{0,9}nThreads?\b")
_LIBRARY = re.compile(r"\b([NR]CCL) version\s?:?\s{0,9}([0-9][0-9.]{0,20})")
_LIBRARY_CODE = re.compile(r"nccl-library=(\d{4,6})\b")
_TYPES = r"(?:float|half|bfloat16|double|u?int\d{0,2}|u?char|fp8|f8|fp8_?e\dm\d|f8e\dm\d|fp16|bf16|fp32)\w{0,8}"
_ROW = re.compile(rf"(?:^|[\s>\]:|])(\d{{1,18}}\s{{1,40}}\d{{1,18}}\s{{1,40}}{_TYPES}\s.{{0,400}})")
_SIDE = ("time", "algbw", "busbw", "wrong")  # of a row of nccl-tests, out of place and in place

_OSU = re.compile(r"OSU\s(?:\S{1,20}\s)?(.{1,40}?)\s{0,3}(?:Latency\s)?Test\b", re.IGNORECASE)
_HINT = re.compile(rb"OSU |BW Test|Latency Test|bandwidth of|Benchmarking|#bytes|\d\s{1,40}[a-z]{4,8}\d{0,2}\s")
_BYTES = re.compile(r"^\s{0,9}#\s?bytes\s{1,20}#(?:iterations|repetitions)\b")
_IMB = re.compile(r"^#\s{0,3}Benchmarking\s{1,3}(\w{1,30})")
_PROCESSES = re.compile(r"^#\s{0,3}#processes\s{0,3}=\s{0,3}(\d{1,8})")
_PERFTEST = re.compile(r"\b(?:RDMA_\w{1,10}|Send|Atomic\S{0,10})\s(?:Bidirectional\s)?(?:BW|Latency)\sTest\b")
_BENCH = re.compile(r"average bandwidth of (\w{1,30}) over (\d{1,9}) ranks")
_BENCH_ROW = re.compile(r"^\|\s{0,20}([\d.]{1,20})\s?([KMGT]?)i?B\s{0,20}\|(.{1,200})\|")
_COLUMN = re.compile(
    r"#?\b(?:size|bytes)\b|#?(?:iterations|repetitions)|BW (?:peak|average)\s?\[[^\]]{1,12}\]|MsgRate\s?\[[^\]]{1,12}\]"
    r"|t_\w{1,12}\[usec\]|t\[usec\]|[\d.]{1,6}%\spercentile\[usec\]|Mbytes/sec|Msg/sec"
    r"|(?:Avg|Min|Max|P\d{1,3} Tail)?\s?Lat(?:ency)?\s?\(us\)|Bandwidth\s?\([MG]B/s\)|Messages?/s",
    re.IGNORECASE,
)
_TIMES = ("avglatency(us)", "avglat(us)", "latency(us)", "t_typical[usec]", "t_avg[usec]", "t[usec]")
_RATES = {  # column of a bandwidth -> bytes per second of its unit; perftest counts MiB and calls them MB
    "bwaverage[gb/sec]": 1e9 / 8,
    "bwaverage[mb/sec]": 2.0**20,
    "bwaverage[mib/sec]": 2.0**20,
    "bandwidth(mb/s)": 1e6,
    "bandwidth(gb/s)": 1e9,
    "mbytes/sec": 1e6,
}
_SPELLED = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "alltoall",
    "sendrecv": "send_recv",
    "bcast": "broadcast",
    **dict.fromkeys(("latency", "bandwidth", "bidirectionalbandwidth", "pingpong", "multilatency"), "p2p"),
}
_BY_PAIRS = ("all_gather", "alltoall")  # of which OSU and Intel count what goes to one rank
_FEW_GPUS = "Say it: --gpus 16 --nodes 2"


@dataclass
class Test:
    """Facts about the test whose rows come next."""

    op: str = ""
    collective_library: str = ""  # NCCL or RCCL with its version
    tool: str = ""
    hosts: dict[int, str] = field(default_factory=dict)
    devices: dict[int, str] = field(default_factory=dict)
    both_ways: bool = False  # a bandwidth is that of both directions together
    columns: list[str] = field(default_factory=list)
    n_ranks: int = 0  # as its words say, without a list of devices
    day: str = ""  # as the last time before a line says, or the name of the file


def is_network_line(line: bytes) -> bool:
    """Whether only these logs have such a line."""
    if b"algbw" in line and b"busbw" in line and b"size" in line and b"time" in line and b"," not in line:
        return True
    if not _HINT.search(line):
        return False
    text = line[:400].decode("utf-8", "replace")
    known = (_OSU, _PERFTEST, _BENCH, _BYTES)
    return any(each.search(text) for each in known) or bool(_IMB.match(text)) or _nccl_row(_PREFIX.sub("", text)) != []


def read_network_tests(path: Path, stated: CollectiveRun = CollectiveRun()) -> RawTable:
    """Rows of all tests in a log.

    Args:
        stated: which collective was run and on how many GPUs and nodes, where the log itself does not say it; its file name may
            say the first.

    Raises:
        DataError: cannot be read, no row of results, the log does not say what was run or among how many, or says another.
    """
    rows = []
    for row in _rows(path, stated):
        rows.append(row)
        if len(rows) > MAX_TESTS:
            raise DataError(f"{path}: more than {MAX_TESTS:,} rows. Split it.")
    if not rows:
        raise DataError(
            f"{path}: a log of a network test without a row of results, or of 64 KB and more of a test of bandwidth. Did it fail?"
        )
    frame = pd.DataFrame(rows)
    if not all(frame["op"]):
        raise DataError(
            f"{path}: the log does not say which collective was run. Say it, for example by --collective all_reduce"
        )
    known = frame["n_gpus"].to_numpy() > 0
    if not known.any():
        raise DataError(f"{path}: the log does not say among how many GPUs it ran. {_FEW_GPUS}")
    notes = [] if known.all() else [f"{path.name}: tests without a list of devices; their n_gpus is blank"]
    if (guessed := frame.pop("guessed").to_numpy(dtype=bool) & known).any():
        notes.append(f"{path.name}: nodes are not named; taken as {GPUS_PER_NODE} GPUs to a node (--nodes N says it)")
    for name in ("n_gpus", "n_nodes", "gpus_per_node"):
        frame[name] = np.where(known, frame[name].to_numpy(dtype=float), np.nan)
    del guessed
    return RawTable(str(path), frame, tuple(frame.columns), hash_as_one(frame), notes=tuple(notes))


def _rows(path: Path, stated: CollectiveRun) -> Iterator[dict[str, Any]]:
    in_name = _IN_NAME.search(path.name)
    test = Test(op=spelled(stated.collective or (in_name[0] if in_name else "")), day=_day(path.name))
    for _, raw in lines(path, cut=True):
        whole = raw.decode("utf-8", "replace")
        line = _PREFIX.sub("", whole)
        test.day = _day(whole[: len(whole) - len(line)]) or test.day
        if found := _row(test, line):
            yield from _placed(path, test, stated, found)
            continue
        _learn(test, line)
        if stated.collective and test.op != spelled(stated.collective):
            raise DataError(
                f"{path}: a log of {test.op}, not of {stated.collective}. Leave --collective {stated.collective} out."
            )


def _day(text: str) -> str:
    """The date in a text, 2025-03-01 or 20250301; empty for none."""
    found = _DATE.search(text)
    return "-".join(found.groups()) if found else ""


def _learn(test: Test, line: str) -> None:
    if op := _OP.search(line):
        test.op = spelled(op[1])
    if library := _LIBRARY.search(line):
        test.collective_library = f"{library[1]} {library[2].rstrip('.')}"
    if code := _LIBRARY_CODE.search(line):
        test.collective_library = f"NCCL {int(code[1]) // 10000}.{int(code[1]) // 100 % 100}.{int(code[1]) % 100}"
    if starts := _STARTS.search(line):
        test.hosts, test.devices, test.columns, test.tool = {}, {}, [], "nccl"
        test.n_ranks = int(starts[1]) * int(starts[2]) if starts[1] else 0  # of one process, where it ran alone
    if rank := _RANK.search(line):
        test.hosts[int(rank[1])], test.devices[int(rank[1])] = rank[2], rank[3].strip()
    if "algbw" in line and "busbw" in line and "size" in line:
        test.columns, test.tool = line.replace("#wrong", "wrong").replace("#", " ").split(), "nccl"
        return
    _learn_other(test, line)


def _learn_other(test: Test, line: str) -> None:
    """Titles and headers of all tools but nccl-tests."""
    if title := _OSU.search(line):
        test.op, test.tool, test.columns = spelled(re.sub(r"^MPI\S{0,12}\s", "", title[1])), "osu", []
        test.both_ways = "irectional" in title[1]
    elif title := _IMB.search(line):
        test.op, test.tool, test.columns = spelled(title[1]), "imb", []
    elif processes := _PROCESSES.search(line):
        test.n_ranks = int(processes[1])
    elif _PERFTEST.search(line):
        test.op, test.tool, test.n_ranks, test.columns = "p2p", "perftest", 2, []
        test.both_ways = "Bidirectional" in line
    elif bench := _BENCH.search(line):
        test.op, test.n_ranks, test.tool = spelled(bench[1]), int(bench[2]), "bench"
    elif test.tool == "bench" and "busbw" in line and "algbw" in line:
        test.columns = [cell.strip().lower() for cell in line.strip().strip("|").split("|")]
    elif test.tool in ("osu", "imb", "perftest", ""):
        names = [re.sub(r"\s|^#", "", name[0].strip()).lower() for name in _COLUMN.finditer(line)]
        if len(names) > 1 and names[0] in ("size", "bytes"):
            test.columns = names
            test.tool = test.tool or {"bytes": "perftest" if "iterations" in line else "imb"}.get(names[0], "osu")


def _row(test: Test, line: str) -> list[tuple[float | str, float | str, str]]:
    """(bytes, microseconds, out | in | "") of a row of results; none where the line is something else."""
    if test.tool == "bench":
        return _bench_row(test, line)
    if test.tool in ("osu", "imb", "perftest"):
        return _plain_row(test, line)
    return _nccl_row(line, test.columns)


def _nccl_row(line: str, columns: Sequence[str] = ()) -> list[tuple[float | str, float | str, str]]:
    """Reads a row of out-of-place and in-place times; where the line is cut off, the time is blank.

    Notes:
        Columns are counted from the right, since old versions leave redop and root blank; of a line that is cut off, from the
        left.
    """
    match = _ROW.search(line)
    if match is None:
        return []
    fields = match[1].split()
    whole = 2 * len(_SIDE)
    if len(fields) >= 3 + whole and _is_number(fields[-whole]):
        first = len(fields) - whole
    elif "time" in columns:
        first = list(columns).index("time")
    elif len(fields) >= 3 + len(_SIDE) and _is_number(fields[-len(_SIDE)]):
        first = len(fields) - len(_SIDE)
    else:
        return []
    sides = [fields[at] if at < len(fields) else "" for at in (first, first + len(_SIDE))]
    n_side = max(2 if len(fields) > first + len(_SIDE) else 1, list(columns).count("time"))
    return [(fields[0], text, place) for text, place in zip(sides[:n_side], ("out", "in"), strict=False)]


def _plain_row(test: Test, line: str) -> list[tuple[float | str, float | str, str]]:
    """A size and what was measured, in the columns of the header."""
    fields = line.split()
    if not test.columns or len(fields) < 2 or not all(map(_is_number, fields)):
        return []
    values = dict(zip(test.columns, fields, strict=False))
    size = float(fields[0])
    for name in _TIMES:
        if (text := values.get(name)) is not None:
            return [(size, float(text), "")]
    for name, unit in _RATES.items():
        if (text := values.get(name)) is not None and float(text) > 0 and size >= LEAST_STREAMED:
            total = size * (float(values.get("iterations", 1)) if test.tool == "perftest" else WINDOW)
            return [(total, total * (1 + test.both_ways) / (float(text) * unit) * 1e6, "")]
    return []


def _bench_row(test: Test, line: str) -> list[tuple[float | str, float | str, str]]:
    match = _BENCH_ROW.match(line.strip())
    if match is None:
        return []
    size = float(match[1]) * 1024.0 ** " KMGT".index(match[2] or " ")
    cells = dict(zip(test.columns[1:], match[3].split("|"), strict=False))
    rate = re.search(r"[\d.]{1,20}", cells.get("algbw", ""))
    return [(size, size / (float(rate[0]) * 1e9) * 1e6, "")] if rate and float(rate[0]) > 0 else []


def _placed(
    path: Path, test: Test, stated: CollectiveRun, found: Sequence[tuple[float | str, float | str, str]]
) -> Iterator[dict[str, Any]]:
    """The rows with what is known of their run."""
    hosts = set(test.hosts.values())
    alone = test.n_ranks if test.n_ranks > 1 else 0
    own = len(test.hosts) or (alone if test.tool != "nccl" else 0)
    n_gpus = own or stated.n_gpus or alone or (2 if test.op == "p2p" and test.tool != "nccl" else 0)
    for word, known, said in (("gpus", own, stated.n_gpus), ("nodes", len(hosts), stated.n_nodes)):
        if known and said and known != said:
            raise DataError(f"{path}: a test among {known} {word}, not {said}. Leave --{word} out.")
    n_nodes = len(hosts) or stated.n_nodes or (2 if test.tool == "perftest" else 0)
    is_guess = not n_nodes
    n_nodes = n_nodes or (1 if not own and alone and not stated.n_gpus else ceil(n_gpus / GPUS_PER_NODE))
    factor = n_gpus if test.tool in ("osu", "imb") and test.op in _BY_PAIRS else 1
    for size, time_us, in_place in found:
        yield {
            "op": test.op,
            "message_bytes": size if factor == 1 else float(size) * factor,
            "time_us": time_us,
            "in_place": in_place,
            "dtype": "",
            "n_gpus": n_gpus,
            "n_nodes": n_nodes,
            "gpus_per_node": n_gpus / n_nodes if n_nodes else 0,
            "gpu": next(iter(test.devices.values()), ""),
            "library": test.collective_library,
            "node": ",".join(sorted(hosts)),
            "day": test.day,
            "guessed": is_guess,
        }


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == "N/A"
    return True


def spelled(op: str) -> str:
    """The operation as tables of measurements spell it."""
    plain = re.sub(r"[^a-z0-9]", "", op.lower())
    return _SPELLED.get(plain, op.lower())


# pyright: reportArgumentType=false, reportGeneralTypeIssues=false
# (of pandas without stubs, every expression may be of any type)

NEEDED = frozenset(("op", "message_bytes", "time_us", "n_gpus", "n_nodes"))
FEWEST = 3  # logs, of which two say what is usual
LARGE = 64.0
APART, ROBUST_SD = 0.05, 5.0  # of the time; robust standard deviations of the logs
MOST_NAMED = 16
BUS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0, "all_to_all": 1.0}


def notes_on_logs(tables: Sequence[RawTable]) -> list[str]:
    """The bus bandwidth of every log of a test that several logs hold, and the logs that lie apart."""
    parts = [
        pd.DataFrame({name: table.frame[name] for name in NEEDED}).assign(log=table.name)
        for table in tables
        if set(table.frame.columns) >= NEEDED
    ]
    if len(parts) < FEWEST:
        return []
    rows = pd.concat(parts, ignore_index=True)
    for name in ("message_bytes", "time_us", "n_gpus", "n_nodes"):
        rows[name] = pd.to_numeric(rows[name], errors="coerce")
    rows = rows[(rows["time_us"] > 0.0) & (rows["message_bytes"] > 0.0)]
    found: list[str] = []
    for (op, n_gpus, n_nodes), test in rows.groupby(["op", "n_gpus", "n_nodes"]):
        found += _of_test(str(op), float(n_gpus), float(n_nodes), test)
    return found


def _of_test(op: str, n_gpus: float, n_nodes: float, test: pd.DataFrame) -> list[str]:
    time = test.pivot_table(index="message_bytes", columns="log", values="time_us", aggfunc="median")
    time = time.loc[time.index >= float(time.index.max()) / LARGE].dropna(axis="columns", how="all").dropna()
    if time.shape[1] < FEWEST or time.empty:
        return []
    excess = np.log(time.div(time.median(axis="columns"), axis="index")).median()
    largest = float(time.index.max())
    bus = BUS.get(op, 1.0) * ((n_gpus - 1.0) / n_gpus if op in BUS else 1.0)
    gb_per_s = bus * largest / time.loc[largest] / 1e3
    sd = robust_sd(excess.to_numpy())
    apart = excess[np.abs(excess) > max(np.log1p(APART), ROBUST_SD * sd)].sort_values(ascending=False)
    each = ", ".join(f"{log} {value:.3g}" for log, value in list(gb_per_s.items())[:MOST_NAMED])
    more = ", ..." if len(gb_per_s) > MOST_NAMED else ""
    what = f"{op} of {n_gpus:g} GPUs on {n_nodes:g} nodes"
    told = [f"{what}, bus GB/s of each log at {largest:,.0f} bytes: {each}{more}"]
    told += [
        f"{log} lies apart from the other {len(excess) - 1} logs of {what}: {np.exp(-value):.0%} of their bandwidth. "
        "One fit of all logs takes it for noise: leave it out, or look at its nodes"
        for log, value in list(apart.items())[:MOST_NAMED]
    ]
    return told

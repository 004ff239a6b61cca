"""Kinds of broken traces: how to make each, and what the one message about it must say. Nothing in them is from a real job."""

from __future__ import annotations

import gzip
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.training_logs import VERSION

HEADER = "step,dp,pp,op_type,start_s,duration_s"
STRAGGLER_ROWS = 6


class Broken(NamedTuple):
    """One kind.

    Attributes:
        name: what is wrong, readable in a list of tests.
        make: writes it into a folder and returns what to open.
        match: regular expression that the message must match.
    """

    name: str
    make: Callable[[Path], Path]
    match: str


BROKEN: list[Broken] = []


def broken(name: str, match: str) -> Callable[[Callable[[Path], Path]], Callable[[Path], Path]]:
    """Adds a kind to `BROKEN`."""

    def add(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
        BROKEN.append(Broken(name, make, match))
        return make

    return add


def bytes_file(name: str, file: str, content: bytes, match: str) -> None:
    """A kind whose file is `content`."""
    broken(name, match)(lambda folder: _write(folder / file, content))


def csv_file(name: str, text: str, match: str) -> None:
    """A kind that is a plain table in CSV."""
    bytes_file(name, "ops.csv", text.encode(), match)


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def straggler(path: Path, **changes: Any) -> Path:
    """A tiny straggler-analysis parquet of two workers and three steps; a change replaces, removes (None) or adds a column."""
    n = STRAGGLER_ROWS
    columns: dict[str, Any] = {
        "dp_rank": pa.array([0, 1] * 3, pa.int8()),
        "stage": pa.array([0] * n, pa.int8()),
        "rank": pa.array([0, 1] * 3, pa.int16()),
        "step": pa.array([4, 4, 5, 5, 6, 6], pa.int64()),
        "optype": pa.array(["forward-compute"] * n).dictionary_encode(),
        "start_ts": pa.array([0.0] * n, pa.float32()),
        "duration": pa.array([0.5] * n, pa.float32()),
        "seq_id": pa.array([0] * n, pa.int32()),
        "mc": pa.array([0] * n, pa.int8()),
        "mb_id": pa.array([0] * n, pa.int8()),
        "gmc": pa.array([0] * n, pa.int16()),
    }
    columns.update(changes)
    pq.write_table(pa.table({name: values for name, values in columns.items() if values is not None}), path)
    return path


def parquet_file(name: str, match: str, **changes: Any) -> None:
    """A kind that is a straggler-analysis parquet with something changed."""
    broken(name, match)(lambda folder: straggler(folder / "trace-X.parquet", **changes))


def with_meta(name: str, text: str, match: str) -> None:
    """A kind whose trace is good and whose metadata is not."""

    def make(folder: Path) -> Path:
        (folder / "meta-X.yaml").write_text(text, encoding="utf-8")
        return straggler(folder / "trace-X.parquet")

    broken(name, match)(make)


# --- Parquet ---------------------------------------------------------------------------------------------------------


@broken("truncated parquet", r"trace-X\.parquet: not a whole parquet file: .*copy it again")
def _(folder: Path) -> Path:
    path = straggler(folder / "trace-X.parquet")
    return _write(path, path.read_bytes()[:-200])


@broken("parquet whose middle is damaged", r"trace-X\.parquet")
def _(folder: Path) -> Path:
    path = straggler(folder / "trace-X.parquet")
    content = bytearray(path.read_bytes())
    content[8:60] = b"\xff" * 52
    return _write(path, bytes(content))


bytes_file(
    "parquet of which only the ends are left", "trace.parquet", b"PAR1PAR1", r"trace\.parquet: not a whole parquet"
)
bytes_file(
    "parquet whose footer claims 4 GB",
    "t.parquet",
    b"PAR1" + struct.pack("<I", 2**32 - 1) + b"PAR1",
    r"t\.parquet: not a whole",
)
bytes_file("text that is called parquet", "t.parquet", b"step,rank\n1,2\n", r"t\.parquet: not a parquet file")
parquet_file("parquet with a missing column", r"trace-X\.parquet: the column start_ts is missing", start_ts=None)
parquet_file("parquet with text for a number", r"parquet step: holds string, but it must hold whole", step=["a"] * 6)
parquet_file("parquet with fractions for ranks", r"parquet dp_rank: holds double, but", dp_rank=[0.0, 1.0] * 3)
parquet_file("parquet with lists for a number", r"parquet step: holds list<.*, but it must hold whole", step=[[1]] * 6)
parquet_file("parquet with numbers for names", r"parquet optype: holds int64, but it must hold text", optype=[1] * 6)
parquet_file("parquet with an empty value", r"parquet: row 3 stage: is empty", stage=pa.array([0, 0, None, 0, 0, 0]))
parquet_file("parquet with an empty name", r"parquet: row 2 optype: is empty", optype=["a", None, "a", "a", "a", "a"])
parquet_file(
    "parquet with a start that is NaN", r"parquet: row 5 start_ts: nan is not", start_ts=[0.0] * 4 + [np.nan, 0.0]
)
parquet_file("parquet with a negative duration", r"row 6 duration: -1\.0 is not between 0", duration=[1.0] * 5 + [-1.0])
parquet_file("parquet with an endless duration", r"row 1 duration: inf is not between", duration=[np.inf] * 6)
parquet_file("parquet with a negative rank", r"row 1 dp_rank: -3 is not between", dp_rank=[-3] * 6)
parquet_file(
    "parquet with a step beyond any integer",
    r"row 1 step: 18446744073709551615 is not",
    step=pa.array([2**64 - 1] * 6, pa.uint64()),
)
parquet_file(
    "parquet whose names hold escape codes", r"row 1 optype: .* cannot be printed", optype=["\x1b[2Jforward"] * 6
)
parquet_file(
    "parquet whose names are not UTF-8",
    r"parquet optype: holds text that is not UTF-8",
    optype=pa.array([b"\xff\xfe"] * 6).view(pa.string()),
)
parquet_file("parquet with a name of a megabyte", r"optype: .* (longer than 200|at most 200)", optype=["x" * 2**20] * 6)
parquet_file("parquet in which a worker is missing", r"nothing was recorded on dp rank 0, stage 1", stage=[0, 1] * 3)
parquet_file(
    "parquet in which a stage says that a million are missing",
    r"6 rows, but pp 900001",
    stage=pa.array([0, 900_000] * 3, pa.int32()),
)
parquet_file(
    "parquet without a complete step", r"no step is complete on every worker", optype=["a", "b", "c", "d", "e", "f"]
)


@broken("parquet without rows", r"trace-X\.parquet: no recorded ops")
def _(folder: Path) -> Path:
    path = straggler(folder / "trace-X.parquet")
    pq.write_table(pq.read_table(path)[:0], path)
    return path


@broken("parquet of something else", r"other\.parquet: not a trace: its columns")
def _(folder: Path) -> Path:
    pq.write_table(pa.table({"name": ["a"], "age": [1]}), folder / "other.parquet")
    return folder / "other.parquet"


@broken("parquet of 50 million rows and one, in a few kilobytes", r"50,000,001 rows, but at most")
def _(folder: Path) -> Path:
    pq.write_table(pa.table({"step": pa.nulls(50_000_001), "dp_rank": pa.nulls(50_000_001)}), folder / "big.parquet")
    return folder / "big.parquet"


@broken("parquet that unpacks to a thousand times its size", r"bomb\.parquet: [0-9,]+ bytes of values in 3 rows")
def _(folder: Path) -> Path:
    text = ["x" * 40_000_000] * 2 + ["y"]
    columns = {"optype": pa.array(text), "dp_rank": pa.array([0] * 3)}
    for name in ("stage", "rank", "step", "mc", "mb_id"):
        columns[name] = pa.array([0] * 3)
    for name in ("start_ts", "duration"):
        columns[name] = pa.array([0.0] * 3)
    pq.write_table(pa.table(columns), folder / "bomb.parquet", compression="zstd", use_dictionary=False)
    return folder / "bomb.parquet"


# --- CSV -------------------------------------------------------------------------------------------------------------

GOOD_ROW = "1,0,0,forward-compute,0,1\n"
csv_file("CSV with a repeated column", f"{HEADER},step\n", r"ops\.csv:1: the column 'step' is there twice")
csv_file(
    "CSV with an unknown column", "step,op_type,start_s,duration\n", r"ops\.csv:1 'duration': .*did you mean duration_s"
)
csv_file("CSV with a missing column", "step,op_type,start_s\n", r"ops\.csv:1: the column duration_s is missing")
csv_file("CSV without rows", HEADER + "\n", r"ops\.csv: no recorded ops")
csv_file("CSV with semicolons", HEADER.replace(",", ";") + "\n", r"ops\.csv:1: columns must be separated by commas")
csv_file(
    "CSV with a short row", f"{HEADER}\n{GOOD_ROW}1,0,0\n", r"ops\.csv:3: 3 fields, but the first line names 6 columns"
)
csv_file("CSV with a long row", f"{HEADER}\n{GOOD_ROW[:-1]},9\n", r"ops\.csv:2: 7 fields, but")
csv_file(
    "CSV with a word for a number", f"{HEADER}\n{GOOD_ROW}one,0,0,a,0,1\n", r"ops\.csv:3 step: 'one' is not a whole"
)
csv_file("CSV with a fraction for a rank", f"{HEADER}\n1,0.5,0,a,0,1\n", r"ops\.csv:2 dp: '0\.5' is not a whole number")
csv_file("CSV with an empty time", f"{HEADER}\n1,0,0,a,,1\n", r"ops\.csv:2 start_s: '' is not a number")
csv_file("CSV with a start that is NaN", f"{HEADER}\n1,0,0,a,nan,1\n", r"ops\.csv:2 start_s: nan is not between")
csv_file("CSV with an absurd start", f"{HEADER}\n1,0,0,a,1e30,1\n", r"ops\.csv:2 start_s: 1e\+30 is not between")
csv_file("CSV with a negative duration", f"{HEADER}\n1,0,0,a,0,-1\n", r"ops\.csv:2 duration_s: -1\.0 is not between 0")
csv_file(
    "CSV with a huge integer", f"{HEADER}\n{'9' * 5000},0,0,a,0,1\n", r"ops\.csv:2 step: '999.{1,60}99' is not a whole"
)
csv_file("CSV with a step beyond 64 bits", f"{HEADER}\n{2**70},0,0,a,0,1\n", r"ops\.csv:2 step: '\d+' is too large")
csv_file("CSV with a step beyond 53 bits", f"{HEADER}\n{2**60},0,0,a,0,1\n", r"ops\.csv:2 step: \d+ is not between")
csv_file("CSV with a rank beyond any job", f"{HEADER}\n1,9999999,0,a,0,1\n", r"ops\.csv:2 dp: 9999999 is not between")
csv_file("CSV with an op without a name", f"{HEADER}\n1,0,0,,0,1\n", r"ops\.csv:2 op_type: is empty")
csv_file("CSV with a quote that never ends", f'{HEADER}\n1,0,0,"a,0,1\n', r"ops\.csv:\d+: not CSV")
csv_file(
    "CSV with a NUL in a field", f"{HEADER}\n" + GOOD_ROW * 200 + "1,0,0,a,0,\0\n", r"ops\.csv:202 duration_s: '\\x00'"
)
csv_file("CSV that is empty", "", r"ops\.csv: the file is empty")
csv_file("CSV of blank lines", "\n\n  \n", r"ops\.csv: the file is empty")
bytes_file(
    "CSV that is not UTF-8", "ops.csv", f"{HEADER}\n1,0,0,caf".encode() + b"\xe9,0,1\n", r"ops\.csv:2: not UTF-8"
)
bytes_file("CSV in UTF-16", "ops.csv", HEADER.encode("utf-16"), r"ops\.csv: UTF-16 text")
broken("CSV with a line of 50 MB", r"ops\.csv:2: a line of more than 1,048,576 bytes")(
    lambda folder: _write(folder / "ops.csv", HEADER.encode() + b"\n" + b"1" * 50_000_000)
)

# --- Packed, binary, and what is no file -----------------------------------------------------------------------------

bytes_file("empty file", "trace.json", b"", r"trace\.json: the file is empty")
bytes_file("binary garbage", "trace.dat", bytes(range(256)) * 40, r"trace\.dat: a binary file of no known format")
bytes_file("NUL bytes", "trace.log", b"\0" * 5000, r"trace\.log: a binary file")
bytes_file("unicode garbage", "trace.log", "☃ñ漢字🦆\n".encode() * 300, r"trace\.log: no line with a step time")
bytes_file("random high bytes", "trace.log", bytes(range(128, 256)) * 40, r"trace\.log: a binary file")
bytes_file("zip", "trace.zip", b"PK\x03\x04" + b"x" * 50, r"trace\.zip: packed with zip")
bytes_file("zstd", "trace.json.zst", b"\x28\xb5\x2f\xfd" + b"x" * 50, r"packed with zstd")
bytes_file(
    "gzip that is cut", "ops.csv.gz", gzip.compress((HEADER + "\n" + GOOD_ROW * 9999).encode())[:-90], r"ends too early"
)
bytes_file(
    "gzip that is damaged", "ops.csv.gz", b"\x1f\x8b\x08\x00" + b"\xff" * 60, r"ops\.csv\.gz: a damaged gzip file"
)
bytes_file("parquet inside gzip", "t.parquet.gz", gzip.compress(b"PAR1PAR1"), r"parquet inside a packed file")
bytes_file(
    "Chakra execution trace", "chakra.0.et", b"\x0a\x05\x0a\x03abc" * 9, r"chakra\.0\.et: a Chakra execution trace"
)
bytes_file(
    "PyTorch execution trace", "et.json", b'{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}', r"execution trace"
)
bytes_file("Nsight database", "report.sqlite", b"SQLite format 3\0" + b"\1" * 99, r"SQLite .*Kineto")
broken("gzip bomb", r"bomb\.log\.gz: unpacks to more than 400 times")(
    lambda folder: _write(folder / "bomb.log.gz", gzip.compress(b"a" * 100_000_000))
)
broken("gzip bomb of one CSV line", r"bomb\.csv\.gz:2: a line of more than")(
    lambda folder: _write(folder / "bomb.csv.gz", gzip.compress(HEADER.encode() + b"\n" + b"1" * 100_000_000))
)
broken("nothing there", r"absent\.json: cannot be read: No such file")(lambda folder: folder / "absent.json")
broken("pattern that matches nothing", r"rank\*\.json: no file matches")(lambda folder: folder / "rank*.json")
broken("name that is too long", r"aaaa.*(cannot be read|not a usable).*too long")(lambda folder: folder / ("a" * 5000))
broken("name with a NUL", r"not a usable file name")(lambda folder: folder / "a\0b")


@broken("empty folder", r"empty: a folder without Kineto traces .* It is empty")
def _(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


@broken("folder of other formats", r"run: a folder without Kineto traces .* ops\.csv: name one")
def _(folder: Path) -> Path:
    (folder / "run").mkdir()
    _write(folder / "run" / "ops.csv", HEADER.encode())
    return folder / "run"


@broken("pattern that matches two tables", r"a\.csv: not a Kineto trace, and only those may be several")
def _(folder: Path) -> Path:
    for name in ("a.csv", "b.csv"):
        _write(folder / name, f"{HEADER}\n{GOOD_ROW}".encode())
    return folder / "*.csv"


@broken("pipe", r"pipe: not a regular file")
def _(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


broken("device without end", r"zero: not a regular file")(lambda folder: Path("/dev/zero"))

# --- Metadata --------------------------------------------------------------------------------------------------------

with_meta("meta with a wrong world size", "dp: 2\nworld_size: 9\n", r"meta-X\.yaml:2:1 world_size: 9, but dp 2 .* = 2")
with_meta("meta with a degree of 0", "trial_name: X\ndp_size: 0\n", r"meta-X\.yaml:2:1 dp_size: 0, but .* from 1")
with_meta("meta with a fraction", "dp: 2.5\n", r"meta-X\.yaml:1:1 dp: 2\.5, but it must be a whole number")
with_meta("meta with true for a degree", "dp: true\n", r"meta-X\.yaml:1:1 dp: True, but it must be a whole number")
with_meta(
    "meta with a huge degree", f"dp: {10**30}\n", r"meta-X\.yaml:1:5 dp: '10+' is a whole number of more than 64 bits"
)
with_meta(
    "meta with an unknown field", "dp_sise: 2\n", r"meta-X\.yaml:1:1 dp_sise: unknown field, did you mean dp_size"
)
with_meta("meta with a field twice", "dp: 2\ndp_size: 2\n", r"meta-X\.yaml:2:1 dp_size: means the same as dp")
with_meta("meta that is not YAML", "dp: [2\n", r"meta-X\.yaml:2:1: not valid YAML")
with_meta("meta that is a list", "- 2\n", r"meta-X\.yaml: metadata is a list of fields")
with_meta("meta that is empty", "", r"meta-X\.yaml: metadata is a list of fields")
with_meta("meta of a megabyte", "# x\n" * 2**18, r"meta-X\.yaml: larger than 64 KiB")
with_meta("meta with fewer replicas than the trace", "dp: 1\n", r"row 2 dp: 1, but the job has dp 1")
with_meta("meta with more stages than the trace", "dp: 2\npp: 2\n", r"nothing was recorded on dp rank 0, stage 1")
with_meta("meta with a million workers", "dp: 1000000\npp: 1000000\n", r"6 rows, but pp 1000000")


@broken("two metas that could be meant", r"ops\.csv: which metadata is meant, meta-A\.yaml, meta-B\.yaml\? .*--meta")
def _(folder: Path) -> Path:
    for name in ("meta-A.yaml", "meta-B.yaml"):
        (folder / name).write_text("dp: 1\n", encoding="utf-8")
    return _write(folder / "ops.csv", f"{HEADER}\n{GOOD_ROW}".encode())


# --- Logs ------------------------------------------------------------------------------------------------------------


def mllog_line(key: str, time_ms: object, value: object = None, **metadata: object) -> str:
    """A line of an MLPerf log."""
    entry = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return ":::MLLOG " + json.dumps({**entry, "metadata": metadata}) + "\n"


def log_file(name: str, text: str, match: str) -> None:
    """A kind that is a text log."""
    bytes_file(name, "train.log", text.encode(), match)


MEGATRON = " iteration       10/  100 | elapsed time per iteration (ms): {} | lm loss: 2.1E+00 |\n"
log_file("log without iterations", "Loading the model\nloss: 1\n", r"train\.log: no line with a step time.*Megatron-LM")
log_file(
    "log with a negative time", MEGATRON.format(12.0) + MEGATRON.format(-5.0), r"train\.log:2 elapsed time .*-0\.005 s"
)
log_file("log with a time of zero", MEGATRON.format(0.0), r"train\.log:1 elapsed time per iteration: 0 s")
log_file("log with a time that is no number", MEGATRON.format("nan"), r"train\.log:1 elapsed time per iteration: nan s")
log_file("log with a time of dashes", MEGATRON.format("--"), r"train\.log:1 elapsed time .* is not a time")
log_file(
    "MLPerf log that is cut",
    mllog_line("run_start", 1) + ':::MLLOG {"key": "ru',
    r"train\.log:2: not JSON after :::MLLOG",
)
log_file("MLPerf entry without JSON", ":::MLLOG none\n", r"train\.log:1: no \{ after :::MLLOG")
log_file("MLPerf entry without key", ':::MLLOG {"time_ms": 1}\n', r"train\.log:1 key: None is not text")
log_file("MLPerf entry without time", ':::MLLOG {"key": "run_start"}\n', r"train\.log:1 time_ms: None is not a time")
log_file(
    "MLPerf entry with a time of 1e30", mllog_line("run_start", 1e30), r"train\.log:1 time_ms: 1e\+30 is not a time"
)
log_file(
    "MLPerf entry with a huge integer",
    ':::MLLOG {"key": "a", "time_ms": ' + "9" * 5000 + "}\n",
    r"train\.log:1: not JSON",
)
log_file("MLPerf entry nested deeply", ':::MLLOG {"key": ' + "[" * 100_000 + "\n", r"train\.log:1: not JSON after")
log_file(
    "MLPerf log without steps", mllog_line("run_start", 1) + mllog_line("run_stop", 9), r"train\.log: no step times"
)
log_file(
    "MLPerf log with a negative count",
    mllog_line("train_loss", 1, 2.0, step_num=-1),
    r"train\.log:1 step_num: -1 is not a number of",
)
log_file(
    "MLPerf log with a negative step time",
    mllog_line("tracked_stats", 1, {"train_step_time": -1.0}, step_num=1),
    r"train\.log:1 train_step_time: -1\.0 is not a step time",
)
log_file(
    "MLPerf log whose clock goes back",
    mllog_line("train_loss", 5000, 2.0, step_num=1) + mllog_line("train_loss", 4000, 2.0, step_num=2),
    r"train\.log:2 time_ms: the clock goes back",
)

MAXTEXT = "completed step: {}, seconds: {}, TFLOP/s/device: 180.1, loss: 10.9\n"
log_file("MaxText log with a time of zero", MAXTEXT.format(3, 0.0), r"train\.log:1 seconds: 0 s is not a step time")
log_file(
    "torchtitan log without a clock",
    "step:  1  loss:  8.12  memory:  1.41GiB(1.79%)  tps: 7,831  mfu: 1.86%\n" * 2,
    r"train\.log: 1 step of torchtitan .* nor the lines 'Training starts at",
)
log_file(
    "DeepSpeed log of one step",
    "[2023-07-25 21:03:21,037] [INFO] [logging.py:96:log_dist] [Rank 0] step=35, skipped=0, lr=[2e-06], mom=[]\n",
    r"train\.log: 1 step of DeepSpeed .* not how long they took",
)

# --- Scalars ---------------------------------------------------------------------------------------------------------

bytes_file(
    "table without a step time", "steps.csv", b"loss,lr\n1,2\n", r"steps\.csv:1: no column of step times\. Looked"
)
bytes_file(
    "table without a unit", "steps.csv", b"step,step_time\n1,2\n", r"steps\.csv:1 'step_time': nothing says the unit"
)
bytes_file(
    "table of two runs", "w.csv", b"Step,a - step_time_s,b - step_time_s\n1,2,2\n", r"w\.csv:1: several could be"
)
bytes_file(
    "table with a word", "steps.csv", b"step,step_time_s\n1,x\n", r"steps\.csv:2 step_time_s: 'x' is not a number"
)
bytes_file(
    "history that is cut",
    "h.jsonl",
    b'{"_step": 1, "step_time_s": 1}\n{"_step": 2, "st',
    r"h\.jsonl:2: not JSON",
)
bytes_file(
    "state of a trainer without times",
    "trainer_state.json",
    b'{"global_step": 5, "log_history": [{"loss": 2.0, "step": 5}], "max_steps": 5}',
    r"trainer_state\.json: .*neither a step time nor train_runtime",
)
bytes_file(
    "state of a trainer that is cut",
    "trainer_state.json",
    b'{"global_step": 5, "log_history": [{"loss": 2.0, "step": 5}, {"lo',
    r"trainer_state\.json: record 2 of log_history: not JSON",
)
bytes_file("event file without scalars", "events.out.tfevents.1", VERSION, r"tfevents\.1: .* without scalars")
bytes_file(
    "event file that is damaged",
    "events.out.tfevents.1",
    VERSION + b"\xff" * 40,
    r"tfevents\.1: record 2 is damaged",
)

# --- Kineto ----------------------------------------------------------------------------------------------------------

KINETO_EVENT = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10.0, "dur": 5.0}


def kineto(rank: int = 0, **changes: Any) -> bytes:
    """A tiny Kineto trace of one rank: a step, the launch of a kernel, the kernel; changes are to the kernel."""
    cpu = {"ph": "X", "pid": 1, "tid": 1}
    trace = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "traceEvents": [
            {**cpu, "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 0.0, "dur": 100.0},
            {
                **cpu,
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "ts": 5.0,
                "dur": 1.0,
                "args": {"correlation": 9},
            },
            {**KINETO_EVENT, "args": {"stream": 7, "correlation": 9, "device": 0}, **changes},
        ],
    }
    return json.dumps(trace).encode()


bytes_file("Kineto that is cut", "rank0.json", kineto()[:-40], r"rank0\.json: .*cut off")
bytes_file("Kineto in gzip that is cut", "rank0.json.gz", gzip.compress(kineto() * 99)[:200], r"rank0\.json\.gz")
bytes_file(
    "Kineto gzip without its checksum", "rank0.json.gz", gzip.compress(kineto())[:-6], r"json\.gz: .*ends too early"
)
bytes_file("Kineto that is a list of numbers", "rank0.json", b"[1, 2, 3]", r"rank0\.json: not a Kineto trace")
bytes_file("Kineto that is not an object", "rank0.json", b'"a text"', r"rank0\.json: not a Kineto trace")
bytes_file("Kineto without events", "rank0.json", b'{"schemaVersion": 1}', r"rank0\.json: no \"traceEvents\"")
bytes_file("Kineto with events that are no list", "rank0.json", b'{"traceEvents": 3}', r"rank0\.json: .*traceEvents")
bytes_file("Kineto with an event that is no object", "rank0.json", b'{"traceEvents": [3]}', r"rank0\.json")
bytes_file("Kineto with a negative duration", "rank0.json", kineto(dur=-5.0), r"rank0\.json: event 3 dur: -5\.0 is not")
bytes_file("Kineto with a text for a time", "rank0.json", kineto(ts="soon"), r"rank0\.json: event 3 ts: 'soon' is not")
bytes_file("Kineto nested deeply", "rank0.json", b'{"traceEvents": ' + b"[" * 200_000, r"rank0\.json: nested more than")


@broken("Kineto of one rank twice", r"b\.json: rank 0 again")
def _(folder: Path) -> Path:
    (folder / "run").mkdir()
    for name in ("a.json", "b.json"):
        _write(folder / "run" / name, kineto(rank=0))
    return folder / "run"

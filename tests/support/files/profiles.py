"""Small profiles of every kind, made up: builders of the bytes of their files. Times in nanoseconds where no unit is named."""

import io
import json
import sqlite3
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

N_STEP, STEP_NS = 3, 1_000_000


def number(value: int) -> bytes:
    """A varint."""
    out = bytearray()
    while True:
        out.append((value & 0x7F) | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(out)


def whole(field: int, value: int) -> bytes:
    """A field of a message: a number."""
    return number(field << 3) + number(value)


def part(field: int, content: bytes | str) -> bytes:
    """A field of a message: text or another message."""
    raw = content.encode() if isinstance(content, str) else content
    return number(field << 3 | 2) + number(len(raw)) + raw


class Plane:
    """A plane of an XPlane file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.names: dict[str, int] = {}
        self.stats: dict[str, int] = {}
        self.lines: list[bytes] = []

    def line(self, name: str, events: Iterable[tuple[str, int, int, dict[str, int]]], origin: int = 0) -> None:
        """Adds a line: name, start, duration and stats of its events."""
        body = part(2, name) + whole(3, origin)
        for event, start, duration, stats in events:
            inner = whole(1, self.names.setdefault(event, len(self.names) + 1))
            inner += whole(2, 1000 * (start - origin)) + whole(3, 1000 * duration)
            for stat, value in stats.items():
                inner += part(4, whole(1, self.stats.setdefault(stat, len(self.stats) + 1)) + whole(4, value))
            body += part(4, inner)
        self.lines.append(body)

    def content(self) -> bytes:
        """The message."""
        body = part(2, self.name) + b"".join(part(3, line) for line in self.lines)
        for field, table in ((4, self.names), (5, self.stats)):
            for name, key in table.items():
                body += part(field, whole(1, key) + part(2, whole(1, key) + part(2, name)))
        return body


def steps() -> Iterable[tuple[int, int]]:
    """Number and start of every step."""
    return ((7 + n, n * STEP_NS) for n in range(N_STEP))


def xplane(n_device: int = 2, marked: bool = True) -> bytes:
    """Every device runs a product, a fusion and a collective in each step; the last is slower by one microsecond a device."""
    host = Plane("/host:CPU")
    if marked:
        host.line("python", [("train", start, STEP_NS - 10, {"step_num": n}) for n, start in steps()])
    planes = [host]
    for device in range(n_device):
        plane, calls, link = Plane(f"/device:GPU:{device}"), [], 1000 * device
        kernels: list[tuple[str, int, int, dict[str, int]]] = []
        for _, start in steps():
            for at, name, length in (
                (1000, "cutlass_gemm_kernel", 300_000),
                (302_000, "loop_add_fusion", 50_000),
                (360_000, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 200_000 + 1000 * device),
            ):
                link += 1
                calls.append(("cuLaunchKernel", start + at - 900, 500, {"correlation_id": link}))
                kernels.append((name, start + at, length, {"correlation_id": link}))
        plane.line("Stream #1(Compute)", [one for one in kernels if "nccl" not in one[0]])
        plane.line("Stream #2(Compute)", [one for one in kernels if "nccl" in one[0]])
        host.line(f"worker {device}", calls)
        planes.append(plane)
    return b"".join(part(1, plane.content()) for plane in planes)


def nsight(path: Path, ranges: Sequence[tuple[str, int, int]] = (), *, by_process: bool = False) -> Path:
    """The same work in an export of Nsight Systems; `ranges` are those of the first process, by default one per step."""
    ranges = ranges or [(f"iteration {n}", start, start + STEP_NS - 10) for n, start in steps()]
    database = sqlite3.connect(path)
    database.executescript(
        """
        CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, textId INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, copyKind INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
            nameId INTEGER);
        INSERT INTO StringIds VALUES (1, 'cutlass_gemm_kernel'), (2, 'loop_add_fusion'),
            (3, 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL'), (9, 'cudaLaunchKernel_v7000');
        """
    )
    for rank in range(2):
        process, device, link = (rank + 1) << 24, 0 if by_process else rank, 0
        for text, start, end in ranges:
            database.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, NULL)", (start, end, text, process + 5))
        for _, start in steps():
            for at, name, length in ((1000, 1, 300_000), (302_000, 2, 50_000), (360_000, 3, 200_000 + 1000 * rank)):
                link += 1
                row = (start + at, start + at + length, device, 7 if name < 3 else 20, link, process, name, name)
                database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
                call = (start + at - 900, start + at - 400, process + 5, link, 9)
                database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", call)
            copy = (start + 800_000, start + 810_000, device, 7, -1, process, 1)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?, ?)", copy)
    database.commit()
    database.close()
    return path


def ranges_table(rows: Sequence[dict[str, Any]] | None = None) -> bytes:
    """The table of ranges of an nsys-jax archive: runs of one program with a product, a loop around a fusion, a collective."""
    if rows is None:
        rows, key = [], 0
        for _, start in steps():
            key += 1
            module = key
            rows.append(
                _range(
                    "TSL:XlaModule:#hlo_module=jit_step,program_id=4#", start, 900_000, module, f":{module}", 560_000
                )
            )
            for op, at, length in (
                ("cublas-gemm.1", 1000, 300_000),
                ("while.2", 302_000, 50_000),
                ("all-reduce-start.3", 360_000, 200_000),
            ):
                key += 1
                stack = f":{module}:{key}"
                rows.append(_range(f"TSL:Thunk:#name=a/b,hlo_op={op}#", start + at, 900, key, stack, length))
                if op.startswith("while"):
                    key += 1
                    rows.append(
                        _range("TSL:Thunk:#hlo_op=loop_add_fusion#", start + at, 800, key, f"{stack}:{key}", length)
                    )
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


def _range(name: str, start: int, host: int, key: int, stack: str, length: int) -> dict[str, Any]:
    times = {
        "Projected Start": start + 100,
        "Projected Duration": length,
        "Orig Start": float(start),
        "Orig Duration": float(host),
    }
    return {"Name": name, **times, "PID": 3, "TID": 3, "RangeId": float(key), "RangeStack": stack}


def nsys_jax(table: bytes | None = None) -> bytes:
    """An archive of nsys-jax."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("nvtx_gpu_proj_trace/trace.parquet", ranges_table() if table is None else table)
        archive.writestr("dump/module_0004.txt", "left alone")
    return file.getvalue()


def flight_recorder(rank: int, late_ns: int = 0, **more: Any) -> dict[str, Any]:
    """Collectives of one of two ranks; a rank that calls later waits less."""
    base, entries = 1_700_000_000_000_000_000, []
    for n in range(6):
        called = base + n * STEP_NS + late_ns
        entries.append(
            {
                "record_id": n, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": n + 1, "p2p_seq_id": 0,
                "op_id": n + 1, "profiling_name": "nccl:all_reduce" if n % 2 else "nccl:_all_gather_base", "state": "completed",
                "time_created_ns": called, "time_discovered_started_ns": called,
                "time_discovered_completed_ns": base + n * STEP_NS + 500_000, "is_p2p": False, "retired": True,
            }
        )  # fmt: skip
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return {"version": "2.9", "nccl_version": "2.27.3", "rank": rank, "pg_config": config, "entries": entries, **more}


def flight_recorder_bytes() -> bytes:
    """One dump as a file."""
    return json.dumps(flight_recorder(0), indent=1).encode()

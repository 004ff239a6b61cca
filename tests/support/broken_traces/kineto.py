"""Broken Kineto traces."""

import gzip
import json
from pathlib import Path
from typing import Any

from .kinds import broken, bytes_file, written

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


bytes_file("Kineto that is cut", "rank0.json", kineto()[:-40], ": .*cut off")
bytes_file("Kineto in gzip that is cut", "rank0.json.gz", gzip.compress(kineto() * 99)[:200], "")
bytes_file("Kineto gzip without its checksum", "rank0.json.gz", gzip.compress(kineto())[:-6], ": .*ends too early")
bytes_file("Kineto that is a list of numbers", "rank0.json", b"[1, 2, 3]", ": not a Kineto trace")
bytes_file("Kineto that is not an object", "rank0.json", b'"a text"', ": not a Kineto trace")
bytes_file("Kineto without events", "rank0.json", b'{"schemaVersion": 1}', r': no "traceEvents"')
bytes_file("Kineto with events that are no list", "rank0.json", b'{"traceEvents": 3}', ": .*traceEvents")
bytes_file("Kineto with an event that is no object", "rank0.json", b'{"traceEvents": [3]}', "")
bytes_file("Kineto with a negative duration", "rank0.json", kineto(dur=-5.0), r": event 3 dur: -5\.0 is not")
bytes_file("Kineto with a text for a time", "rank0.json", kineto(ts="soon"), ": event 3 ts: 'soon' is not")
bytes_file("Kineto nested deeply", "rank0.json", b'{"traceEvents": ' + b"[" * 200_000, ": nested more than")


@broken("Kineto of one rank twice", r"b\.json: rank 0 again")
def _(folder: Path) -> Path:
    (folder / "run").mkdir()
    for name in ("a.json", "b.json"):
        written(folder / "run" / name, kineto(rank=0))
    return folder / "run"

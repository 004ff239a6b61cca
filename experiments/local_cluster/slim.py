"""Cut a PyTorch profiler trace down to the spans of the job: no names of files, threads or machines.

Single operators are kept on request, with their shapes: those that take time themselves, as kernels do on a GPU.

The result is still what the profiler writes (Chrome trace JSON with its base time), some 300 times smaller, gzipped.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

OPS = (
    "forward-compute", "backward-compute", "forward-send", "forward-recv", "backward-send", "backward-recv",
    "grads-reduce-scatter", "optimizer-clip-main-grad", "optimizer",
)  # fmt: skip
COMPUTE = ("forward-compute", "backward-compute", "optimizer")
HEAD = ("schemaVersion", "prism", "displayTimeUnit", "baseTimeNanoseconds")


LEAST_US = 20.0  # of an operator without those that it calls; shorter ones are left out


def slim(raw: Path, out: Path, kernels: bool = False) -> None:
    """Write the spans and the metadata of the trace `raw` to `out` (.json.gz); with `kernels` its operators too."""
    trace = json.loads(raw.read_bytes())
    distributed = trace.get("distributedInfo", {})
    rank = distributed.get("rank", 0)
    threads: dict[int, int] = {}
    events = sorted(trace["traceEvents"], key=lambda event: event.get("ts", 0.0))
    kept = [event for event in events if event.get("cat") == "user_annotation" and _is_ours(event["name"])]
    if kernels:
        computing = {event["tid"] for event in kept if event["name"].split(" ")[0] in COMPUTE}
        kept += _working([event for event in events if event.get("cat") == "cpu_op" and event["tid"] in computing])
    spans = [_span(event, rank, threads.setdefault(event["tid"], len(threads))) for event in kept]
    slimmed = {key: trace[key] for key in HEAD if key in trace}
    slimmed["distributedInfo"] = {
        key: distributed[key] for key in ("backend", "rank", "world_size") if key in distributed
    }
    slimmed["traceEvents"] = spans
    text = json.dumps(slimmed, separators=(",", ":"))
    with out.open("wb") as file, gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
        packed.write(text.encode())


def _working(operators: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Operators that take time beside those that they call on their thread."""
    own: list[tuple[dict[str, Any], float]] = []
    open_: list[int] = []
    for event in sorted(operators, key=lambda event: (event["tid"], event["ts"], -event["dur"])):
        while open_ and not _is_inside(event, own[open_[-1]][0]):
            open_.pop()
        if open_:
            caller, left = own[open_[-1]]
            own[open_[-1]] = caller, left - event["dur"]
        open_.append(len(own))
        own.append((event, event["dur"]))
    return [event for event, left in own if left >= LEAST_US]


def _is_inside(event: dict[str, Any], other: dict[str, Any]) -> bool:
    return event["tid"] == other["tid"] and event["ts"] < other["ts"] + other["dur"]


def _is_ours(name: str) -> bool:
    return name.startswith("ProfilerStep#") or name.split(" ")[0] in OPS


def _span(event: dict[str, Any], rank: int, thread: int) -> dict[str, Any]:
    kept = {key: event[key] for key in ("ph", "cat", "name", "ts", "dur")}
    shapes = event.get("args", {}).get("Input Dims")
    return kept | {"pid": rank, "tid": thread} | ({"args": {"Input Dims": shapes}} if shapes else {})

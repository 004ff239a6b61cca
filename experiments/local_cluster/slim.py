"""Cut a PyTorch profiler trace down to the spans of the job: no single operators, no names of files, threads or machines.

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
HEAD = ("schemaVersion", "prism", "displayTimeUnit", "baseTimeNanoseconds")


def slim(raw: Path, out: Path) -> None:
    """Write the spans and the metadata of the trace `raw` to `out` (.json.gz)."""
    trace = json.loads(raw.read_bytes())
    distributed = trace.get("distributedInfo", {})
    rank = distributed.get("rank", 0)
    threads: dict[int, int] = {}
    spans = [
        _span(event, rank, threads.setdefault(event["tid"], len(threads)))
        for event in sorted(trace["traceEvents"], key=lambda event: event.get("ts", 0.0))
        if event.get("cat") == "user_annotation" and _is_ours(event["name"])
    ]
    slimmed = {key: trace[key] for key in HEAD if key in trace}
    slimmed["distributedInfo"] = {
        key: distributed[key] for key in ("backend", "rank", "world_size") if key in distributed
    }
    slimmed["traceEvents"] = spans
    text = json.dumps(slimmed, separators=(",", ":"))
    with out.open("wb") as file, gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
        packed.write(text.encode())


def _is_ours(name: str) -> bool:
    return name.startswith("ProfilerStep#") or name.split(" ")[0] in OPS


def _span(event: dict[str, Any], rank: int, thread: int) -> dict[str, Any]:
    kept = {key: event[key] for key in ("ph", "cat", "name", "ts", "dur")}
    return kept | {"pid": rank, "tid": thread}

"""Training logs, one run per file: MLPerf logs (`:::MLLOG`), and every other log that `prism_jax.io.traces.logs` reads.

The step times are read by `prism_jax.io.traces`; here the log's own words about the run are added. As in tables of step times,
`duration_s` is what was measured: one step where the framework timed it (`metric` step_s), else the interval over `n_steps`
steps (`metric` log_dt_ms, whatever the unit).
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from prism_jax.io.traces.format import FileStart
from prism_jax.io.traces.logs.formats import STEP_LOGS
from prism_jax.io.traces.logs.mllog import MARKER, read_mllog
from prism_jax.io.traces.streams import head, lines
from prism_jax.recorded.trace.step_log import StepLog
from prism_jax.recorded.trace.warm_up import without_warm_up

from .raw_table import RawTable, hash_as_one

_TEXTS = {
    "submission_benchmark": "benchmark",
    "submission_org": "submitter",
    "submission_platform": "system",
    "submission_division": "division",
}
_COUNTS = {
    "number_of_nodes": "n_nodes",
    "num_nodes": "n_nodes",
    "accelerators_per_node": "gpus_per_node",
    "gpus_per_node": "gpus_per_node",
    "num_gpus_per_node": "gpus_per_node",
    "num_gpus": "n_gpus",
    "number_of_gpus": "n_gpus",
    "world_size": "n_gpus",
    "global_batch_size": "global_batch_size",
}
_NODES = re.compile(r"^(\d{1,6})x(?=\D)")
_EIGHT = re.compile(r"(?:NVIDIA )?[DH]GX[ -]?[AHB][1-3]00\b")  # eight GPUs per node
_KEYS = tuple(json.dumps(key).encode() for key in (*_TEXTS, *_COUNTS))
MAX_LINE = 10_000  # bytes of a line that says something about the run


def read_mlperf(path: Path, run: str) -> RawTable:
    """Step times of an MLPerf log with its benchmark, submitter, platform and number of GPUs.

    Raises:
        DataError: as `read_mllog`.
    """
    log = read_mllog(path)
    return _table(log, run, _about(path), single="of the step of the entry")


def read_training_log(path: Path, run: str, unit_s: float | None = None) -> RawTable:
    """Step times of any other log, without its warm-up.

    Args:
        run: what the run is called.
        unit_s: seconds of the unit of step times whose name says none.

    Raises:
        DataError: as the reader of its format.
    """
    begins = FileStart(path, head(path))
    known = next(known for known in reversed(STEP_LOGS) if known.recognises(begins))  # the last takes any text
    in_unit = known.read_in_unit
    found = known.read([path]) if unit_s is None or in_unit is None else in_unit([path], unit_s)
    log, _ = without_warm_up(cast(StepLog, found), hint="")
    table = _table(log, run, {"framework": log.framework} if log.framework else {}, single="")
    return replace(table, in_si=in_unit is not None)


def _table(log: StepLog, run: str, about: dict[str, Any], single: str) -> RawTable:
    timed_alone = any(single in note for note in log.notes) if single else bool((log.n_steps == 1).all())
    duration_s = log.step_s if timed_alone else log.step_s * log.n_steps
    columns = {
        **about,
        "metric": "step_s" if timed_alone else "log_dt_ms",
        "step": log.step,
        "n_steps": log.n_steps.astype(np.int64),
        "duration_s": duration_s,
    }
    frame = pd.DataFrame(columns)
    notes = tuple(f"{Path(log.source).name}: {note}" for note in log.notes)
    row_hash = hash_as_one(frame)  # without the run's name, so that the same log under another name is found
    return RawTable(log.source, frame.assign(run=run), ("run", *frame.columns), row_hash, notes=notes)


def _about(path: Path) -> dict[str, Any]:
    """What the log says of the run."""
    found: dict[str, Any] = {}
    for _, line in lines(path, cut=True):
        if MARKER not in line or len(line) > MAX_LINE or not any(key in line for key in _KEYS):
            continue
        try:
            record = json.loads(line[line.index(b"{", line.index(MARKER)) :])
        except ValueError:
            continue  # `read_mllog` has read it: several entries share a line
        key, value = record.get("key"), record.get("value")
        if key in _TEXTS and isinstance(value, str) and value.isprintable():
            found.setdefault(_TEXTS[key], value[:200])
        elif key in _COUNTS and isinstance(value, (int, float)) and 0 < value < 1e9:
            found.setdefault(_COUNTS[key], float(value))
    return _with_counts(found)


def _with_counts(found: dict[str, Any]) -> dict[str, Any]:
    """Nodes and GPUs, where the platform's name ("64xDGX H100") says them."""
    platform = str(found.get("system", ""))
    nodes = _NODES.match(platform)
    if nodes:
        found.setdefault("n_nodes", float(nodes[1]))
    if _EIGHT.match(platform[nodes.end() :] if nodes else platform):
        found.setdefault("gpus_per_node", 8.0)
    if "n_nodes" in found and "gpus_per_node" in found:
        found.setdefault("n_gpus", found["n_nodes"] * found["gpus_per_node"])
    return found

"""Detects the format of a file of measurements: by its content, by its ending only where that leaves it open. Training logs.

Logs hold one run per file: MLPerf logs (`:::MLLOG`), and every other log that `prism_jax.recorded` reads. The step times are read
there; here the log's own words about the run are added. As in tables of step times, `duration_s` is what was measured: one step
where the framework timed it (`metric` step_s), else the interval over `n_steps` steps (`metric` log_dt_ms, whatever the unit).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pandas as pd

from prism_jax.core.errors import DataError
from prism_jax.core.read_file import check_input
from prism_jax.launch.head_job import logged_runs
from prism_jax.recorded.formats.event_file import EVENT_FILE
from prism_jax.recorded.formats.mllog import MARKER, read_mllog
from prism_jax.recorded.formats.open_trace import STEP_LOGS
from prism_jax.recorded.formats.scalar_files import JSON_LINES, TRAINER_STATE, separator_of
from prism_jax.recorded.formats.text_logs import frameworks, is_step_line, read_text_log
from prism_jax.tables.streams import PARQUET, head, lines, refuse_binary, refuse_packed
from prism_jax.trace.step_log import FileStart, Stated, StepLog, without_warm_up

from .network_tests import is_network_line
from .raw_table import RawTable, first_bytes, hash_as_one, header_of, is_zstd
from .telemetry import is_gpu_header, is_monitor_line

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
    stated = known.read_stated
    found = known.read([path]) if unit_s is None or stated is None else stated([path], Stated(unit_s))
    runs = logged_runs(path) or [({}, cast(StepLog, found))]  # a new block of arguments is a new run
    if len(runs) == 1:
        runs = [(runs[0][0], cast(StepLog, found))]
    tables = []
    for number, (said, one) in enumerate(runs, start=1):
        log, _ = without_warm_up(one, hint="")
        about = {**said, **({"framework": log.framework} if log.framework else {})}
        tables.append(_table(log, run if len(runs) == 1 else f"{run} run {number}", about, single=""))
    return replace(_joined(tables), in_si=stated is not None)


def _joined(tables: Sequence[RawTable]) -> RawTable:
    """Runs of one log as one table."""
    frame = pd.concat([one.frame for one in tables], ignore_index=True)
    header = tuple(dict.fromkeys(name for one in tables for name in one.header))
    row_hash = np.concatenate([one.row_hash for one in tables])
    notes = tuple(note for one in tables for note in one.notes)
    return replace(tables[0], frame=frame, header=header, row_hash=row_hash, notes=notes)


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
    """Reads what the log records about the run."""
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


Format = Literal["table", "parquet", "nvidia-smi", "dcgm", "network test", "mllog", "step log"]
READ = (
    "CSV, TSV, parquet, logs of nccl-tests, OSU benchmarks, perftest, IMB, nvidia-smi and dcgmi, MLPerf logs (:::MLLOG), "
    "histories of W&B (JSON lines), event "
    f"files of TensorBoard, trainer_state.json, and logs of {frameworks()}"
)
TABLE_ENDINGS = (".csv", ".tsv")
MARKER_LINES = 2_000_000  # how far the first line that tells is looked for


def detect(path: Path) -> Format:
    """The format of a file.

    Raises:
        DataError: no regular file, cannot be read, empty, or of no known format.
    """
    check_input(path)
    start = first_bytes(path)
    if any(known.recognises(FileStart(path, start)) for known in (EVENT_FILE, TRAINER_STATE, JSON_LINES)):
        return "step log"
    _refuse(path, start)
    if start.startswith(PARQUET):
        return "parquet"
    name = path.name.lower()
    for ending in (".gz", ".zst", ".zstd"):
        name = name.removesuffix(ending)
    if name.endswith((".parquet", ".pq")):
        raise DataError(f"{path}: not a parquet file: it does not begin with PAR1. Export it again.")
    if not name.endswith(TABLE_ENDINGS) and (kind := _told(path)) is not None:
        return kind
    return _detect_table(path, start, name.endswith(TABLE_ENDINGS))


def _detect_table(path: Path, start: bytes, is_named_so: bool) -> Format:
    first = start.decode("utf-8-sig", "replace").lstrip().partition("\n")[0]
    if first.startswith(("{", "[{")):
        raise DataError(f"{path}: JSON. Export the measurements as CSV or parquet. Supported: {READ}.")
    if not is_named_so and separator_of(first) not in first:
        raise DataError(f"{path}: neither a table nor a log that is known. Supported: {READ}.")
    return "nvidia-smi" if is_gpu_header(header_of(path)) else "table"


def _refuse(path: Path, start: bytes) -> None:
    """Files that no reader here reads."""
    if not start.strip():
        raise DataError(f"{path}: the file is empty. Export the measurements again.")
    refuse_packed(path, start)
    if start.startswith(PARQUET):
        return
    if start.startswith((b"\x89HDF", b"CDF")):
        raise DataError(f"{path}: a netCDF or HDF5 file. Supported: {READ}.")
    refuse_binary(path, start, READ)


def _told(path: Path) -> Format | None:
    """The format that the first line with something unmistakable tells."""
    if is_zstd(path):
        return None  # of what is packed with zstd only tables are read
    for number, line in lines(path, cut=True):
        if MARKER in line:
            return "mllog"
        if is_network_line(line):
            return "network test"
        if is_monitor_line(line):
            return "dcgm"
        if is_step_line(line):
            return "step log"
        if number > MARKER_LINES:
            break
    return "step log" if _reads_as_log(path) else None


def _reads_as_log(path: Path) -> bool:
    """Whether a text whose lines say nothing alone holds step times: steps and their times on lines of their own, or a clock."""
    try:
        read_text_log(path)
    except DataError:
        return False
    return True

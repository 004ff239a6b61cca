"""Columns of models and small tables for the tests of data in. Nothing in them is from a real file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from inference.data.clean import Measurements
from inference.data.columns import Column
from inference.data.read import read_measurements

FLEET = (
    Column("kernel", ("kernel_name",), required=True, text=True),
    Column("gpu", ("gpu_uuid", "uuid"), required=True, text=True),
    Column("node", ("node_key", "hostname"), text=True),
    Column("run", ("run_index",), text=True),
    Column("time", ("unix_ts", "timestamp")),
    Column("duration_s", ("time_ms", "elapsed"), required=True, positive=True),
    Column("clock_mhz", ("freq_mhz", "clocks.sm"), positive=True),
    Column("temp_c", ("temperature.gpu",)),
    Column("power_w", ("power.draw",)),
)
STEPS = (
    Column("run", ("run_id",), required=True, text=True),
    *(Column(name, text=True) for name in ("system", "submitter", "benchmark", "metric", "gpu", "framework", "group")),
    Column("n_gpus", ("num_gpus",)),
    Column("n_nodes", ("num_nodes",)),
    Column("step", ("pos", "i")),
    Column("n_steps"),
    Column("duration_s", ("value", "dt_ms", "step_time"), required=True, positive=True),
    Column("flag"),
)
COLLECTIVES = (
    Column("op", ("collective",), required=True, text=True),
    Column("message_bytes", ("bytes", "msg_bytes", "size"), required=True, positive=True),
    Column("n_gpus", ("ngpus", "num_gpus")),
    Column("n_nodes", ("nodes",)),
    Column("gpus_per_node"),
    Column("gpu", text=True),
    Column("library", text=True),
    Column("source", ("source_repo",), text=True),
    Column("duration_s", ("time_us", "time_us_out_of_place", "time"), required=True, positive=True),
    Column("in_place", text=True),
)
KERNELS = (
    Column("op", required=True, text=True),
    *(Column(name) for name in ("m", "n", "k")),
    Column("dtype", text=True),
    Column("gpu", required=True, text=True),
    Column("duration_s", ("time_us",), positive=True),
    Column("tflops", required=True, positive=True),
)
OVERLAP = (
    Column("kernel", ("kShortName", "Kernel Name"), required=True, text=True),
    Column("duration_s", ("duration",), required=True, positive=True),
    Column("overlapped_s", ("ground_truth",), required=True, positive=True),
    Column("overlap_ratio"),
)


def fleet_frame(n_gpus: int = 4, n_runs: int = 5, seed: int = 0) -> pd.DataFrame:
    """Times of one kernel in ms, with full precision; columns kernel, gpu, run, time_ms."""
    rng = np.random.default_rng(seed)
    gpu, run = (part.ravel() for part in np.meshgrid(range(n_gpus), range(n_runs), indexing="ij"))
    return pd.DataFrame({"kernel": "gemm", "gpu": gpu, "run": run, "time_ms": 20 + rng.random(n_gpus * n_runs)})


def write(path: Path, text: str) -> Path:
    """`path`, with `text` in it."""
    path.write_text(text, encoding="utf-8")
    return path


def read_text(
    folder: Path, text: str, columns: Sequence[Column] = FLEET, name: str = "times.csv", **options: Any
) -> Measurements:
    """The measurements of a file with that text."""
    return read_measurements([write(folder / name, text)], columns, **options)


def values(frame: pd.DataFrame, name: str) -> np.ndarray:
    """One column."""
    return np.asarray(frame[name])


def records(frame: pd.DataFrame, names: Sequence[str]) -> list[dict[str, object]]:
    """The different rows of some columns."""
    rows = zip(*(frame[name].tolist() for name in names), strict=True)
    return [dict(zip(names, row, strict=True)) for row in dict.fromkeys(rows)]


def accounted(found: Measurements) -> bool:
    """Whether every row that was read is kept or counted as dropped, and the table holds those that are kept."""
    hygiene = found.hygiene
    return hygiene.n_read == hygiene.n_kept + sum(hygiene.dropped.values()) and hygiene.n_kept == len(found.frame)

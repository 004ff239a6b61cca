"""Columns of models and small tables for the tests of data in. Nothing in them is from a real file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from inference.data.clean import Measurements
from inference.data.columns import ModelColumn
from inference.data.read import read_measurements

FLEET = (
    ModelColumn("kernel", ("kernel_name",), required=True, text=True),
    ModelColumn("gpu", ("gpu_uuid", "uuid"), required=True, text=True),
    ModelColumn("node", ("node_key", "hostname"), text=True),
    ModelColumn("run", ("run_index",), text=True),
    ModelColumn("time", ("unix_ts", "timestamp")),
    ModelColumn("duration_s", ("time_ms", "elapsed"), required=True, positive=True),
    ModelColumn("clock_mhz", ("freq_mhz", "clocks.sm"), positive=True),
    ModelColumn("temp_c", ("temperature.gpu",)),
    ModelColumn("power_w", ("power.draw",)),
)
STEPS = (
    ModelColumn("run", ("run_id",), required=True, text=True),
    *(
        ModelColumn(name, text=True)
        for name in ("system", "submitter", "benchmark", "metric", "gpu", "framework", "group")
    ),
    ModelColumn("n_gpus", ("num_gpus",)),
    ModelColumn("n_nodes", ("num_nodes",)),
    ModelColumn("step", ("pos", "i")),
    ModelColumn("n_steps"),
    ModelColumn("duration_s", ("value", "dt_ms", "step_time"), required=True, positive=True),
    ModelColumn("flag"),
)
COLLECTIVES = (
    ModelColumn("op", ("collective",), required=True, text=True),
    ModelColumn("message_bytes", ("bytes", "msg_bytes", "size"), required=True, positive=True),
    ModelColumn("n_gpus", ("ngpus", "num_gpus")),
    ModelColumn("n_nodes", ("nodes",)),
    ModelColumn("gpus_per_node"),
    ModelColumn("gpu", text=True),
    ModelColumn("library", text=True),
    ModelColumn("source", ("source_repo",), text=True),
    ModelColumn("duration_s", ("time_us", "time_us_out_of_place", "time"), required=True, positive=True),
    ModelColumn("in_place", text=True),
)
KERNELS = (
    ModelColumn("op", required=True, text=True),
    *(ModelColumn(name) for name in ("m", "n", "k")),
    ModelColumn("dtype", text=True),
    ModelColumn("gpu", required=True, text=True),
    ModelColumn("duration_s", ("time_us",), positive=True),
    ModelColumn("tflops", required=True, positive=True),
)
OVERLAP = (
    ModelColumn("kernel", ("kShortName", "Kernel Name"), required=True, text=True),
    ModelColumn("duration_s", ("duration",), required=True, positive=True),
    ModelColumn("overlapped_s", ("ground_truth",), required=True, positive=True),
    ModelColumn("overlap_ratio"),
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
    folder: Path, text: str, columns: Sequence[ModelColumn] = FLEET, name: str = "times.csv", **options: Any
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

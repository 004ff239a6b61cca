"""Which format a file of measurements has: by its content, and by its ending only where the content leaves it open."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from prism_jax._core.input_file import check_input
from prism_jax.errors import DataError
from prism_jax.io.traces.format import FileStart
from prism_jax.io.traces.logs.mllog import MARKER
from prism_jax.io.traces.logs.scalars.event_file import EVENT_FILE
from prism_jax.io.traces.logs.scalars.json_lines import JSON_LINES
from prism_jax.io.traces.logs.scalars.trainer_state import TRAINER_STATE
from prism_jax.io.traces.logs.text.formats import frameworks, is_step_line
from prism_jax.io.traces.refuse import PARQUET, refuse_binary, refuse_packed
from prism_jax.io.traces.streams import lines

from .delimited import header_of, separator_of
from .gpu_log import is_dcgm_line, is_gpu_header
from .nccl_tests import is_nccl_line
from .packed import first_bytes, is_zstd

Format = Literal["table", "parquet", "nvidia-smi", "dcgm", "nccl-tests", "mllog", "step log"]
READ = (
    "CSV, TSV, parquet, logs of nccl-tests, nvidia-smi and dcgmi, MLPerf logs (:::MLLOG), histories of W&B (JSON lines), event "
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
    return _table(path, start, name.endswith(TABLE_ENDINGS))


def _table(path: Path, start: bytes, is_named_so: bool) -> Format:
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
        if is_nccl_line(line):
            return "nccl-tests"
        if is_dcgm_line(line):
            return "dcgm"
        if is_step_line(line):
            return "step log"
        if number > MARKER_LINES:
            break
    return None

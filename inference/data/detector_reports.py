"""Reports of straggler detectors and monitors as tables of measurements of GPUs: seconds of a unit of work, or clocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from prism_jax.core.errors import DataError
from prism_jax.slowdowns.detectors import detector_of, read_detector
from prism_jax.slowdowns.readings import GpuPlace

from .columns import ModelColumn
from .raw_table import RawTable, raw_table


def of_detector(path: Path, columns: Sequence[ModelColumn]) -> RawTable | None:
    """The readings in a report of a detector, for models of GPUs; None where the file is none, or GPUs are not asked for.

    Rates and scores are one over seconds of a unit of work; clocks are a log of GPUs, like those of nvidia-smi.

    Raises:
        DataError: the report measures no GPU, or clocks together with other figures.
    """
    if not any(column.name == "gpu" and column.required for column in columns):
        return None
    detector = detector_of(path)
    if detector is None:
        return None
    found = read_detector(path, detector)
    kinds = {one.kind for one in found.readings}
    clocks = kinds == {"clock"}
    if not clocks and "clock" in kinds:
        raise DataError(f"{path}: clocks and other figures. Query one of them.")
    value = [one.value if one.kind in ("time", "factor", "clock") else 1.0 / one.value for one in found.readings]
    frame = pd.DataFrame(
        {
            "gpu": [_gpu(one.place) for one in found.readings],
            "node": [one.place.host or None for one in found.readings],
            **({} if clocks else {"kernel": [one.series for one in found.readings]}),
            "run": [f"report {one.report}" for one in found.readings],
            "clock_mhz" if clocks else "duration_s": value,
        }
    )
    note = f"{path.name}: read as {detector.about}"
    return raw_table(str(path), frame, is_gpu_log=clocks, in_si=True, notes=(note, *found.notes))


def _gpu(place: GpuPlace) -> str:
    """The GPU's name in its node, or in the job."""
    if place.rank is not None:
        return str(place.rank)
    return place.host if place.index is None else str(place.index)

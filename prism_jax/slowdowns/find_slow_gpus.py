"""The slow GPUs that detectors report, as a table of slowdowns; what `prism-jax slowdowns` does. No JAX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from ..core.errors import DataError
from ..core.use_case import OUTPUT, UNRECORDED, Argument, Message, Option, use_case
from ..core.write_file import check_target, write_text
from .detectors import DETECTORS, detectors_of, read_detectors
from .report import SlowdownsReport
from .slow_gpus import SLOW_SHARE, slowdowns_of_readings

FILES = "Reports of detectors and monitors (`prism-jax show detectors`); several are taken together."


def table_message(report: SlowdownsReport) -> Message | None:
    """Message that names the table, where one was written."""
    return Message(f"wrote {report.written}: {len(report.gpus):,} rows") if report.written else None


def check_table(option: str, value: str | Path) -> None:
    """Whether the table can be written there.

    Raises:
        DataError: no, or its name does not end in .csv.
    """
    if not str(value).endswith(".csv"):
        raise DataError(f"{option}: {value}: the name of a table of slowdowns must end in .csv")
    check_target(value)


@use_case(then=(table_message,))
def find_slow_gpus(
    files: Annotated[
        Sequence[str | Path], Argument(metavar="FILE...", help=FILES, recorded_as=lambda files: [*map(str, files)])
    ],
    *,
    output: Annotated[
        str | Path | None, Option("--output -o", "FILE", key=None, heading=OUTPUT, check=check_table)
    ] = None,
    smallest: Annotated[float, Option(metavar="SHARE", least=0.001, most=1.0)] = SLOW_SHARE,
) -> SlowdownsReport:
    """Find the slow GPUs in reports of straggler detectors: factor, interval, for good or in turn.

    Args:
        files: of NVRx, Megatron, Primus, TraceML, NVCRE, the DCGM exporter or Prometheus, of one kind or several.
        output: table of slowdowns for `predict --slowdowns`, `search`, `place` (.csv).
        smallest: share by which a slow GPU is slower than the usual one, at least.

    Raises:
        DataError: a file cannot be read, no detector is known by it, it measures no GPU, or the table cannot be written.

    Example:
        >>> find_slow_gpus(["train.log"]).slow[0].name  # doctest: +SKIP
        'rank 5 (gpu1)'
    """
    named = list(dict.fromkeys(map(str, files)))
    if not named:
        raise DataError(f"no files. Name a report of one of {', '.join(DETECTORS.names)}.")
    if output is not None:
        check_table("--output", output)
    known = [detectors_of(path) for path in named]
    read = [read_detectors(path, of_file) for path, of_file in zip(named, known, strict=True)]
    found = slowdowns_of_readings(read, smallest)
    if output is not None:
        write_text(output, found.table())
    return SlowdownsReport(
        files=tuple(named),
        detectors=tuple(one.name for of_file in known for one in of_file),
        gpus=found.gpus,
        n_reports=found.n_report,
        is_partial=found.is_partial,
        written=None if output is None else str(output),
        notes=found.notes,
        record=UNRECORDED,
    )

"""Rows of a table of samples per second as `StepRecord`s: columns model, gpu, num_gpus, global_batch and samples_per_s.

The source of a row is its submitter and the round of the benchmark, where it has both: rows of one submission share a site.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from ...csv_rows import CsvTable, Seen
from ...fields import integer_field, number_field, seconds_field
from ..record import MEASURED, StepRecord

REQUIRED = ("id", "model", "gpu", "num_gpus", "global_batch", "samples_per_s")
_ROUND = re.compile(r"training_results_(v\d\.\d)")
# Day on which a round of MLPerf Training was published: its software is not newer.
_PUBLISHED = {
    "v2.0": "2022-06",
    "v2.1": "2022-11",
    "v3.0": "2023-06",
    "v3.1": "2023-11",
    "v4.0": "2024-06",
    "v4.1": "2024-11",
}


def is_samples_table(columns: Collection[str]) -> bool:
    """Whether a table with these columns states samples per second, and no seconds of a step under their usual name."""
    return MEASURED not in columns and all(column in columns for column in REQUIRED)


def sample_records(table: CsvTable) -> list[StepRecord]:
    """All rows.

    Raises:
        DataError: a row is malformed; names row and field.
    """
    seen, records = Seen(), []
    for row in table.rows():
        place = table.place(row.line)
        records.append(replace(_record(row.fields, place), same_as=seen.before(row.fields.values(), place)))
    return records


def _record(row: Mapping[str, str], where: str) -> StepRecord:
    where = f"{where} ({row['id'] or 'no id'})"
    counts = {name: integer_field(row.get(name), name, where) for name in ("num_gpus", "gpus_per_node", "global_batch")}
    accumulated = integer_field(row.get("grad_accum"), "grad_accum", where) or 1
    rate = number_field(row["samples_per_s"], "samples_per_s", where)
    step_s = seconds_field(row.get("step_time_s"), "step_time_s", where)
    n_gpus, batch = counts["num_gpus"] or None, counts["global_batch"]
    round_of_results = _ROUND.search(row.get("source_repo", ""))
    return StepRecord(
        id=row["id"],
        source=_source(row, round_of_results[1] if round_of_results else ""),
        model_name=row["model"],
        gpu=row["gpu"],
        n_gpus=n_gpus,
        gpus_per_node=counts["gpus_per_node"] or None,
        network=row.get("network", ""),
        micro_batch=max(1, round(batch / (n_gpus * accumulated))) if n_gpus and batch else None,
        global_batch=batch,
        measured_s=step_s or (batch / rate if rate and batch else None),
        table=row.get("source_path", ""),
        notes=row.get("notes", ""),
        framework=row.get("framework", ""),
        precision=row.get("precision", ""),
        date=_PUBLISHED.get(round_of_results[1], "") if round_of_results else "",
    )


def _source(row: Mapping[str, str], version: str) -> str:
    submitter = row.get("submitter", "")
    if submitter and version:
        return f"{submitter}, MLPerf Training {version}"
    return submitter or row.get("source_repo", "") or row.get("source", "")

"""Writes tables of published steps as plain tables of jobs, whose columns are paths of the job file (docs/job_table.md).

    python -m experiments.step_tables.as_jobs TABLE... -o jobs.csv

What a row leaves open stays empty. Rows that no job file can state are left out and counted, by the method that no field states.
`prism-jax validate jobs.csv` and `prism-jax calibrate jobs.csv` read the result.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.step_tables.table import read_step_rows
from prism_jax.calibration.open_fields import IMBALANCE, NETWORK, VIRTUAL_STAGES, imbalance_of
from prism_jax.core.errors import PrismError
from prism_jax.core.write_file import check_target
from prism_jax.framework.software import Software
from prism_jax.job.write_job import changed_fields, cluster_fields, model_fields
from prism_jax.plan.packing import Data
from prism_jax.system import catalog
from prism_jax.system.hardware import Cluster
from prism_jax.tables.yaml_toml import flow
from prism_jax.validation.score import MeasuredRow

FIRST = ("row", "source", "measured_s", "framework")


def cells(row: MeasuredRow) -> dict[str, str]:
    """A row of a plain table: texts by column; what nothing states is absent.

    Raises:
        PrismError: a job file cannot state its job.
    """
    model, cluster, plan = row.job
    is_open = {name for name, _ in row.open_plan}
    fields: dict[str, Any] = {
        "model": {name: value for name, value in model_fields(model).items() if name != "source"},
        "cluster": {**_cluster(cluster), "n_devices": plan.n_devices},
        "plan": changed_fields(replace(plan, software=Software(), data=Data())),
        "software": changed_fields(plan.software),
        "data": changed_fields(plan.data),
    }
    found = {**_stated(row), **dict(_flat(fields))}
    found = {path: value for path, value in found.items() if path not in _blank(is_open)}
    known = {"row": row.id, "source": row.source, "framework": row.framework}
    seconds = {} if row.measured_s is None else {"measured_s": repr(row.measured_s)}
    return {**known, **seconds, **{path: flow(value) for path, value in found.items()}}


def _stated(row: MeasuredRow) -> dict[str, Any]:
    """Fields that a blank would leave open, at values that files need not write."""
    model, _, plan = row.job
    stated = {f"plan.{name}": getattr(plan, name) for name in ("dtype", "recompute", "schedule", "virtual_stages")}
    return stated if imbalance_of(model) is None else {**stated, IMBALANCE: imbalance_of(model)}


def _blank(is_open: set[str]) -> set[str]:
    """Columns that stay empty; a micro-batch and tiers are written as they are assumed."""
    with_schedule = {"schedule"} if VIRTUAL_STAGES in is_open else set()
    return {name if "." in name else f"plan.{name}" for name in (is_open | with_schedule) - {"micro_batch", NETWORK}}


def _cluster(cluster: Cluster) -> dict[str, Any]:
    """Section `cluster`, its device by name where it is one that ships."""
    found = cluster_fields(cluster)
    name = catalog.known_device(cluster.device.name)
    if name is not None and catalog.device(name) == cluster.device:
        found["device"] = name
    return found


def _flat(fields: Mapping[str, Any], front: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{front}{name}.")
        else:
            yield from () if value == {} else [(f"{front}{name}", value)]


def plain_rows(rows: Iterable[MeasuredRow], refused: Counter[str]) -> list[dict[str, str]]:
    """Rows of a plain table; why the others are none is counted in `refused`."""
    found = []
    for row in rows:
        reason = row.unsupported or ("set aside as a defect" if row.defect else "")
        if not reason:
            try:
                found.append(cells(row))
            except PrismError as error:
                reason = str(error)
        refused.update([reason] if reason else [])
    return found


def write_table(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Writes rows as CSV, with every column that one of them has."""
    columns = list(dict.fromkeys([*FIRST, *sorted({name for row in rows for name in row})]))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", metavar="TABLE")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    refused: Counter[str] = Counter()
    try:
        check_target(given.output)
        rows = plain_rows((row for table in given.tables for row in read_step_rows(table)), refused)
    except PrismError as error:
        print(error, file=sys.stderr)
        return 2
    write_table(given.output, rows)
    print(f"wrote {len(rows):,} rows; left out {refused.total():,}:")
    print(*(f"  {n:5d}  {reason}" for reason, n in refused.most_common()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

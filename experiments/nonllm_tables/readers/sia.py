"""sia_pollux_steps.csv.gz: steps of six models over placements on clouds of T4 and 2080 Ti; the source of a row is the system.

Digits of a placement are GPUs per node. What runs on `azure` is not documented: its rows are no rows here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.nonllm_tables.row import TableRow

FILE = "sia_pollux_steps.csv.gz"
_SYSTEMS = {"aws": "t4", "rtx": "rtx-2080-ti"}


def read(folder: Path) -> Iterator[TableRow]:
    """All rows of known systems."""
    table = pd.read_csv(folder / FILE)
    lines: Iterable[Any] = table.itertuples()  # its fields are the columns of the table
    for number, line in enumerate(lines):
        if line.system not in _SYSTEMS:
            continue
        yield TableRow(
            id=f"sia-{number:05d}",
            table="sia",
            name=line.model,
            gpu=_SYSTEMS[line.system],
            n_gpus=int(line.gpus),
            gpus_per_node=_most_in_a_node(line),
            batch_per_gpu=int(line.local_bsz),
            n_accumulated=1,
            step_s=float(line.step_s),
            source=f"Sia {line.system}",
            precision="fp32",
            framework="PyTorch",
        )


def _most_in_a_node(line: Any) -> int:
    digits = [int(digit) for digit in str(line.placement).partition(".")[0] if digit.isdigit()]
    if line.kind == "placements" and sum(digits) == line.gpus:
        return max(digits)
    return max(1, -(-int(line.gpus) // int(line.nodes)))

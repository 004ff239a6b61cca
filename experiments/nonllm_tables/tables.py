"""All rows of the tables of CNNs and encoders."""

from __future__ import annotations

from pathlib import Path

from experiments.nonllm_tables.readers import dle, dlperf, iterations, sia, timm
from experiments.nonllm_tables.row import TableRow

READERS = {"dle": dle.read, "dlperf": dlperf.read, "sia": sia.read, "timm": timm.read, "iterations": iterations.read}


def table_rows(folder: Path, tables: tuple[str, ...] = tuple(READERS)) -> list[TableRow]:
    """Rows of `folder`, the folder `nonllm` of the data, table by table."""
    return [row for name in tables for row in READERS[name](folder)]

"""dlperf_v100.csv: ResNet-50, BERT-base and InsightFace on 1 to 32 V100; the source of a row is one of six frameworks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.nonllm_tables.row import TableRow

FILE = "dlperf_v100.csv"


def read(folder: Path) -> Iterator[TableRow]:
    """All rows."""
    table = pd.read_csv(folder / FILE)
    lines: Iterable[Any] = table.itertuples()  # its fields are the columns of the table
    for number, line in enumerate(lines):
        yield TableRow(
            id=f"dlperf-{number:04d}",
            table="dlperf",
            name=line.model,
            gpu="v100-16gb",
            n_gpus=int(line.gpus),
            gpus_per_node=int(line.gpus_per_node),
            batch_per_gpu=int(line.batch_per_gpu),
            n_accumulated=1,
            step_s=float(line.step_s),
            source=f"DLPerf {line.framework}",
            precision=line.dtype,
            framework=line.framework,
            is_compiled=bool(line.xla),
            task=str(line.path),
            network=line.network,
        )

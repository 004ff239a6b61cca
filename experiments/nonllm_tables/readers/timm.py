"""timm_train_rtx3090.csv.gz: training steps of some 840 image models on one RTX 3090; all rows are one source.

Three versions of PyTorch measured the same models on the same GPU: leaving out one of them would be a look-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.nonllm_tables.row import TableRow

FILE = "timm_train_rtx3090.csv.gz"
_MS = 1e-3


def read(folder: Path) -> Iterator[TableRow]:
    """All rows."""
    table = pd.read_csv(folder / FILE)
    lines: Iterable[Any] = table.itertuples()  # its fields are the columns of the table
    for number, line in enumerate(lines):
        yield TableRow(
            id=f"timm-{number:04d}",
            table="timm",
            name=line.model,
            gpu="rtx-3090",
            n_gpus=1,
            gpus_per_node=1,
            batch_per_gpu=int(line.batch),
            n_accumulated=1,
            step_s=float(line.step_ms) * _MS,
            source="timm",
            precision="fp16",
            framework="PyTorch",
            image=int(line.img),
            layout=line.layout,
            task=line.torch,
        )

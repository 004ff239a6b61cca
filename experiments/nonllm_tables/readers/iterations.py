"""cnn_iter_times.csv.gz: repeats of one training iteration of torchvision's networks on GeForce and Titan cards: medians.

The source of a row is the machine. More than one GPU there is `nn.DataParallel` in one process, which is no job of this package,
and double precision is none of its formats: only float and half on one GPU are rows. Batch 12, images of 224, channels first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.nonllm_tables.row import TableRow

FILE = "cnn_iter_times.csv.gz"
_GPUS = {
    "GeForce GTX 1080 Ti": "gtx-1080-ti",
    "TITAN Xp": "titan-xp",
    "GeForce RTX 2080 Ti": "rtx-2080-ti",
    "TITAN RTX": "titan-rtx",
}
_PRECISIONS = {"float": "fp32", "half": "fp16"}
_WITHOUT_HALF = ("gtx-1080-ti", "titan-xp")  # their products in fp16 run at 1/64 of fp32
_BATCH, _IMAGE, _US, _WARM_UP = 12, 224, 1e-6, 5


def read(folder: Path) -> Iterator[TableRow]:
    """Medians of all rows that may be jobs."""
    table = pd.read_csv(folder / FILE)
    table = table[(table["mode"] == "train") & (table["gpus"] == 1) & (table["it"] >= _WARM_UP)]
    groups: Any = table.groupby(["folder", "gpu", "dtype", "model"])["us"].median()
    for number, ((machine, gpu, dtype, model), us) in enumerate(groups.items()):
        if dtype not in _PRECISIONS or (dtype == "half" and _GPUS[gpu] in _WITHOUT_HALF):
            continue
        yield TableRow(
            id=f"iterations-{number:04d}",
            table="iterations",
            name=model,
            gpu=_GPUS[gpu],
            n_gpus=1,
            gpus_per_node=1,
            batch_per_gpu=_BATCH,
            n_accumulated=1,
            step_s=float(us) * _US,
            source=f"torchvision {machine}",
            precision=_PRECISIONS[dtype],
            framework="PyTorch",
            image=_IMAGE,
            layout="nchw",
        )

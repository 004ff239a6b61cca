# pyright: reportGeneralTypeIssues=false
"""The tables of NeuSight (sitar-lab/NeuSight, true fp32 kernels) with the columns of a kernels fit, and their rooflines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from inference.kernels import data as kernels_table, laws as shapes
from prism_jax.cost.kernel_laws import Convolution
from prism_jax.system import catalog

PARTS = ("gemm", "conv", "vector")


def read(folder: Path, part: str) -> pd.DataFrame:
    """Rows with op, gpu, dtype, seconds, sizes, and the authors' split ("" for convolutions)."""
    rows = pd.read_csv(folder / "kernels2" / f"neusight_{part}.csv.gz")
    rows["duration_s"], rows["dtype"] = rows.latency_ms * 1e-3, "fp32"
    match part:
        case "gemm":
            rows = rows.rename(columns={"b": "batch"})
        case "conv":
            rows["op"], rows["split"] = "conv2d", ""
            for name, given in (("height", "hw_in"), ("width", "hw_in"), ("filter_height", "k"), ("filter_width", "k")):
                rows[name] = rows[given]
            rows = rows.rename(columns={"pad": "padding"}).drop(columns=["k"])
        case _:
            rows = rows.rename(columns={"b": "rows", "h": "columns"})
    return rows


def thinned(rows: pd.DataFrame, most: int, seed: int) -> pd.DataFrame:
    """At most `most` rows of every op, GPU and split, drawn without replacement."""
    mixed = rows.sample(frac=1.0, random_state=seed)
    return mixed.groupby(["op", "gpu", "split"]).head(most).sort_index().reset_index(drop=True)


def with_rooflines(rows: pd.DataFrame) -> pd.DataFrame:
    """The same with seconds by FLOPs over peak, bytes over bandwidth, and the longer of the two."""
    tidy, _ = kernels_table.tidy(rows)
    rows = rows.loc[tidy.index].copy()
    for (name, gpu), of in tidy.groupby(["class", "gpu"]).groups.items():
        op = str(name).partition(" | ")[0]
        size = tidy.loc[of, kernels_table.AXES].to_numpy(dtype=np.float64)
        device, flops = catalog.device(str(gpu)), shapes.flops(op, size)
        match shapes.family(op):
            case "gemm":
                m, n, k, batch = size.T[:4]
                moved = 4.0 * batch * (m * k + k * n + m * n)
            case "convolution":
                moved = Convolution(*size.T).hbm_bytes(4.0)
            case _:
                moved, flops = flops, 0.0 * flops
        rows.loc[of, "flops_s"] = flops / device.peak("fp32")
        rows.loc[of, "bytes_s"] = moved / device.hbm_bytes_per_s
    rows["roofline_s"] = rows[["flops_s", "bytes_s"]].max(axis=1)
    return rows

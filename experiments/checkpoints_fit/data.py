"""What the checkpoints model reads: seconds of saves and loads, with their bytes, writers, storage and method.

A row is one checkpoint, or a mean of several: `save_block_s` is what training waits for, `save_total_s` until the last byte is
written, `load_s` until training can go on. Each is one observation; a synchronous save is one, not two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd

from experiments.checkpoints_fit import features as features
from experiments.checkpoints_fit.features import Observation
from experiments.checkpoints_fit.storage import first_and_last, is_async
from inference.data.checks import ROW
from inference.data.columns import ModelColumn
from prism_jax.core.errors import DataError

COLUMNS = (
    ModelColumn("source", ("group", "site", "cluster"), required=True, text=True, strict=True),
    ModelColumn("checkpoint_bytes", ("ckpt", "checkpoint_size", "ckpt_size", "size"), positive=True, strict=True),
    ModelColumn("params_billion", ("params_B", "parameters_billion"), positive=True, strict=True),
    ModelColumn("writers", ("n_writers", "ranks"), strict=True, least=1.0),
    ModelColumn("accelerators", ("gpus", "n_gpus"), strict=True, least=0.0),
    ModelColumn("storage", ("storage_class", "target"), text=True, strict=True),
    ModelColumn("method", ("library", "framework"), text=True, strict=True),
    ModelColumn("mode", ("kind",), text=True, strict=True),
    ModelColumn("save_block_s", ("save_blocking", "blocking", "blocked"), positive=True, strict=True),
    ModelColumn("save_total_s", ("save_total", "save"), positive=True, strict=True),
    ModelColumn("load_s", ("load", "restore"), positive=True, strict=True),
)
BYTES_PER_PARAMETER = 14.0  # 16-bit weights, fp32 master weights and two moments: what a trainer saves
MOST_FEATURES = 400


@dataclass(frozen=True)
class CheckpointsData:
    """Sufficient statistics of log seconds that are linear in their features, and of their residuals from the priors' means.

    Attributes:
        names: of the features; see `features.py`.
        level: 0: a fixed effect, 1: a source, 2: a method, [feature].
        prior_mean, prior_sd: of fixed effects; 0 and 1 of the others, whose spreads are inferred, [feature].
        zz: products of features, [feature, feature]; zr: with residuals, [feature]; rr: of residuals.
        n_obs: observations.
        log_bandwidth: median of log(bytes / second) of all, which the trivial prediction divides by.
        notes: what was assumed.
    """

    names: Annotated[tuple[str, ...], "feature"]
    level: Annotated[np.ndarray, "feature -> 4"]
    prior_mean: Annotated[np.ndarray, "feature"]
    prior_sd: Annotated[np.ndarray, "feature"]
    zz: Annotated[np.ndarray, "feature feature"]
    zr: Annotated[np.ndarray, "feature"]
    rr: float
    n_obs: int
    log_bandwidth: float
    notes: tuple[str, ...] = ()


def from_frame(frame: pd.DataFrame) -> CheckpointsData:
    """Statistics of a checked table.

    Raises:
        DataError: no row has seconds and a size, seconds that contradict each other, or too many sources and methods.
    """
    rows, seconds = observations(frame)
    if not rows:
        raise DataError(
            "no row has seconds (save_block_s, save_total_s or load_s) and a size (checkpoint_bytes or params_billion)"
        )
    design = features.design_of(rows)
    if len(design.names) > MOST_FEATURES:
        raise DataError(f"more than {MOST_FEATURES:,} sources and methods. Are the columns what they should be?")
    z, log_s = design.matrix(rows), np.log(seconds)
    residual = log_s - z @ design.prior_mean - design.offset(rows)
    sizeless = int(sum(row.is_assumed for row in rows))
    note = f"{sizeless:,} observations name no size: {BYTES_PER_PARAMETER:g} bytes per parameter are assumed"
    return CheckpointsData(
        names=design.names,
        level=design.level,
        prior_mean=design.prior_mean,
        prior_sd=design.prior_sd,
        zz=z.T @ z,
        zr=z.T @ residual,
        rr=float(residual @ residual),
        n_obs=len(rows),
        log_bandwidth=float(np.median([row.log_bytes for row in rows] - log_s)),
        notes=(note,) if sizeless else (),
    )


def observations(frame: pd.DataFrame) -> tuple[list[Observation], np.ndarray]:
    """What was saved or loaded, and the seconds of it; rows without a size or without seconds have none.

    Raises:
        DataError: a save that blocks for longer than it takes.
    """
    n_bytes, params = _numbers(frame, "checkpoint_bytes"), 1e9 * _numbers(frame, "params_billion")
    size = np.where(np.isnan(n_bytes), BYTES_PER_PARAMETER * params, n_bytes)
    writers = _numbers(frame, "writers")
    writers = np.where(np.isnan(writers), _numbers(frame, "accelerators"), writers)
    block, total, load = (_numbers(frame, name) for name in ("save_block_s", "save_total_s", "load_s"))
    wrong = block > 1.001 * total
    if wrong.any():
        row = int(np.argmax(wrong))
        number = int(frame[ROW].iloc[row]) if ROW in frame else row + 1
        raise DataError(
            f"row {number}: save_block_s {block[row]:g} is more than save_total_s {total[row]:g}. Correct the row."
        )
    source, storage, method, mode = (_texts(frame, name) for name in ("source", "storage", "method", "mode"))
    out, seconds = [], []
    for row in np.flatnonzero(np.isfinite(size)):
        how = f"{method[row]} {mode[row]}"
        first, last = first_and_last(storage[row], is_async(how))
        whole = total[row] if np.isfinite(total[row]) else (np.nan if is_async(how) else block[row])
        waits = block[row] if np.isfinite(block[row]) and block[row] != whole else np.nan
        for operation, place, value in (("save", last, whole), ("block", first, waits), ("load", last, load[row])):
            if np.isfinite(value):
                one = Observation.of(operation, size[row], writers[row], place, method[row], mode[row], source[row])
                out.append(one if np.isfinite(n_bytes[row]) else one.assumed())
                seconds.append(value)
    return out, np.array(seconds)


def _numbers(frame: pd.DataFrame, name: str) -> np.ndarray:
    return frame[name].to_numpy(dtype=np.float64) if name in frame else np.full(len(frame), np.nan)


def _texts(frame: pd.DataFrame, name: str) -> list[str]:
    return ["" if pd.isna(value) else str(value) for value in frame[name]] if name in frame else [""] * len(frame)

"""Repeatability of collectives: all-reduce in place against out of place, measured back to back on the same A100 nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

MIN_BYTES = 2**20  # below, latency jitter of microseconds dominates


def collective_facts(data: Path) -> dict[str, float]:
    """cv of one nccl-tests figure (mean of 20 calls): half the 16-84% width of the variants' log ratio, over sqrt 2."""
    table = pd.read_csv(data / "collectives" / "allreduce_a100_ib.csv")
    pairs = table[(table.msg_bytes >= MIN_BYTES) & (table.num_gpus > 1)]
    log_ratio = np.log(pairs.time_us_in_place / pairs.time_us_out_of_place)
    low, high = np.quantile(log_ratio, [0.16, 0.84])
    return {"allreduce_pairs": float(len(pairs)), "allreduce_repeat_cv": float(0.5 * (high - low) / np.sqrt(2.0))}

"""What a fit of failures says, for people and for JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...model import Draws
from ...summary import interval
from . import rates as rates
from .data import LEVELS, FailuresData

SIZES = (1024, 16384)  # GPUs of the jobs whose MTBF is stated
MOST_NAMED = 50  # clusters and causes in a report


def describe(data: FailuresData, draws: Draws) -> dict[str, Any]:
    """Mean hours between failures by level, of a new cluster and of those of the table; counts by cause as they were."""
    rng = np.random.default_rng(0)
    average, new = rates.of_levels(data, draws), rates.cluster_rates(data, draws, None, rng)
    size = float(np.median(data.node_size))
    told = [level for level in range(len(LEVELS)) if data.levels[level] > 0.0]
    return {
        "n_clusters": len(data.clusters),
        "n_failures": int(data.count.sum()),
        "node_size": size,
        "mtbf_h": {f"per_{LEVELS[level]}": interval(1.0 / average[:, level]) for level in told},
        "variation_between_clusters": interval(1.0 / np.sqrt(np.asarray(draws["shape"]))),
        "new_cluster": {
            "mtbf_gpu_h": interval(1.0 / rates.per_gpu_h(new, SIZES[0], size)),
            **{f"mtbf_of_{n}_gpus_h": interval(1.0 / (n * rates.per_gpu_h(new, n, size))) for n in SIZES},
        },
        "clusters": _by_cluster(data, draws, rng),
        "causes": {name: int(n) for name, n in zip(data.causes[:MOST_NAMED], data.cause_count, strict=False)},
        "notes": [*data.notes, *_untold(data)],
    }


def _by_cluster(data: FailuresData, draws: Draws, rng: np.random.Generator) -> dict[str, dict[str, float]]:
    out = {}
    for index, name in enumerate(data.clusters[:MOST_NAMED]):
        drawn = rates.cluster_rates(data, draws, name, rng)
        out[name] = interval(1.0 / rates.per_gpu_h(drawn, data.gpus[index], data.node_size[index]))
    return out


def _untold(data: FailuresData) -> list[str]:
    """Which levels the table cannot tell from GPUs."""
    missing = [f"{LEVELS[level]}s" for level in range(len(LEVELS)) if data.levels[level] == 0.0]
    if not missing:
        return []
    return [
        f"failures of {' and '.join(missing)} are not told from those of GPUs: no row has that kind, and sizes do not vary. "
        "Rates then scale with GPUs alone: too short a time between failures of large jobs, and too long a one of small jobs"
    ]

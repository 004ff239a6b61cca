"""How far a prediction moves with what is not known: quantiles under draws of the variability, the same random numbers in each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from jax import Array

from ..job import Job
from ..variability.tree import Variability
from .predict import predict

LEVEL = 0.9


def epistemic_band(
    job: Job,
    draws: Sequence[Variability],
    quantiles: Mapping[str, float],
    *,
    key: Array,
    n_samples: int,
    progress: Callable[[float], None] = lambda _: None,
) -> dict[str, tuple[float, float]]:
    """90 % interval of each quantile of the step time, seconds, over `draws` of the job's variability.

    Args:
        draws: posterior draws; 20 or more for an interval that means something.
        quantiles: name -> probability.
        key: one for all draws, so that Monte Carlo error hardly widens the band.
        progress: called with the share that is done.
    """
    found = []
    for index, draw in enumerate(draws):
        distribution = predict(replace(job, variability=draw), key=key, n_samples=n_samples)
        found.append([distribution.quantile(p) for p in quantiles.values()])
        progress((index + 1) / len(draws))
    low, high = np.quantile(np.array(found), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return {name: (float(low[i]), float(high[i])) for i, name in enumerate(quantiles)}

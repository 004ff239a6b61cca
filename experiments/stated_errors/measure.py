"""How often stated errors and guarantees hold: shares of repeats that differ in their seed alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import jax
import numpy as np

from prism_jax.core.errors import DataError
from prism_jax.job.job import Job
from prism_jax.result.distribution import StepTimeDistribution
from prism_jax.simulate.predict import predict
from prism_jax.variability.families import LogNormal
from prism_jax.variability.family_registry import Mixture

from .closed_form import ClosedForm
from .jobs import mixed_jobs

LEVELS = (0.5, 0.95, 0.99)
WITHIN, P = 1.96, 0.95
SIZES, SPREADS = (1, 8, 64, 256, 1024), (0.05, 0.1, 0.3, 1.0)
BOUNDED = {
    "spread GPUs": ClosedForm(64, LogNormal(0.03)),
    "slow GPUs": ClosedForm(8, Mixture(0.01, 0.02, 1.15, 0.02)),
    "regimes": ClosedForm(64, LogNormal(0.01), LogNormal(0.3)),
}
METHODS = [("brute_force", 16), ("brute_force", 64), ("brute_force", 128), ("brute_force", 512)] + [
    ("symmetric", 64),
    ("symmetric", 512),
]


@dataclass(frozen=True)
class Held:
    """How often a guarantee was stated, and how often it held then."""

    n_seed: int
    n_stated: int
    n_held: int

    @property
    def share(self) -> float:
        """Of the stated ones; one where none was."""
        return self.n_held / self.n_stated if self.n_stated else 1.0


def closed_jobs() -> dict[str, ClosedForm]:
    """Data-parallel jobs of one to 1,024 GPUs that differ by 5 to 100%."""
    return {f"dp {dp}, cv {cv:g}": ClosedForm(dp, LogNormal(cv)) for dp in SIZES for cv in SPREADS}


def scores_against_truth(job: ClosedForm, seeds: Sequence[int]) -> np.ndarray:
    """(found - true) / stated error, by seed and level."""
    exact = job.quantiles_s(LEVELS)
    return np.array([(found - exact) / stated for found, stated in map(_stated, _runs(job.job, seeds))])


def scores_against_brute_force(job: Job, seeds: Sequence[int], n_steps: int) -> np.ndarray:
    """Difference of both methods over what they state together, by seed and level."""
    rows = []
    for seed in seeds:
        found, error = _stated(predict(job, key=jax.random.key(seed)))
        full, full_error = _stated(
            predict(job, key=jax.random.key(500 + seed), n_samples=n_steps, method="brute_force")
        )
        rows.append((found - full) / np.hypot(error, full_error))
    return np.array(rows)


def shares_within(scores: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Share of repeats within 1.96 stated errors: by level, and of all; with the number of repeats."""
    every = np.concatenate(list(scores.values()))
    inside = np.abs(every) <= WITHIN
    by_level = {f"p{100 * p:g}": float(inside[:, i].mean()) for i, p in enumerate(LEVELS)}
    return {**by_level, "all": float(inside.mean()), "repeats": float(inside.size)}


def against_truth(n_seed: int) -> dict[str, np.ndarray]:
    """Scores of all jobs with a closed form."""
    return {name: scores_against_truth(job, own_seeds(name, n_seed)) for name, job in closed_jobs().items()}


def against_brute_force(n_seed: int, n_steps: int) -> dict[str, np.ndarray]:
    """Scores of the jobs of all shapes."""
    return {
        name: scores_against_brute_force(job, own_seeds(name, n_seed), n_steps) for name, job in mixed_jobs().items()
    }


def own_seeds(name: str, n_seed: int) -> range:
    """Seeds of a job: jobs under the same seeds would err together, and their shares vary more than their number says."""
    first = 1000 * (crc32(name.encode()) % 100_000)
    return range(first, first + n_seed)


def held(job: ClosedForm, method: str, n_samples: int, seeds: Sequence[int]) -> Held:
    """How often the bound of the p95 lies above it."""
    exact = float(job.quantiles_s([P])[0])
    bounds = [_bound(found) for found in _runs(job.job, seeds, method=method, n_samples=n_samples)]
    stated = [bound for bound in bounds if bound is not None]
    return Held(len(bounds), len(stated), sum(bound >= exact for bound in stated))


def _runs(job: Job, seeds: Sequence[int], **how: Any) -> Iterator[StepTimeDistribution]:
    return (predict(job, key=jax.random.key(seed), **how) for seed in seeds)


def _stated(found: StepTimeDistribution) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles at `LEVELS` and their stated errors, seconds."""
    return np.array([found.quantile(p) for p in LEVELS]), np.array([found.mc_error(p) for p in LEVELS])


def _bound(found: StepTimeDistribution) -> float | None:
    try:
        return found.guarantee(P).bound_s
    except DataError:
        return None

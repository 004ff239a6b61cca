"""What a chosen plan is worth: scored again beside the job's own plan, on draws that no search has seen.

The plan that looked best is the one whose draws were kindest (winner's curse); new draws know nothing of the choice. Both plans
see the same draws, so that the gain is known better than either time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from ..objective import PlanObjective
from ..plan.plan import ParallelPlan
from ..result.interval import holding
from ..variability.tree import Variability
from .evaluate import Evaluator
from .figures import GainEstimate
from .model_error import model_errors
from .tail import TailScorer

N_SEEDS = 8
N_COLUMN = 512
LEVEL = 0.9
SEED_OFFSET = 50_000  # away from the seeds of every round


def promise(
    evaluator: Evaluator,
    base: ParallelPlan,
    best: ParallelPlan,
    objective: PlanObjective,
    seed: int,
    posterior: Sequence[Variability] = (),
) -> GainEstimate:
    """Scores both plans on new draws, and under each posterior draw of the variability if there are any."""
    pairs = np.stack([_pair(evaluator, base, best, objective, seed + SEED_OFFSET + k, None) for k in range(N_SEEDS)])
    gains = 1.0 - pairs[:, 1] / pairs[:, 0]
    half = float(stdtrit(N_SEEDS - 1, 0.5 + LEVEL / 2) * gains.std(ddof=1) / np.sqrt(N_SEEDS))
    middle = float(gains.mean())
    error = model_errors(evaluator.job, (base, best), seed)
    by_model = _quantiles(1.0 - (1.0 - middle) * error[:, 1] / error[:, 0])
    over = None
    if posterior:
        under = [_pair(evaluator, base, best, objective, seed + SEED_OFFSET, tree) for tree in posterior]
        over = holding(middle, *_wider(_quantiles(np.array([1.0 - own[1] / own[0] for own in under])), half))
    base_s, best_s = (float(value) for value in pairs.mean(axis=0))
    by_chance = (middle - half, middle + half)
    return GainEstimate(base_s, best_s, middle, by_chance, holding(middle, *_wider(by_model, half)), over)


def _quantiles(gains: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(gains, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _wider(interval: tuple[float, float], half: float) -> tuple[float, float]:
    return interval[0] - half, interval[1] + half


def _pair(
    evaluator: Evaluator,
    base: ParallelPlan,
    best: ParallelPlan,
    objective: PlanObjective,
    seed: int,
    variability: Variability | None,
) -> np.ndarray:
    scorer = TailScorer(evaluator, seed, variability)
    return np.array([scorer.value(objective, plan, N_COLUMN) for plan in (base, best)])

"""What a chosen plan is worth: scored again beside the job's own plan, on draws that no search has seen.

The plan that looked best is the one whose draws were kindest (winner's curse); new draws know nothing of the choice. Both plans
see the same draws, so that the gain is known better than either time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from ..objective import PlanObjective
from ..plan.plan import ParallelPlan
from ..result.interval import holding
from ..variability.tree import Variability
from .evaluate import Evaluator
from .tail import TailScorer

N_SEEDS = 8
N_COLUMN = 512
LEVEL = 0.9
SEED_OFFSET = 50_000  # away from the seeds of every round


@dataclass(frozen=True)
class GainEstimate:
    """Gain of a plan over another: 1 - objective / objective of the other.

    Attributes:
        base_s, best_s: objective of the job's own plan and of the chosen one.
        gain: share of the step time that is saved.
        gain_interval: 90 % interval of the gain, Monte Carlo error alone.
        posterior_interval: the same over posterior draws of the variability; None without them.
    """

    base_s: float
    best_s: float
    gain: float
    gain_interval: tuple[float, float]
    posterior_interval: tuple[float, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain object."""
        return asdict(self)


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
    over = None
    if posterior:
        under = [_pair(evaluator, base, best, objective, seed + SEED_OFFSET, tree) for tree in posterior]
        low, high = np.quantile([1.0 - own[1] / own[0] for own in under], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        over = holding(middle, float(low) - half, float(high) + half)
    return GainEstimate(
        float(pairs[:, 0].mean()), float(pairs[:, 1].mean()), middle, (middle - half, middle + half), over
    )


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

"""ShardingReport: which embedding table goes where, and what that is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ....search.sharding.result import RankLoad
from ...codec import INLINE
from ...report import Report
from ..record import RunRecord


@dataclass(frozen=True)
class ShardedJob:
    """The job whose tables were placed; `capacity_bytes` of a GPU's memory are left for tables."""

    name: str
    model: str
    device: str
    n_devices: int
    n_tables: int
    global_batch: int
    capacity_bytes: float


@dataclass(frozen=True)
class ReachedSteps:
    """Steps under one assignment, on draws that chose nothing, with Monte Carlo errors.

    Attributes:
        value, value_error: of the objective, in its unit.
        noise_free_s: step in which every table looks up as many rows as its mean.
    """

    value: float
    value_error: float
    mean_s: float
    mean_error_s: float
    p50_s: float
    p50_error_s: float
    p95_s: float
    p95_error_s: float
    noise_free_s: float


@dataclass(frozen=True)
class BestSharding:
    """The chosen assignment.

    Attributes:
        assignment: table -> how it is held, as `plan.tables` of job files has it: table@3, column:2@0,5, row, dp.
        steps: that it reaches.
        cost_model_s: noise-free step that the cost model says of the plan with these tables.
    """

    assignment: Mapping[str, str]
    steps: Annotated[ReachedSteps, INLINE]
    cost_model_s: float


@dataclass(frozen=True)
class ShardingReport(Report):
    """What every sharder reaches, what the chosen assignment is worth, and where the tables are.

    Attributes:
        objective, objective_unit: what was minimised.
        baselines: method -> steps: the job's own assignment (`own`) and the sharders; those that fit into memory.
        does_not_fit: methods that over-fill a GPU.
        lower_bound, gap: of the objective: what no assignment is below, and how far above it the chosen one is, as a share.
        noise_free_lower_bound_s, noise_free_gap: the same of the noise-free step.
        gain_over: method that the gain is over: the job's own assignment, or the best sharder if that does not fit.
        gain, gain_error, gain_interval: fall of the objective, its Monte Carlo error, and where 90 % of estimates from as many
            fresh draws fall.
        best_sharder, gain_over_best_sharder, gain_over_best_sharder_interval: the same against the best of the sharders.
        ranks: [rank].
        everywhere: tables that every GPU holds, by rows or as copies -> row or dp.
        spread: table -> standard deviation over mean of a step's look-ups, from step to step.
        spread_assumed: whether some of them are an assumption.
    """

    kind: ClassVar[str] = "sharding"
    picture: ClassVar[str] = "prism_jax.plot.placing.sharding:draw"

    job: ShardedJob
    objective: str
    objective_unit: str
    best: BestSharding
    baselines: Mapping[str, ReachedSteps]
    does_not_fit: tuple[str, ...]
    lower_bound: float
    gap: float
    noise_free_lower_bound_s: float
    noise_free_gap: float
    gain_over: str
    gain: float
    gain_error: float
    gain_interval: tuple[float, float]
    best_sharder: str
    gain_over_best_sharder: float
    gain_over_best_sharder_interval: tuple[float, float]
    ranks: tuple[RankLoad, ...]
    everywhere: Mapping[str, str]
    spread: Mapping[str, float]
    spread_assumed: bool
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]

    def lines(self) -> list[str]:
        from ...text.placing.sharding import lines

        return lines(self)

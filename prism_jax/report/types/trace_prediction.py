"""Reports of predictions from recorded traces: of steps that were not recorded, and of what-ifs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ...recorded.score import CriticalShares, HeldOutScore, MomentMatch, Quantiles, ReplayErrors, SplitScore
from ..codec import INLINE, WHERE_KNOWN, Key
from ..report import Report
from .record import RunRecord
from .trace import TraceFacts


@dataclass(frozen=True)
class Asked:
    """The job that is predicted, where it is not the recorded one."""

    n_replica: int | None = None
    n_micro_batch: int | None = None

    def described(self) -> str:
        """As "16 replicas, 12 micro-batches"; empty for the recorded job."""
        counts = {"replica": self.n_replica, "micro-batch": self.n_micro_batch}
        plural = {"replica": "replicas", "micro-batch": "micro-batches"}
        return ", ".join(f"{n} {name if n == 1 else plural[name]}" for name, n in counts.items() if n is not None)


@dataclass(frozen=True)
class Intervals3:
    """Bounds of p50, p95 and p99."""

    p50: tuple[float, float]
    p95: tuple[float, float]
    p99: tuple[float, float]


@dataclass(frozen=True)
class PredictedSteps:
    """The long-run distribution: quantiles, their interval from the few recorded steps, their Monte Carlo error."""

    p50: float
    p95: float
    p99: float
    interval: Intervals3
    mc_error: Quantiles
    level: float


@dataclass(frozen=True)
class ShapeFacts:
    """Family chosen for the factor that micro-batches share, and how families fared; empty where there is none."""

    chosen: Annotated[str | None, WHERE_KNOWN] = None
    held_out_log_density: Annotated[Mapping[str, float] | None, WHERE_KNOWN] = None


@dataclass(frozen=True)
class EvidenceFacts:
    """Which shared factors were found, and the waits that no rule states.

    Attributes:
        variance_shares: level -> share of the variance of compute.
        p_values: of a step effect and of ranks.
        strata: level -> how many times as much its means vary as independent parts would make them.
    """

    variance_shares: Mapping[str, float]
    p_values: Mapping[str, float]
    strata: Mapping[str, float]
    shape: ShapeFacts
    has_micro_batches: bool
    agreement: MomentMatch
    observed_waits: tuple[str, ...]
    unexplained_waits: int


@dataclass(frozen=True)
class CheckFacts:
    """Averages over splits; what follows `score` is there where there are several."""

    score: Annotated[HeldOutScore, INLINE]
    p95_error_median: Annotated[float | None, WHERE_KNOWN] = None
    p95_abs_error_median: Annotated[float | None, WHERE_KNOWN] = None
    ks_distance_median: Annotated[float | None, WHERE_KNOWN] = None
    splits: Annotated[tuple[SplitScore, ...] | None, WHERE_KNOWN] = None


@dataclass(frozen=True)
class TracePredictionReport(Report):
    """Distribution of the steps that were not recorded, and how predictions fared on steps held out.

    Attributes:
        fit_replicas: replicas that the check fits on; None for all.
        n_train, n_test: steps that the check fits on and predicts; n_test is 0 without a check.
        doubts: why not to trust the prediction, one sentence each.
        evidence, replay: of a trace.
        check: absent without a check.
    """

    kind: ClassVar[str] = "trace-prediction"
    picture: ClassVar[str] = "prism_jax.plot.trace_prediction:draw"

    info: Annotated[TraceFacts, INLINE]
    asked: Asked
    fit_replicas: int | None
    n_train: int
    n_test: int
    steps_s: PredictedSteps
    record: Annotated[RunRecord, INLINE]
    doubts: tuple[str, ...] = ()
    evidence: Annotated[EvidenceFacts | None, WHERE_KNOWN] = None
    replay: Annotated[ReplayErrors | None, WHERE_KNOWN] = None
    check: Annotated[CheckFacts | None, INLINE, WHERE_KNOWN] = None

    def lines(self) -> list[str]:
        from ..text.trace.prediction import lines

        return lines(self)


@dataclass(frozen=True)
class WhatIfReport(Report):
    """Who slowed a recorded job down, and what changes would bring.

    Attributes:
        slowdown: mean recorded over mean ideal step.
        worst_workers_share, last_stage_share: of the lost time; None if nothing is lost.
        recorded_s, ideal_s: mean step as recorded without host gaps, and without stragglers.
        by_op_type, by_rank, by_stage, by_dp: slowdown that each alone causes.
        changes: what is changed -> step times; the first is the job as it is.
        doubts: why not to trust the prediction of the job as it is, one sentence each.
    """

    kind: ClassVar[str] = "what-if"
    picture: ClassVar[str] = "prism_jax.plot.trace.workers:draw"

    info: Annotated[TraceFacts, INLINE]
    slowdown: Annotated[float, Key("S")]
    worst_workers_share: Annotated[float | None, Key("M_W")]
    last_stage_share: Annotated[float | None, Key("M_S")]
    recorded_s: float
    ideal_s: float
    by_op_type: Mapping[str, float]
    by_rank: Mapping[str, float]
    by_stage: Mapping[str, float]
    by_dp: Mapping[str, float]
    worst_ranks: tuple[int, ...]
    criticality: CriticalShares
    changes: Mapping[str, Quantiles]
    record: Annotated[RunRecord, INLINE]
    doubts: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        from ..text.trace.what_if import lines

        return lines(self)

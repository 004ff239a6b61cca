"""RunReport: when a training run is done, with what probability, and where its time goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ....horizon.outcome import Change, Response
from ...report import Report
from ..prediction import JobFacts
from ..record import RunRecord


@dataclass(frozen=True)
class CauseFacts:
    """One cause of interruptions of this job: events per hour, and the standard deviation of their rate's logarithm."""

    cause: str
    per_hour: float
    log_sd: float
    noticed_s: float
    nodes_lost: float


@dataclass(frozen=True)
class ReliabilityFacts:
    """What interrupts the job; `mttf_h`: mean hours between interruptions, None where there are none."""

    name: str
    source: str
    mttf_h: float | None
    causes: tuple[CauseFacts, ...]
    slow_phases: tuple[str, ...]


@dataclass(frozen=True)
class CheckpointFacts:
    """Checkpoints: steps and seconds of work between two, whether these were chosen here, and what one costs."""

    interval_steps: int
    interval_s: float
    is_chosen: bool
    blocking_s: float
    background_s: float
    load_s: float
    source: str


@dataclass(frozen=True)
class RecoveryFacts:
    """What follows an interruption; `spares_enough_prob`: share of the time that the spare nodes suffice."""

    restart_s: float
    outage_s: float
    policy: str
    spares: int
    spares_enough_prob: float


@dataclass(frozen=True)
class RunTime:
    """Wall time, seconds."""

    mean: float
    p5: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class DeadlineFacts:
    """Probability that the run is done by the deadline, and its Monte Carlo error."""

    deadline_s: float
    prob: float
    mc_error: float


@dataclass(frozen=True)
class OutcomeFacts:
    """The run in many worlds.

    Attributes:
        time_s, mc_error_s: over chance and over what is not known, and the Monte Carlo error.
        chance_s: over chance alone, rates and the level of the step being as stated.
        expected_interval_s: 90 % interval of the expected time over what is not known: rates, and the level of the step.
        goodput, goodput_interval: mean share of the wall time in steps that are kept, and 90 % of the worlds.
        seconds: bucket -> mean seconds; they add up to the mean time.
        waiting_s: part of the bucket `failure`: for nodes to come back.
        interruptions: mean number.
        expected_s: mean time by the exact form, which takes rates as constant and nodes as there when they are needed.
        extra_s: mean time above that of steps without variability, failures and checkpoints.
        interval_slope, mtbf_slope: seconds of expected time by second of the interval, and by second of the mean time to failure.
    """

    time_s: RunTime
    mc_error_s: RunTime
    chance_s: RunTime
    expected_interval_s: tuple[float, float]
    goodput: float
    goodput_interval: tuple[float, float]
    seconds: Mapping[str, float]
    waiting_s: float
    interruptions: float
    expected_s: float
    extra_s: float
    interval_slope: float
    mtbf_slope: float
    n_worlds: int


@dataclass(frozen=True)
class RunReport(Report):
    """When a training run is done, with what probability, and where its time goes.

    Attributes:
        verdict: "predicted"; "unknown" where nothing is said of failures: then `outcome` is None and `response` is the answer.
        n_tokens: samples of the steps, in the job's own unit.
        step_s, noise_free_step_s: mean step, and step without variability.
        assumed: what was not stated, and what was taken instead.
        changes: what would save most, first.
        response: over the mean time between failures.
    """

    kind: ClassVar[str] = "run"
    picture: ClassVar[str] = "prism_jax.plot.run:draw"

    job: JobFacts
    verdict: str
    n_steps: int
    n_tokens: float
    step_s: float
    noise_free_step_s: float
    reliability: ReliabilityFacts | None
    checkpoint: CheckpointFacts
    recovery: RecoveryFacts
    outcome: OutcomeFacts | None
    deadline: DeadlineFacts | None
    changes: tuple[Change, ...]
    response: tuple[Response, ...]
    assumed: tuple[str, ...]
    notes: tuple[str, ...]
    seed: int
    record: RunRecord

    def lines(self) -> list[str]:
        from ...text.horizon.run import lines

        return lines(self)

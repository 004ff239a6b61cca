"""Advises what to change first, by the expected time that each change would save, with two levels of recovery in closed form.

A copy in memory serves interruptions that lose no node, a remote one those that do. Work is done in intervals of D, each followed
by a copy into memory; every k-th is written to storage, too. A soft interruption (rate λ_s, outage R_s) loses the interval, a
hard one (λ_h, R_h) all intervals since the last remote copy; either may strike during an outage. With λ = λ_s + λ_h, p = λ_s / λ,
an interval and its copies of span s, q = e^{-λs}, x = 1 - e^{-λR_s}, and the chance β = (1 - x) / (1 - x p) that a soft outage
ends before a hard interruption, the chance that an interval is done before a hard interruption is r = q / (1 - (1 - q) p β), and
k intervals take

    E = (r^{-k} - 1) / (1 - r) · (c + (1 - r) (e^{λR_h} - 1) / λ)
    c = ((1 - q) + (1 - q) p x / (1 - x p)) / (λ (1 - (1 - q) p β))

which for p = 0 and k = 1 is the form of `run.py`. The wait for the remote copy is spread over its k intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from scipy.optimize import minimize_scalar

from .outcome import Response, RunChange
from .reliability import HOUR_S, Hazard, of_mtbf
from .run import TrainingRun
from .steps import StepSum

T = TypeVar("T")
MOST_INTERVALS = 4096  # between two remote copies
HOPELESS = 500.0  # logarithm of a time that nobody waits for


@dataclass(frozen=True)
class TwoLevels:
    """Settings of both levels, all in one unit of time.

    Attributes:
        soft_rate, hard_rate: interruptions per time that lose no node, and that lose some.
        local_blocking, remote_blocking: time that training waits for a copy into memory, and for a remote one.
        soft_outage, hard_outage: from an interruption to the first new step.
        soft_noticed, hard_noticed: from an interruption to the outage, in which no other strikes.
    """

    soft_rate: float
    hard_rate: float
    local_blocking: float
    remote_blocking: float
    soft_outage: float
    hard_outage: float
    soft_noticed: float = 0.0
    hard_noticed: float = 0.0

    def expected_time(self, work: float, interval: float, per_remote: int) -> float:
        """Expected wall time of `work`; infinite where it does not end in practice.

        Args:
            interval: of work between copies into memory.
            per_remote: intervals between remote copies.
        """
        span = interval + self.local_blocking + self.remote_blocking / per_remote
        rate = self.soft_rate + self.hard_rate
        if rate == 0.0:
            return work / interval * span
        p = self.soft_rate / rate
        fails, again = -np.expm1(-rate * span), -np.expm1(-rate * self.soft_outage)
        over = (1.0 - again) / (1.0 - again * p)
        tries = 1.0 - fails * p * over
        hard = fails * (1.0 - p * over) / tries  # 1 - r: an interval ends in a hard interruption
        once = (fails + fails * p * again / (1.0 - again * p)) / (rate * tries)
        with np.errstate(over="ignore", divide="ignore"):
            each = once + hard * np.expm1(rate * self.hard_outage) / rate
            rounds = np.expm1(-per_remote * np.log1p(-hard)) / hard if hard > 1e-14 else float(per_remote)
        noticed = 1.0 + self.soft_rate * self.soft_noticed + self.hard_rate * self.hard_noticed
        return float(work / (interval * per_remote) * rounds * each * noticed)

    def best(self, least_remote: float = 0.0) -> tuple[float, int]:
        """Interval and intervals per remote copy of the least expected time.

        Args:
            least_remote: work between remote copies at least: the last one has to be loadable.
        """
        found = []
        for k in np.unique(np.geomspace(1, MOST_INTERVALS, 49).astype(int)).tolist():
            copies = max(self.local_blocking + self.remote_blocking / k, 1e-9)
            least = max(least_remote / k, copies * 1e-3)
            told = minimize_scalar(
                self._log_time, args=(k,), bounds=(np.log(least), np.log(least) + 21.0), method="bounded"
            )
            found.append((float(told.fun), float(np.exp(told.x)), k))  # type: ignore[attr-defined]
        _, interval, k = min(found)
        return interval, k

    def _log_time(self, log_interval: float, per_remote: int) -> float:
        """Logarithm of the time of one unit of work; where it does not end, something large that grows with the interval."""
        time = self.expected_time(1.0, float(np.exp(log_interval)), per_remote)
        return min(float(np.log(time)), HOPELESS + log_interval)


def two_levels_of(run: TrainingRun) -> TwoLevels | None:
    """Levels of the run with copies in memory and its checkpoints; None where a copy's time is unknown or nothing is soft."""
    copy_s, checkpoint = run.checkpoint.memory_s, run.checkpoint
    hazards = [(hazard, hazard.rate_h(run.n_gpus, run.node_size) / HOUR_S) for hazard in run.reliability.hazards]
    soft, hard = ([(h, rate) for h, rate in hazards if (h.nodes_lost == 0.0) == is_soft] for is_soft in (True, False))
    soft_rate, hard_rate = (sum(rate for _, rate in kind) for kind in (soft, hard))
    if copy_s is None or soft_rate == 0.0:
        return None
    soft_s, hard_s = (
        sum(h.noticed_s * rate for h, rate in kind) / whole if whole > 0.0 else 0.0
        for kind, whole in ((soft, soft_rate), (hard, hard_rate))
    )
    return TwoLevels(
        soft_rate,
        hard_rate,
        copy_s,
        0.0 if checkpoint.background_s > 0.0 else checkpoint.blocking_s,
        run.outage_s - checkpoint.load_s + copy_s,
        run.outage_s + checkpoint.background_s,
        soft_s,
        hard_s,
    )


def two_level_time_s(run: TrainingRun) -> tuple[float, float, int] | None:
    """Expected seconds of the run with two levels, the interval and the intervals per remote copy; None as above.

    Notes: as in `TrainingRun.expected_s`, with planned stops as a share of the work and slow phases as their mean pace.
    """
    levels = two_levels_of(run)
    if levels is None:
        return None
    interval_s, k = levels.best(max(run.checkpoint.background_s - run.checkpoint.blocking_s, 0.0))
    interval_s = max(interval_s, run.steps.mean_s)
    pace = run.slowdown + run.recovery.planned_share
    return levels.expected_time(run.n_steps * run.steps.mean_s * pace, interval_s, k), interval_s, k


MTBF_H = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
LEAST_SHARE = 1e-3  # of the expected time; less is not worth a line


def changes(run: TrainingRun) -> list[RunChange]:
    """Lists changes that would shorten the run, most first; changes are alone, so that savings do not add up."""
    now_s = float(run.expected_s())
    found = [RunChange(what, now_s - float(other.expected_s())) for what, other in _others(run)]
    found += [RunChange(what, now_s - expected_s) for what, expected_s in _with_a_copy_in_memory(run)]
    return sorted((one for one in found if one.saves_s >= LEAST_SHARE * now_s), key=lambda one: -one.saves_s)


def _others(run: TrainingRun) -> Iterator[tuple[str, TrainingRun]]:
    checkpoint, recovery, reliability = run.checkpoint, run.recovery, run.reliability
    if checkpoint.interval_s is not None:
        best = replace(run, checkpoint=replace(checkpoint, interval_s=None))
        yield f"checkpoint every {best.interval_s:,.0f} s instead of {run.interval_s:,.0f} s", best
    if checkpoint.blocking_s > 0.0:
        yield "make checkpoints block half as long", replace(run, checkpoint=_halved(checkpoint, "blocking_s"))
    if run.outage_s > 0.0:
        yield "restart in half the time", replace(run, recovery=_halved(recovery, "restart_s", "swap_s"))
        if checkpoint.load_s > 0.0:
            yield "load in half the time", replace(run, checkpoint=_halved(checkpoint, "load_s"))
    for hazard in reliability.hazards:
        seldom = _halved(hazard, "per_gpu_h", "per_node_h", "per_job_h")
        yield f"halve failures: {hazard.cause}", _with_hazard(run, hazard, seldom)
        if hazard.noticed_s > 0.0:
            sooner = _halved(hazard, "noticed_s")
            yield f"notice in half the time: {hazard.cause}", _with_hazard(run, hazard, sooner)
    if reliability.slow_phases:
        yield "no slow phases", replace(run, reliability=replace(reliability, slow_phases=()))
    if run.steps.mean_s > run.steps.noise_free_s:
        yield "no stragglers: steps without variability", replace(run, steps=StepSum.fixed(run.steps.noise_free_s))
    if recovery.planned:
        yield "no planned stops", replace(run, recovery=replace(recovery, planned=()))


def _halved(of: T, *names: str) -> T:
    """Halves some fields; one that is None stays."""
    values = {name: getattr(of, name) for name in names}
    return replace(of, **{name: value / 2 for name, value in values.items() if value is not None})  # pyright: ignore[reportArgumentType, reportCallIssue]


def _with_hazard(run: TrainingRun, hazard: Hazard, other: Hazard) -> TrainingRun:
    hazards = tuple(other if one is hazard else one for one in run.reliability.hazards)
    return replace(run, reliability=replace(run.reliability, hazards=hazards))


def _with_a_copy_in_memory(run: TrainingRun) -> Iterator[tuple[str, float]]:
    """Restart from memory where no node is lost, as far as it is known what a copy takes."""
    if (found := two_level_time_s(run)) is not None:
        expected_s, interval_s, k = found
        every = f"every {interval_s:,.0f} s, to storage every {k:,}th" if k > 1 else f"every {interval_s:,.0f} s"
        yield f"load from memory where no node is lost: copy {every}", expected_s


def response(run: TrainingRun, mtbf_h: Sequence[float] = MTBF_H) -> list[Response]:
    """The run over the mean time between failures, for a job of which it is not known."""
    found = []
    for hours in mtbf_h:
        own = replace(run, reliability=of_mtbf(hours, run.n_gpus))
        expected_s = float(own.expected_s())
        found.append(Response(hours, own.interval_s, expected_s, own.n_steps * own.steps.mean_s / expected_s))
    return found

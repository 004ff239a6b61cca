"""What to change first: the expected time that each change would save, by the exact form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from .outcome import Change, Response
from .reliability import of_mtbf
from .run import TrainingRun
from .steps import StepSum
from .two_levels import two_level_time_s

MTBF_H = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
LEAST_SHARE = 1e-3  # of the expected time; less is not worth a line


def changes(run: TrainingRun) -> list[Change]:
    """What would shorten the run, most first; changes are alone, so that savings do not add up."""
    now_s = float(run.expected_s())
    found = [Change(what, now_s - float(other.expected_s())) for what, other in _others(run)]
    found += [Change(what, now_s - expected_s) for what, expected_s in _with_a_copy_in_memory(run)]
    return sorted((one for one in found if one.saves_s >= LEAST_SHARE * now_s), key=lambda one: -one.saves_s)


def _others(run: TrainingRun) -> Iterator[tuple[str, TrainingRun]]:
    checkpoint, recovery, reliability = run.checkpoint, run.recovery, run.reliability
    if checkpoint.interval_s is not None:
        best = replace(run, checkpoint=replace(checkpoint, interval_s=None))
        yield f"checkpoint every {best.interval_s:,.0f} s instead of {run.interval_s:,.0f} s", best
    if checkpoint.blocking_s > 0.0:
        yield (
            "make checkpoints block half as long",
            replace(run, checkpoint=replace(checkpoint, blocking_s=checkpoint.blocking_s / 2)),
        )
    if run.outage_s > 0.0:
        halved = replace(
            recovery, restart_s=recovery.restart_s / 2, swap_s=None if recovery.swap_s is None else recovery.swap_s / 2
        )
        yield "restart in half the time", replace(run, recovery=halved)
        if checkpoint.load_s > 0.0:
            yield "load in half the time", replace(run, checkpoint=replace(checkpoint, load_s=checkpoint.load_s / 2))
    for hazard in reliability.hazards:
        halved = replace(
            hazard,
            per_gpu_h=hazard.per_gpu_h / 2,
            per_node_h=hazard.per_node_h / 2,
            per_job_h=hazard.per_job_h / 2,
        )
        others = tuple(halved if one is hazard else one for one in reliability.hazards)
        yield f"halve failures: {hazard.cause}", replace(run, reliability=replace(reliability, hazards=others))
        if hazard.noticed_s > 0.0:
            sooner = tuple(
                replace(one, noticed_s=one.noticed_s / 2) if one is hazard else one for one in reliability.hazards
            )
            what = f"notice in half the time: {hazard.cause}"
            yield what, replace(run, reliability=replace(reliability, hazards=sooner))
    if reliability.slow_phases:
        yield "no slow phases", replace(run, reliability=replace(reliability, slow_phases=()))
    if run.steps.mean_s > run.steps.noise_free_s:
        yield "no stragglers: every step without variability", replace(run, steps=StepSum.fixed(run.steps.noise_free_s))
    if recovery.planned:
        yield "no planned stops", replace(run, recovery=replace(recovery, planned=()))


def _with_a_copy_in_memory(run: TrainingRun) -> Iterator[tuple[str, float]]:
    """Restart from memory where no node is lost, as far as it is known what a copy takes."""
    told = two_level_time_s(run)
    if told is not None:
        expected_s, interval_s, k = told
        every = f"every {interval_s:,.0f} s, to storage every {k:,}th" if k > 1 else f"every {interval_s:,.0f} s"
        yield f"load from memory where no node is lost: copy {every}", expected_s


def response(run: TrainingRun, mtbf_h: Sequence[float] = MTBF_H) -> list[Response]:
    """The run over the mean time between failures, for a job of which it is not known."""
    return [_at(run, hours) for hours in mtbf_h]


def _at(run: TrainingRun, hours: float) -> Response:
    own = replace(run, reliability=of_mtbf(hours, run.n_gpus))
    expected_s = float(own.expected_s())
    return Response(hours, own.interval_s, expected_s, own.n_steps * own.steps.mean_s / expected_s)

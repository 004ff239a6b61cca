"""One run of a log: what its head predicts against what was measured, the verdict, causes, and what was assumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import exp, log
from typing import Any, TypeAlias

import numpy as np

from ..core.errors import PrismError
from ..job.job import Job
from ..launch.head import Head
from ..launch.head_job import HeadJob
from ..launch.said import VERL
from ..launch.stated import StatedJob, whole
from .log_causes import Possibility, possibilities
from .log_report import (
    INSIDE,
    NETWORK,
    NO_JOB,
    NO_STEPS,
    OUTSIDE,
    SICK,
    Assumption,
    LogRun,
    MeasuredSteps,
    PredictedStep,
    StepCause,
    TimedPart,
)

MOST_CAUSES = 2
SICK_BOUNDS = (
    2.0  # distances between the median and the upper bound: 1.64 x 2 = 3.3 standard deviations of the logarithm
)
SICK_TIMES = (2.0, 8.0)  # the prediction; chosen in sight of the open logs
SHOWN_SHARE = 0.3  # of the difference that exchanges of gradients take where a network is to blame
Made: TypeAlias = tuple[StatedJob | None, HeadJob | None, PrismError | None]


def run_of(head: Head, made: Made, measured: PrismError | MeasuredSteps, seed: int) -> LogRun:
    """A run with everything that there is to say about it.

    Args:
        made: fields of the head, its job, and why there is none.
        measured: its steps, or why there are none.
        seed: of the prediction.
    """
    stated, found, reason = made
    steps = None if isinstance(measured, PrismError) else measured
    run = LogRun(
        first_line=head.first_line,
        last_line=head.last_line,
        trainer=head.trainer or "Megatron-LM",
        verdict=NO_STEPS if steps is None else NO_JOB,
        reason=str(reason or measured if reason or steps is None else ""),
        measured=steps,
        job=_fields(stated, found),
        read_from={} if stated is None else {path: one.comment for path, one in stated.fields.items()},
        not_modelled=() if stated is None else tuple(f"{one.name} = {one.text[:40]}" for one in stated.not_modelled),
        notes=() if stated is None else tuple(stated.notes),
        printed=_printed(head),
    )
    if found is None:
        return run
    return _with_prediction(run, head, found, seed)


def _fields(stated: StatedJob | None, found: HeadJob | None) -> dict[str, Any]:
    """Fields of the job by path, with what replaces some of them."""
    if found is not None:
        return dict(_flat(found.document.data, ""))
    return {} if stated is None else {path: one.value for path, one in stated.fields.items()}


def _flat(data: Mapping[str, Any], front: str) -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{front}{name}.")
        elif front or name != "name":
            yield f"{front}{name}", value


def _printed(head: Head) -> dict[str, Any]:
    """Numbers that the log prints besides the steps."""
    params = next(iter(head.params.values()), None)
    used = {name.removeprefix("most_"): value for name, value in head.most.items() if name.endswith("_bytes")}
    named = {name: int(head.facts[name].text) for name in ("grad_accum",) if name in head.facts}
    return {**({"params_first_rank": int(params.text)} if params else {}), **used, **named}


def _with_prediction(run: LogRun, head: Head, found: HeadJob, seed: int) -> LogRun:
    from .predicted_log import either, predictions_of  # here, so that logs without a job do not wait for JAX

    doubts, job = found.stated.doubts, found.job
    try:
        own = either(job, found.stated.either, doubts, seed)
    except PrismError as error:
        return replace(run, reason=f"the job cannot be simulated: {error}")
    notes = [*run.notes, *_memory(head, job)]
    if run.measured is None:
        return replace(run, predicted=own, assumed=_assumed(found, {}, own), notes=tuple(notes))
    training_s = _training_s(head)
    seconds = training_s or run.measured.median_s
    known = predictions_of(_possible(head, job, own, seconds), doubts, seed)
    inside = own.low_s <= seconds <= own.high_s
    causes = () if inside else _causes(known, own, seconds)
    explained = any(one.explains for one in causes)
    is_of_log = not found.stated.refused  # a model that somebody else describes may be another
    return replace(
        run,
        predicted=own,
        compared_s=training_s,
        verdict=INSIDE if inside else SICK if is_of_log and not explained and _is_far_above(own, seconds) else OUTSIDE,
        causes=causes,
        assumed=_assumed(found, known, own),
        timed=_timed(head, own),
        notes=tuple(notes),
    )


def _possible(head: Head, job: Job, own: PredictedStep, seconds: float) -> list[Possibility]:
    """Possible other causes; no network where the log times the exchange of gradients, and it is little of the difference."""
    found = possibilities(job, over_ssh=head.has_hosts and len(head.hosts) > 1)
    spent = [_median(head, name) for name in ("all-grads-sync", "params-all-gather")]
    if spent[0] is None or job.plan.pp > 1 or sum(one or 0.0 for one in spent) > SHOWN_SHARE * (seconds - own.p50_s):
        return found
    return [one for one in found if not one.of_network or one.text.startswith("network between nodes at")]


def _median(head: Head, timer: str) -> float | None:
    """Median of what a part of a step took after the first steps, seconds."""
    times = head.timers.get(timer)
    return float(np.median(np.array(times)[min(3, len(times) // 4) :])) if times else None


def _training_s(head: Head) -> float | None:
    """Seconds of one actor update, of a trainer whose step is more than training (verl); None for all others."""
    update, actor = _median(head, "update_actor"), "verl.actor_rollout_ref.actor"
    if update is None or head.trainer != VERL:
        return None
    samples, each = (
        whole(head.said("verl.data.train_batch_size"), 1),
        whole(head.said(f"{actor}.ppo_mini_batch_size"), 1),
    )
    epochs = whole(head.said(f"{actor}.ppo_epochs"), 1) or 1
    return update / max(epochs * (samples // each if samples and each else 1), 1)


PARTS = {
    "forward and backward": ("forward-backward",),
    "exchange of gradients and parameters": ("all-grads-sync", "params-all-gather"),
    "optimizer": ("optimizer",),
}  # part -> timers of Megatron-LM that it is the sum of


def _timed(head: Head, own: PredictedStep) -> tuple[TimedPart, ...]:
    """Parts of the step as the log times them, next to those that are predicted."""
    exchange_s, optimizer_s = own.ends_s
    known = dict(zip(PARTS, (own.p50_s - exchange_s - optimizer_s, exchange_s, optimizer_s), strict=True))
    spent = {name: [_median(head, one) for one in timers] for name, timers in PARTS.items()}
    return tuple(
        TimedPart(name, sum(one or 0.0 for one in spent[name]), known[name])
        for name in PARTS
        if any(one is not None for one in spent[name])
    )


def _is_far_above(own: PredictedStep, seconds: float) -> bool:
    """Whether a step is so long that one healthy run in a thousand is: twice as far from the median as the bound is.

    Where the evidence is good that is less than twice the prediction, and where it is thin more than eight times: neither counts.
    """
    least, most = SICK_TIMES
    return log(seconds / own.p50_s) > min(max(SICK_BOUNDS * log(own.high_s / own.p50_s), log(least)), log(most))


def _causes(known: Mapping[str, PredictedStep], own: PredictedStep, measured_s: float) -> tuple[StepCause, ...]:
    """Possibilities that come nearest to the measured step, and nearer than the assumed one."""

    def apart(seconds: float) -> float:
        return abs(log(seconds / measured_s))

    nearer = [(apart(one.p50_s), text, one) for text, one in known.items() if apart(one.p50_s) < 0.9 * apart(own.p50_s)]
    return tuple(
        StepCause(text, one.p50_s, one.low_s <= measured_s <= one.high_s)
        for _, text, one in sorted(nearer)[:MOST_CAUSES]
    )


def _memory(head: Head, job: Job) -> list[str]:
    """Measured memory overrules what is computed."""
    try:
        fits = job.fits
    except PrismError as error:
        return [str(error)]
    if fits:
        return []
    used = max(head.most.get("most_allocated_bytes", 0.0), head.most.get("most_reserved_bytes", 0.0))
    what = f"the log prints {used / 2**30:.1f} GiB" if used else "it ran"
    return [f"its memory is computed as more than the device has, but {what}: the run counts"]


def _assumed(found: HeadJob, known: Mapping[str, PredictedStep], own: PredictedStep) -> tuple[Assumption, ...]:
    """Assumptions on what the head does not state, the most important first."""
    stated, job = found.stated, found.job
    open_ = [
        Assumption(
            f"{one.name.removeprefix('software.')} {one.values[0]}, or {', '.join(map(str, one.values[1:]))}",
            tuple(exp(ratio) - 1.0 for ratio in one.log_ratio[1:]),
        )
        for one in job.open_fields
        if one.name != "cluster.network"  # said of the network that is assumed
    ]
    half, twice = (known.get(f"network between nodes at {words} its bandwidth") for words in ("half", "twice"))
    said = [Assumption(text) for text in stated.assumed]
    if half is not None and twice is not None:
        change, at = (half.p50_s / own.p50_s - 1.0, twice.p50_s / own.p50_s - 1.0), (half.p50_s, twice.p50_s)
        said = [Assumption(one.text, change, *at) if one.text.startswith(NETWORK) else one for one in said]
    said += [Assumption(f"{name} {value}, or as usual") for name, value in stated.either]
    doubts = [Assumption(text, (exp(-sd) - 1.0, exp(sd) - 1.0)) for text, sd in stated.doubts]
    return tuple(sorted([*said, *doubts, *open_], key=lambda one: -max(map(abs, one.change), default=0.0)))

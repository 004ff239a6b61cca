"""Finds who slowed a recorded job down, and what a change would bring; what `prism-jax trace what-if` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Annotated

from ..core.errors import DataError
from ..core.processes import Progress, silent
from ..core.report import RunRecord
from ..core.use_case import UNRECORDED, Option, OptionGroup, use_case
from ..trace.step_log import without_warm_up
from ..trace.trace import Trace
from .prediction import TracePrediction, doubts
from .prediction_report import WhatIfReport
from .recorded_job import RecordedJob
from .report import CriticalShares, Quantiles
from .trace_facts import Meta, StepDraws, TraceFile, recorded_ops, trace_facts

if TYPE_CHECKING:
    from ..explain.types import Stragglers

LONGEST = 20  # characters of two ranks, or a rank and a factor
MOST = 8  # ranks that a message lists


def slower_of(option: str, texts: Sequence[str]) -> list[tuple[int, float]]:
    """Ranks and factors of texts such as "3:1.2".

    Raises:
        DataError: one is not a rank and a factor.
    """
    found: list[tuple[int, float]] = []
    for text in texts:
        rank, _, factor = text.partition(":")
        try:
            slow = float(factor)
        except ValueError:
            slow = 0.0
        if not rank.isdecimal() or len(text) > LONGEST or not 0.0 < slow < float("inf"):
            raise DataError(f"{option}: {text[:LONGEST]!r} is not a rank and a factor, such as 3:1.2")
        found.append((int(rank), slow))
    return found


def places_of(option: str, texts: Sequence[str]) -> dict[int, int]:
    """Ranks and the ranks whose places they take, of texts such as "3:17".

    Raises:
        DataError: one is not two ranks, or a rank would move twice.
    """
    places: dict[int, int] = {}
    for text in texts:
        a, _, b = text.partition(":")
        if not a.isdecimal() or not b.isdecimal() or len(text) > LONGEST:
            raise DataError(f"{option}: {text[:LONGEST]!r} is not two ranks, such as 3:17")
        if int(a) in places or int(b) in places or int(a) == int(b):
            raise DataError(f"{option}: {text}: a rank can change places once, and with another one only")
        places |= {int(a): int(b), int(b): int(a)}
    return places


@dataclass(frozen=True)
class Changes(OptionGroup):
    """Changes of a recorded job to try, each by itself.

    Attributes:
        replaced: ranks to replace by the median worker of their stage; may be repeated; by default the worst one.
        places: exchange ranks A and B; may be repeated.
        slower: rank and the factor on its compute time, e.g. 3:1.2.
        layers_per_stage: layers per stage of the recorded job; moves one of them from the last stage to the first.
    """

    replaced: Annotated[Sequence[int] | None, Option("--replace-rank", "RANK", key="replace_rank")] = None
    places: Annotated[
        Mapping[int, int] | None,
        Option("--swap", "A:B", key="swap", parse=places_of, is_repeated=True, is_recorded_as_typed=True),
    ] = None
    slower: Annotated[
        Sequence[tuple[int, float]] | None,
        Option(
            "--slow-rank", "RANK:FACTOR", key="slow_rank", parse=slower_of, is_repeated=True, is_recorded_as_typed=True
        ),
    ] = None
    layers_per_stage: Annotated[int | None, Option("--layers-per-stage", "N", least=1)] = None


@use_case()
def what_if(
    source: TraceFile,
    *,
    meta: Meta = None,
    changes: Changes = Changes(),
    draws: StepDraws = StepDraws(),
    progress: Progress = silent,
) -> WhatIfReport:
    """Report the slowdown by op type, rank and stage, and the step-time distribution after changes.

    Args:
        source: a Trace, or a file, folder or pattern that `open_trace` reads.
        meta: degrees of the job (YAML); by default the meta-*.yaml next to the trace.
        changes: changes to the recorded job.
        draws: steps to draw for every change, from the same seed, so that differences are due to the change alone.
        progress: told what is being done.

    Raises:
        DataError, ConfigError: the recording cannot be read, or a change does not apply to it.

    Example:
        >>> what_if("local_cluster").slowdown  # doctest: +SKIP
    """
    trace, n_left_out = without_warm_up(recorded_ops(source, meta), draws.skip)
    _check_ranks(trace, changes)
    _check_layers(trace, changes.layers_per_stage)
    from .recorded_job import fit_job
    from .replay import stragglers, trace_criticality
    from .unseen_steps import match_moments, predict_job

    job, found = match_moments(fit_job(trace)), stragglers(trace)
    replaced = list(changes.replaced or ()) or [int(trace.rank[found.worst[0]])]
    predictions = {}
    for what, changed in _changes(job, replaced, changes):
        progress(0.0, what)
        predictions[what] = predict_job(changed, key=draws.seed, n_draw=draws.n_draw)
    return what_if_report(trace, found, trace_criticality(job), predictions, UNRECORDED, n_left_out)


def _changes(
    job: RecordedJob,
    ranks: Sequence[int],
    changes: Changes,
) -> Iterator[tuple[str, RecordedJob]]:
    """The job as it is, then every change of it that makes sense."""
    from .edits import (
        with_even_micro_batches,
        with_even_stages,
        with_even_transfers,
        with_layer_moved,
        with_median_worker,
        with_slower_worker,
        with_workers_placed,
    )

    yield "as recorded", job
    for rank in ranks:
        yield f"rank {rank} replaced by a median worker", with_median_worker(job, rank)
    if changes.places:
        yield "workers in other places", with_workers_placed(job, dict(changes.places))
    for rank, factor in changes.slower or ():
        yield f"rank {rank} slower by {factor - 1.0:.3g} of its compute", with_slower_worker(job, rank, factor)
    yield "communication at its median", with_even_transfers(job)
    if job.effects is not None:
        yield "micro-batches of even length", with_even_micro_batches(job)
        if job.trace.n_stage > 1:
            yield "compute spread evenly over stages", with_even_stages(job)
    if changes.layers_per_stage is not None:
        yield "one layer moved off the last stage", with_layer_moved(job, changes.layers_per_stage)


def _check_ranks(trace: Trace, changes: Changes) -> None:
    """Refuses unknown ranks before the work, not after."""
    asked = {
        "--replace-rank": changes.replaced or (),
        "--swap": list(changes.places or ()),
        "--slow-rank": [rank for rank, _ in changes.slower or ()],
    }
    known = sorted(trace.rank.ravel().tolist())
    for option, ranks in asked.items():
        for rank in ranks:
            if rank not in known:
                shown = ", ".join(map(str, known[:MOST])) + (f", ..., {known[-1]}" if len(known) > MOST else "")
                raise DataError(f"{option}: rank {rank} was not recorded. Recorded are {shown}.")


def _check_layers(trace: Trace, layers_per_stage: int | None) -> None:
    if layers_per_stage is not None and trace.n_stage < 2:
        raise DataError(f"{trace.source}: --layers-per-stage moves a layer to another stage, but the job has one only")


def what_if_report(
    trace: Trace,
    found: Stragglers,
    critical: CriticalShares,
    changes: Mapping[str, TracePrediction],
    record: RunRecord,
    n_left_out: int = 0,
) -> WhatIfReport:
    """Report of who slowed the job down, and what changes would bring. The first of `changes` is the job as it is."""
    return WhatIfReport(
        info=trace_facts(trace, n_left_out),
        slowdown=found.slowdown,
        worst_workers_share=None if isnan(found.m_w) else found.m_w,
        last_stage_share=None if isnan(found.m_s) else found.m_s,
        recorded_s=float(found.recorded_s.mean()),
        ideal_s=float(found.ideal_s.mean()),
        by_op_type=dict(found.by_op_type),
        by_rank=trace.by_rank(found.by_worker),
        by_stage={str(stage): value for stage, value in found.by_stage.items()},
        by_dp={str(replica): value for replica, value in found.by_dp.items()},
        worst_ranks=tuple(int(trace.rank[cell]) for cell in found.worst),
        criticality=critical,
        changes={what: Quantiles.of(prediction.quantile) for what, prediction in changes.items()},
        record=record,
        doubts=doubts(next(iter(changes.values())), trace.step_s, as_recorded=True),
        ranks=tuple(tuple(map(int, replica)) for replica in trace.rank),
    )

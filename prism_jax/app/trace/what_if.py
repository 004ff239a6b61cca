"""Who slowed a recorded job down, and what a change would bring; what `prism-jax trace what-if` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DataError
from ...io.write import run_record
from ...progress import Progress, silent
from ...recorded.recorded_job import RecordedJob
from ...recorded.trace.trace import Trace
from ...recorded.trace.warm_up import without_warm_up
from ...report.types.record import RunRecord
from ...report.types.trace import WhatIfReport
from ...start_jax import keep_programs
from .facts import what_if_report
from .source import TraceSource, named, recorded_ops

if TYPE_CHECKING:
    from ...explain.types import Stragglers
    from ...plot.figure import Figure

MOST = 8  # ranks that a message lists


@dataclass(frozen=True)
class Changes:
    """Changes of a recorded job to try, each by itself.

    Attributes:
        replaced: ranks to replace by the median worker of their stage; empty: the worst one.
        places: rank -> the rank whose place it takes.
        slower: ranks and how many times as long their compute takes.
        layers_per_stage: move one of so many layers off the last stage.
    """

    replaced: Sequence[int] = ()
    places: Mapping[int, int] = field(default_factory=dict)
    slower: Sequence[tuple[int, float]] = ()
    layers_per_stage: int | None = None


@dataclass(frozen=True)
class WhatIfRun:
    """An answer with what its report is made of."""

    report: WhatIfReport
    stragglers: Stragglers
    trace: Trace

    def figure(self) -> Figure:
        """Heat map of the workers."""
        from ...plot import plot_workers  # here, so that answers without a picture do not pay for it

        return plot_workers(self.stragglers, self.trace.rank, self.trace.job.name)


def what_if(source: TraceSource, **options: Any) -> WhatIfReport:
    """Who slowed a recorded job down, and what changes would bring; arguments as those of `run_what_if`.

    Example:
        >>> what_if("local_cluster").slowdown  # doctest: +SKIP
    """
    return run_what_if(source, **options).report


def run_what_if(
    source: TraceSource,
    *,
    meta: str | Path | None = None,
    changes: Changes = Changes(),
    n_draw: int = 4000,
    skip: int | None = None,
    seed: int = 0,
    inputs: Mapping[str, Any] | None = None,
    progress: Progress = silent,
) -> WhatIfRun:
    """Slowdown by op type, rank and stage, and the distribution of the step after changes.

    Args:
        source: a Trace, or a file, folder or pattern that `open_trace` reads.
        meta: degrees of the job (YAML); by default the meta-*.yaml beside the trace.
        changes: what to change.
        n_draw: steps to draw for every change.
        skip: first steps to leave out; None: those that are warm-up (`recorded/trace/warm_up.py`).
        seed: the same for every change, so that differences are due to the change alone.
        inputs: what the run record says of the changes; None: the changes themselves.
        progress: told what is being done.

    Raises:
        DataError, ConfigError: the recording cannot be read, or a change does not apply to it.
    """
    trace, n_left_out = without_warm_up(recorded_ops(source, meta), skip)
    _check_ranks(trace, changes)
    _check_layers(trace, changes.layers_per_stage)
    keep_programs()
    import jax  # here, so that mistakes above do not wait for it

    from ...recorded.criticality import trace_criticality
    from ...recorded.edits.what_if import stragglers
    from ...recorded.moments import match_moments
    from ...recorded.recorded_job import fit_job
    from ...recorded.unseen_steps import predict_job

    job, found = match_moments(fit_job(trace)), stragglers(trace)
    replaced = list(changes.replaced) or [int(trace.rank[found.worst[0]])]
    predictions = {}
    for what, changed in _changes(job, replaced, changes):
        progress(0.0, what)
        predictions[what] = predict_job(changed, key=jax.random.key(seed), n_draw=n_draw)
    told = {
        "file": named(source),
        "meta": meta,
        **(_inputs(changes) if inputs is None else inputs),
        "draws": n_draw,
        "skip": skip,
    }
    record = RunRecord(**run_record(told, seed))
    return WhatIfRun(
        what_if_report(trace, found, trace_criticality(job), predictions, record, n_left_out), found, trace
    )


def _inputs(changes: Changes) -> dict[str, Any]:
    return {
        "replace_rank": list(changes.replaced),
        "places": dict(changes.places),
        "slow_rank": list(changes.slower),
        "layers_per_stage": changes.layers_per_stage,
    }


def _changes(
    job: RecordedJob,
    ranks: Sequence[int],
    changes: Changes,
) -> Iterator[tuple[str, RecordedJob]]:
    """The job as it is, then every change of it that makes sense."""
    from ...recorded.edits.place_workers import (
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
    for rank, factor in changes.slower:
        yield f"rank {rank} slower by {factor - 1.0:.3g} of its compute", with_slower_worker(job, rank, factor)
    yield "communication at its median", with_even_transfers(job)
    if job.effects is not None:
        yield "micro-batches of even length", with_even_micro_batches(job)
        if job.trace.n_stage > 1:
            yield "compute spread evenly over stages", with_even_stages(job)
    if changes.layers_per_stage is not None:
        yield "one layer moved off the last stage", with_layer_moved(job, changes.layers_per_stage)


def _check_ranks(trace: Trace, changes: Changes) -> None:
    """Before the work, not after."""
    asked = {
        "--replace-rank": changes.replaced,
        "--swap": list(changes.places),
        "--slow-rank": [rank for rank, _ in changes.slower],
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

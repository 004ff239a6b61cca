"""`prism-jax trace what-if FILE`: who slowed a recorded job down, and what a change would bring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...options import Json, Seed
from ...result import leave
from .file import Meta, TraceFile, recorded_ops

if TYPE_CHECKING:
    from ....recorded.recorded_job import RecordedJob
    from ....recorded.trace.trace import Trace

LONGEST = 20  # characters of two ranks, or a rank and a factor
MOST = 8  # ranks that a message lists

Plot = Annotated[
    str | None, typer.Option("--plot", metavar="FILE", help="Write a heat map of the workers (.png, .pdf, .svg).")
]
ReplaceRank = Annotated[
    list[int] | None,
    typer.Option(
        "--replace-rank", metavar="RANK", help="Replace this worker by the median one of its stage; may be repeated."
    ),
]
Swap = Annotated[
    list[str] | None, typer.Option("--swap", metavar="A:B", help="Let ranks A and B change places; may be repeated.")
]
SlowRank = Annotated[
    list[str] | None,
    typer.Option(
        "--slow-rank", metavar="RANK:FACTOR", help="Let the compute of a rank take so many times as long, e.g. 3:1.2."
    ),
]
Layers = Annotated[
    int | None, typer.Option("--layers-per-stage", min=1, help="Move one of so many layers off the last stage.")
]
Draws = Annotated[int, typer.Option("--draws", min=100, max=1_000_000, help="Steps to draw for every change.")]


def what_if(
    file: TraceFile,
    meta: Meta = None,
    replace_rank: ReplaceRank = None,
    swap: Swap = None,
    slow_rank: SlowRank = None,
    layers_per_stage: Layers = None,
    draws: Draws = 4000,
    seed: Seed = 0,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Slowdown by op type, rank and stage, and the distribution of the step after changes."""
    from ...pictures import check_picture

    check_picture(plot)
    places, slow = _places(swap or []), [_slow(text) for text in slow_rank or []]
    trace = recorded_ops(file, meta)
    _check_ranks(trace, replace_rank or [], places, slow)
    _check_layers(trace, layers_per_stage)
    from ....start_jax import start_jax

    start_jax()
    import jax

    from ....io.write import run_record
    from ....recorded.criticality import trace_criticality
    from ....recorded.edits.what_if import stragglers
    from ....recorded.match_moments import calibrated
    from ....recorded.recorded_job import fit_job
    from ....recorded.unseen_steps import predict_job
    from ....report.trace_lines import what_if_lines
    from ....report.trace_summary import info_dict, what_if_dict

    key = jax.random.key(seed)  # the same for every change, so that differences are due to the change alone
    job, found = calibrated(fit_job(trace)), stragglers(trace)
    replaced = replace_rank or [int(trace.rank[found.worst[0]])]
    changes = {
        what: predict_job(changed, key=key, n_draw=draws)
        for what, changed in _changes(job, replaced, places, slow, layers_per_stage)
    }
    summary = what_if_dict(trace, found, trace_criticality(job), changes)
    info = info_dict(trace)
    options = {
        "replace_rank": replace_rank,
        "swap": swap,
        "slow_rank": slow_rank,
        "layers_per_stage": layers_per_stage,
    }
    record = run_record({"file": file, "meta": meta, **options, "draws": draws}, seed)

    def figure() -> Any:
        from ....plot import plot_workers

        return plot_workers(found, trace.rank, trace.job.name)

    leave({**info, **summary, **record}, lambda: what_if_lines(info, summary), json, plot, figure)


def _changes(
    job: RecordedJob,
    ranks: list[int],
    places: dict[int, int],
    slow: list[tuple[int, float]],
    layers_per_stage: int | None,
) -> Iterator[tuple[str, RecordedJob]]:
    """The job as it is, then every change of it that makes sense."""
    from ....recorded.edits.place_workers import (
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
    if places:
        yield "workers in other places", with_workers_placed(job, places)
    for rank, factor in slow:
        yield f"rank {rank} slower by {factor - 1.0:.3g} of its compute", with_slower_worker(job, rank, factor)
    yield "communication at its median", with_even_transfers(job)
    if job.effects is not None:
        yield "micro-batches of even length", with_even_micro_batches(job)
        if job.trace.n_stage > 1:
            yield "compute spread evenly over stages", with_even_stages(job)
    if layers_per_stage is not None:
        yield "one layer moved off the last stage", with_layer_moved(job, layers_per_stage)


def _slow(text: str) -> tuple[int, float]:
    from ....errors import DataError

    rank, _, factor = text.partition(":")
    try:
        slow = float(factor)
    except ValueError:
        slow = 0.0
    if not rank.isdecimal() or len(text) > LONGEST or not 0.0 < slow < float("inf"):
        raise DataError(f"--slow-rank: {text[:LONGEST]!r} is not a rank and a factor, such as 3:1.2")
    return int(rank), slow


def _places(swaps: list[str]) -> dict[int, int]:
    from ....errors import DataError

    places: dict[int, int] = {}
    for text in swaps:
        a, _, b = text.partition(":")
        if not a.isdecimal() or not b.isdecimal() or len(text) > LONGEST:
            raise DataError(f"--swap: {text[:LONGEST]!r} is not two ranks, such as 3:17")
        if int(a) in places or int(b) in places or int(a) == int(b):
            raise DataError(f"--swap: {text}: a rank can change places once, and with another one only")
        places |= {int(a): int(b), int(b): int(a)}
    return places


def _check_ranks(trace: Trace, replaced: list[int], places: dict[int, int], slow: list[tuple[int, float]]) -> None:
    """Before the work, not after."""
    from ....errors import DataError

    asked = {"--replace-rank": replaced, "--swap": list(places), "--slow-rank": [rank for rank, _ in slow]}
    known = sorted(trace.rank.ravel().tolist())
    for option, ranks in asked.items():
        for rank in ranks:
            if rank not in known:
                shown = ", ".join(map(str, known[:MOST])) + (f", ..., {known[-1]}" if len(known) > MOST else "")
                raise DataError(f"{option}: rank {rank} was not recorded. Recorded are {shown}.")


def _check_layers(trace: Trace, layers_per_stage: int | None) -> None:
    from ....errors import DataError

    if layers_per_stage is not None and trace.n_stage < 2:
        raise DataError(f"{trace.source}: --layers-per-stage moves a layer to another stage, but the job has one only")

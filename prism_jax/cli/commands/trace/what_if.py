"""`prism-jax trace what-if FILE`: who slowed a recorded job down, and what a change would bring."""

from __future__ import annotations

from typing import Annotated

import typer

from .... import app
from ....errors import DataError
from ...options import Json, Seed
from ...pictures import check_picture
from ...progress import working
from ...result import emit
from .options import Meta, Skip, TraceFile

LONGEST = 20  # characters of two ranks, or a rank and a factor

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
    list[str] | None, typer.Option("--swap", metavar="A:B", help="Exchange ranks A and B; may be repeated.")
]
SlowRank = Annotated[
    list[str] | None,
    typer.Option(
        "--slow-rank", metavar="RANK:FACTOR", help="Multiply the compute time of a rank by a factor, e.g. 3:1.2."
    ),
]
Layers = Annotated[
    int | None,
    typer.Option(
        "--layers-per-stage",
        min=1,
        help="Layers per stage of the recorded job; moves one of them from the last stage to the first.",
    ),
]
Draws = Annotated[
    int, typer.Option("--draws", min=100, max=1_000_000, help="Number of steps to draw for every change.")
]


def what_if(
    file: TraceFile,
    meta: Meta = None,
    replace_rank: ReplaceRank = None,
    swap: Swap = None,
    slow_rank: SlowRank = None,
    layers_per_stage: Layers = None,
    draws: Draws = 4000,
    skip: Skip = None,
    seed: Seed = 0,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Report the slowdown by op type, rank and stage, and the step-time distribution after changes."""
    check_picture(plot)
    changes = app.Changes(
        replaced=replace_rank or (),
        places=_places(swap or []),
        slower=[_slow(text) for text in slow_rank or []],
        layers_per_stage=layers_per_stage,
    )
    inputs = {
        "replace_rank": replace_rank,
        "swap": swap,
        "slow_rank": slow_rank,
        "layers_per_stage": layers_per_stage,
    }
    with working() as progress:
        run = app.run_what_if(
            file, meta=meta, changes=changes, n_draw=draws, skip=skip, seed=seed, inputs=inputs, progress=progress
        )
    emit(run.report, json, plot=plot, figure=run.figure)


def _slow(text: str) -> tuple[int, float]:
    rank, _, factor = text.partition(":")
    try:
        slow = float(factor)
    except ValueError:
        slow = 0.0
    if not rank.isdecimal() or len(text) > LONGEST or not 0.0 < slow < float("inf"):
        raise DataError(f"--slow-rank: {text[:LONGEST]!r} is not a rank and a factor, such as 3:1.2")
    return int(rank), slow


def _places(swaps: list[str]) -> dict[int, int]:
    places: dict[int, int] = {}
    for text in swaps:
        a, _, b = text.partition(":")
        if not a.isdecimal() or not b.isdecimal() or len(text) > LONGEST:
            raise DataError(f"--swap: {text[:LONGEST]!r} is not two ranks, such as 3:17")
        if int(a) in places or int(b) in places or int(a) == int(b):
            raise DataError(f"--swap: {text}: a rank can change places once, and with another one only")
        places |= {int(a): int(b), int(b): int(a)}
    return places

"""`prism-jax schedule TRACE`: what scheduling policies make of the jobs of a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from ... import app
from ..options import Json, Seed
from ..progress import working
from ..result import emit

Trace = Annotated[
    str,
    typer.Argument(
        metavar="TRACE", help="CSV or parquet, one row per job: submit_s, gpus, duration_s; deadline_s and vc if known."
    ),
]
Gpus = Annotated[
    str,
    typer.Option(
        "--gpus",
        metavar="N|pNN",
        help="GPUs of the cluster; p80: as many as would be busy in all but 20 % of the time if nothing waited.",
    ),
]
Group = Annotated[
    str | None, typer.Option("--group", metavar="NAME", help="Read one group of the trace (vc, cluster, queue).")
]
Policies = Annotated[
    list[str] | None,
    typer.Option("--policy", metavar="NAME", help="fifo, sjf, srtf, las, edf, pal; may be repeated; all by default."),
]
Estimates = Annotated[
    list[str] | None,
    typer.Option("--estimate", metavar="NAME", help="mean, p50, p95, matched; may be repeated; all by default."),
]
Cvs = Annotated[
    list[float] | None,
    typer.Option("--cv", help="Spread of GPU speeds, std over mean; may be repeated; 0.03 by default."),
]
Shape = Annotated[
    str,
    typer.Option(
        "--variability", metavar="PRESET", help="Preset whose shape the spread has (`prism-jax show variability`)."
    ),
]
Slack = Annotated[
    float,
    typer.Option("--slack", help="Mean time to a deadline beyond the duration, over it; for traces without deadlines."),
]
Restart = Annotated[
    float, typer.Option("--restart", metavar="SECONDS", help="Lost when an interrupted job comes back.")
]
Seeds = Annotated[int, typer.Option("--seeds", help="Worlds to draw: GPUs, steps, deadlines.")]


def schedule(
    trace: Trace,
    gpus: Gpus = "p80",
    group: Group = None,
    policy: Policies = None,
    estimate: Estimates = None,
    cv: Cvs = None,
    variability: Shape = "v100-longhorn",
    slack: Slack = 1.0,
    restart: Restart = 60.0,
    seeds: Seeds = 8,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Simulate the queue of a cluster under several scheduling policies and duration estimates."""
    with working("reading the trace") as progress:
        report = app.schedule_trace(
            trace,
            gpus=gpus,
            group=group,
            policies=policy or (),
            estimates=estimate or (),
            cvs=cv or (0.03,),
            variability=variability,
            slack=slack,
            restart_s=restart,
            n_seeds=seeds,
            seed=seed,
            progress=progress,
        )
    emit(report, json)

"""`prism-jax job JOB`: when a training run is done, with what probability, where its time goes, and what to change first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from ... import app
from ...errors import DataError, PrismError
from ...units import parse
from ..options import Fits, Force, JobFile, Json, Overrides, Plot, Seed
from ..pictures import check_picture
from ..progress import working
from ..result import emit

if TYPE_CHECKING:
    from ...horizon.checkpoint import Checkpoint
    from ...horizon.recovery import Recovery

AUTO = "auto"
COUNTS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}

Steps = Annotated[int | None, typer.Option("--steps", help="Steps to be done.")]
Tokens = Annotated[
    str | None, typer.Option("--tokens", metavar="T", help="Tokens (samples) to be done: 15.6T, 300B, 1e12.")
]
ReliabilitySource = Annotated[
    str | None,
    typer.Option(
        "--reliability",
        metavar="PRESET|FILE",
        help="What interrupts the job: a preset (`prism-jax show reliability`), a YAML or TOML file, or a fit of failures.",
    ),
]
Mtbf = Annotated[
    str | None, typer.Option("--mtbf", metavar="TIME", help="Instead: mean time between interruptions of this job, 3h.")
]
Interval = Annotated[
    str,
    typer.Option(
        "--checkpoint", metavar="auto|TIME", help="Work between checkpoints, 600s; auto: the best by the exact form."
    ),
]
Write = Annotated[
    str | None, typer.Option("--checkpoint-write", metavar="TIME", help="That training waits for a checkpoint, 40s.")
]
Behind = Annotated[
    str | None,
    typer.Option(
        "--checkpoint-behind", metavar="TIME", help="After that, until it can be loaded (asynchronous saves)."
    ),
]
Load = Annotated[str | None, typer.Option("--load", metavar="TIME", help="To load a checkpoint.")]
Restart = Annotated[
    str | None, typer.Option("--restart", metavar="TIME", help="From a noticed interruption to the load, 10min.")
]
Spares = Annotated[
    str,
    typer.Option("--spares", metavar="auto|K", help="Spare nodes; auto: the fewest that suffice 99 % of the time."),
]
Policy = Annotated[
    str, typer.Option("--policy", help="Where spares do not suffice: restart (wait), hot_spare (wait) or shrink.")
]
Deadline = Annotated[str | None, typer.Option("--deadline", metavar="TIME", help="For P(done by then): 54d, 1300h.")]
Worlds = Annotated[int, typer.Option("--worlds", help="Simulated worlds.")]


def job(
    job: JobFile,
    overrides: Overrides = None,
    steps: Steps = None,
    tokens: Tokens = None,
    reliability: ReliabilitySource = None,
    mtbf: Mtbf = None,
    checkpoint: Interval = AUTO,
    checkpoint_write: Write = None,
    checkpoint_behind: Behind = None,
    load: Load = None,
    restart: Restart = None,
    spares: Spares = AUTO,
    policy: Policy = "restart",
    deadline: Deadline = None,
    fit: Fits = None,
    force: Force = False,
    worlds: Worlds = 10_000,
    seed: Seed = 0,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Predict when a training run is done: failures, checkpoints, slow phases, deadline."""
    check_picture(plot)
    mtbf_s = seconds_of("--mtbf", mtbf)
    interval_s = None if checkpoint == AUTO else seconds_of("--checkpoint", checkpoint)
    written = _written(checkpoint_write, checkpoint_behind, load)
    recovery = _recovery(restart, spares, policy)
    with working() as progress:
        run = app.run_horizon(
            job,
            n_steps=steps,
            n_tokens=None if tokens is None else count_of(tokens),
            overrides=overrides or (),
            reliability=reliability,
            mtbf_h=None if mtbf_s is None else mtbf_s / 3600.0,
            checkpoint=written,
            interval_s=interval_s,
            recovery=recovery,
            deadline_s=seconds_of("--deadline", deadline),
            fits=fit or (),
            force=force,
            n_worlds=worlds,
            seed=seed,
            progress=progress,
        )
    emit(run.report, json, plot=plot, figure=run.figure)


def seconds_of(option: str, text: str | None) -> float | None:
    """Seconds of an option such as "3h"."""
    if text is None:
        return None
    try:
        return parse(text, "time")
    except PrismError as error:
        raise DataError(f"{option}: {error}") from None


def count_of(text: str) -> float:
    """Tokens from "15.6T"; T is 1e12, B is 1e9."""
    unit = text[-1:].upper() if text[-1:].upper() in COUNTS else ""
    try:
        return float(text[:-1] if unit else text) * COUNTS[unit]
    except ValueError:
        raise DataError(f"--tokens: {text!r} is not a number. Write 15.6T, 300B or 1e12.") from None


def _written(write: str | None, behind: str | None, load: str | None) -> Checkpoint | None:
    """The checkpoint that is stated; None where nothing is."""
    from ...horizon.checkpoint import Checkpoint

    blocking_s = seconds_of("--checkpoint-write", write)
    behind_s, load_s = seconds_of("--checkpoint-behind", behind), seconds_of("--load", load)
    if blocking_s is None:
        if behind_s is not None or load_s is not None:
            raise DataError("--checkpoint-behind and --load: say with --checkpoint-write what training waits for, too")
        return None
    return Checkpoint(blocking_s, behind_s or 0.0, blocking_s + (behind_s or 0.0) if load_s is None else load_s)


def _recovery(restart: str | None, spares: str, policy: str) -> Recovery | None:
    """The recovery that is stated; None where the restart is not and all else is left alone."""
    from ...app.horizon.run import RESTART_S
    from ...horizon.recovery import Recovery

    restart_s = seconds_of("--restart", restart)
    if spares != AUTO and not (spares.isascii() and spares.isdigit()):
        raise DataError(f"--spares: {spares!r}, but it must be auto or a number of nodes")
    made = Recovery(RESTART_S if restart_s is None else restart_s, policy=policy)
    made = made if spares == AUTO else replace(made, spares=int(spares))
    return None if restart_s is None and made == Recovery(RESTART_S) else made

"""`prism-jax validate steps FILE`: predicted against measured step times; the group of the validate commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Json
from .output import print_json, print_table
from .talk import TALK, say, talks
from .validate_memory import memory

if TYPE_CHECKING:
    from ..validation import RowError, Score

validate_app = typer.Typer(name="validate", help="Compare predictions with measurements.", no_args_is_help=True)

Table = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="JSON in the schema of reference_rows.json, or CSV in that of steps.csv; .gz too."
    ),
]
Deterministic = Annotated[bool, typer.Option("--deterministic", help="Leave variability out of the prediction.")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**31 - 1, help="Same seed, same answer.")]
WORST_ROWS = 40


def register(app: typer.Typer) -> None:
    """Adds the command to `app`."""
    validate_app.command("steps")(talks(steps))
    validate_app.command("memory")(talks(memory))
    app.add_typer(validate_app)


def steps(file: Table, deterministic: Deterministic = False, seed: Seed = 0, json: Json = False) -> None:
    """Turn rows into jobs, predict their typical step (p50), and print the error per row, by source and overall."""
    from dataclasses import asdict

    from ..io.steps_table import read_step_rows
    from ..io.write import run_record
    from .start_jax import start_jax

    rows = read_step_rows(file)
    start_jax()
    from ..validation import validate_steps

    with _progress(len(rows)) as advance:
        outcome = validate_steps(rows, deterministic_only=deterministic, seed=seed, progress=advance)
    if json:
        print_json({**asdict(outcome), **run_record({"file": file, "deterministic": deterministic}, seed)})
        return
    ranked = sorted(outcome.rows, key=lambda r: -abs(r.error) if r.error is not None else 1.0)
    print_table(
        "rows, worst first",
        ("row", "measured s", "predicted s", "error", "in range"),
        [_row(r) for r in ranked[:WORST_ROWS]],
    )
    if len(ranked) > WORST_ROWS:
        say(f"{len(ranked) - WORST_ROWS} more rows; --json has them all")
    groups = [*outcome.by_source.items(), ("overall", outcome.overall)]
    print_table(
        "by source", ("source", "n", "unsupported", "MAPE", "median", "bias", "p90"), [_score(*g) for g in groups]
    )


def _row(row: RowError) -> list[str]:
    if row.error is None or row.predicted_s is None:
        return [row.id, "" if row.measured_s is None else f"{row.measured_s:.4g}", "-", row.unsupported, ""]
    inside = {None: "", True: "yes", False: "NO"}[row.in_range]
    return [row.id, f"{row.measured_s:.4g}", f"{row.predicted_s:.4g}", f"{row.error:+.1%}", inside]


def _score(name: str, score: Score) -> list[str]:
    def percent(value: float | None, sign: str = "") -> str:
        return "-" if value is None else f"{value:{sign}.2%}"

    return [
        name,
        str(score.n),
        str(score.n_unsupported),
        percent(score.mape),
        percent(score.median_ape),
        percent(score.bias, "+"),
        percent(score.p90_ape),
    ]


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal; nothing elsewhere."""
    if TALK.quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("predicting", total=total)
        yield lambda done: bar.update(task, completed=done)

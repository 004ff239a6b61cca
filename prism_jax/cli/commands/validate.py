"""`prism-jax validate steps FILE`: predicted against measured step times; the group of the validate commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..load_fits import kept_calibration, refuse_other_device
from ..options import Json, Plot, Seed
from ..output import print_json
from ..pictures import check_picture, write_picture
from ..progress import progress
from ..verbosity import say, talks
from .validate_memory import memory
from .validate_tables import print_validation

if TYPE_CHECKING:
    from ...calibration.calibration import Calibration
    from ...io.tables.steps.table import StepRow
    from ...validation import Validation

validate_app = typer.Typer(name="validate", help="Compare predictions with measurements.", no_args_is_help=True)

Table = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="JSON in the schema of reference_rows.json, CSV in that of steps.csv, or CSV with a column job; .gz too.",
    ),
]
LeaveOut = Annotated[
    str | None,
    typer.Option(
        "--leave-out",
        metavar="source|gpu|model",
        help="Score blindly: predict the rows of every such group by a calibration fitted to the other rows of FILE.",
    ),
]
Fit = Annotated[
    str | None, typer.Option("--fit", metavar="NC", help="Predict with what `prism-jax calibrate` kept instead.")
]
Deterministic = Annotated[bool, typer.Option("--deterministic", help="Leave variability out of the prediction.")]
WAYS = ("source", "gpu", "model")


def register(app: typer.Typer) -> None:
    """Adds the command to `app`."""
    validate_app.command("steps")(talks(steps))
    validate_app.command("memory")(talks(memory))
    app.add_typer(validate_app)


def steps(
    file: Table,
    leave_out: LeaveOut = None,
    fit: Fit = None,
    deterministic: Deterministic = False,
    seed: Seed = 0,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Turn rows into jobs, predict their typical step (p50), and print the error per row, by source and overall."""
    from dataclasses import asdict

    from ...io.tables.steps.table import read_step_rows
    from ...io.write import run_record

    check_picture(plot)
    _check_ways(leave_out, fit)
    rows = read_step_rows(file)
    outcome = _outcome(rows, leave_out or "", fit, deterministic, seed)
    if json:
        inputs = {"file": file, "leave_out": leave_out, "fit": fit, "deterministic": deterministic}
        print_json({**asdict(outcome), **run_record(inputs, seed)})
    else:
        print_validation(outcome)
    if plot is not None:
        from ...plot import plot_accuracy

        write_picture(plot, plot_accuracy(outcome.rows))
        say(f"wrote {plot}")


def _check_ways(leave_out: str | None, fit: str | None) -> None:
    from ...errors import DataError
    from ...hints import did_you_mean

    if leave_out is not None and leave_out not in WAYS:
        raise DataError(
            f"--leave-out: {leave_out!r} is unknown; known are {', '.join(WAYS)}{did_you_mean(leave_out, WAYS)}"
        )
    if leave_out is not None and fit is not None:
        raise DataError("--fit names a calibration, --leave-out fits its own ones. Give one of them.")


def _outcome(rows: list[StepRow], leave_out: str, fit: str | None, deterministic: bool, seed: int) -> Validation:
    """Everything that needs JAX."""
    from ...start_jax import start_jax

    start_jax()
    from ...validation import group_of, validate_steps

    folds = _folds(rows, leave_out, seed) if leave_out else {}
    given = None if fit is None else kept_calibration(fit)
    if not leave_out and given is None:
        _warn_of_seen(rows)

    def calibration_of(row: Any) -> Calibration | None:
        if leave_out:
            return folds[group_of(row, leave_out)]
        if given is not None:
            refuse_other_device(given, row.job[1].device, str(fit))
        return given

    with progress("predicting") as advance:
        return validate_steps(
            rows,
            calibration_of=calibration_of,
            left_out=leave_out,
            deterministic_only=deterministic,
            seed=seed,
            progress=advance,
        )


def _folds(rows: Sequence[StepRow], by: str, seed: int) -> dict[str, Calibration]:
    import jax

    from ..._inference_loader import inference

    with progress(f"calibrating without each {by}") as advance:
        return inference().step_folds(rows, by, key=jax.random.key(seed), progress=advance)


def _warn_of_seen(rows: Sequence[StepRow]) -> None:
    """Rows of sources that the shipped calibration was fitted to."""
    from ...calibration.calibration import shipped

    known = (shipped().record or {}).get("sources", {})
    seen = sum(row.source in known for row in rows)
    if seen:
        say(
            f"note: {seen} of {len(rows)} rows are of sources that shaped the shipped calibration: no blind score. "
            "`--leave-out source` gives one."
        )

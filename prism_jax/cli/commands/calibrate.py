"""`prism-jax calibrate RUNS`: the shipped calibration updated by measured runs of one's own cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..options import Json, Seed
from ..result import leave
from ..verbosity import say, talks

Runs = Annotated[
    str,
    typer.Argument(
        metavar="RUNS",
        help="CSV of measured runs: columns job (a job file) and measured_step_time_s, or the schema of steps.csv.",
    ),
]
Out = Annotated[
    str | None,
    typer.Option("--out", "-o", metavar="FILE", help="Keep the calibration (netCDF, .nc); `predict --fit` uses it."),
]
Framework = Annotated[
    str, typer.Option("--framework", metavar="NAME", help="Training software of all runs, where they do not say.")
]
Suggest = Annotated[
    int | None,
    typer.Option(
        "--suggest",
        min=1,
        max=100,
        metavar="N",
        help="Only say which N jobs of the table to measure first; no seconds needed.",
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the command to `app`."""
    app.command("calibrate")(talks(calibrate))


def calibrate(
    runs: Runs,
    out: Out = None,
    framework: Framework = "",
    suggest: Suggest = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Calibrate the cost model with a few measured runs, and show how the error falls with each."""
    if suggest is not None:
        _suggest(runs, suggest, out, framework, json)
        return
    from ...io.write import check_target

    if out is not None:
        check_target(out)
    summary, fitted = _run(runs, framework, seed)

    def lines() -> list[str]:
        from ...report.calibrate_lines import calibrate_lines

        return calibrate_lines(summary)

    leave(summary, lines, json, None, lambda: None, lambda: _keep(fitted, out))


def _run(runs: str, framework: str, seed: int) -> tuple[dict[str, Any], Any]:
    """Everything that needs JAX, with a spinner on a terminal."""
    from ..._inference_loader import inference
    from ...start_jax import start_jax
    from ..spinner import shown, spinner

    start_jax()
    with spinner("loading JAX") as tell:
        module = inference()
        import jax

        from ...io.write import run_record

        tell(f"reading {runs}")
        fitted = module.calibrate_runs(
            runs,
            key=jax.random.key(seed),
            framework=framework,
            progress=shown(tell, "calibrating"),
            record=run_record({"runs": runs, "framework": framework}, seed),
        )
        return fitted.summary(), fitted


def _suggest(runs: str, n: int, out: str | None, framework: str, json: bool) -> None:
    from dataclasses import asdict
    from importlib import import_module

    from ..._inference_loader import inference
    from ...errors import DataError
    from ...io.write import run_record
    from ...report.suggest_lines import suggest_lines
    from ...start_jax import start_jax

    if out is not None or framework:
        raise DataError("--suggest: goes with --json only, since nothing is fitted. Leave the others out.")
    start_jax()
    inference()
    found = import_module("inference.cost_model.site.suggest").suggest_runs(runs, n)
    summary = {
        "suggested": [asdict(one) for one in found],
        "n_job": sum(one.stands_for for one in found),
        **run_record({"runs": runs, "suggest": n}, 0),
    }
    leave(summary, lambda: suggest_lines(summary), json, None, lambda: None, lambda: None)


def _keep(fitted: Any, out: str | None) -> None:
    if out is None:
        return
    fitted.save(out)
    say(f"wrote {out}")

"""`prism-jax fit MODEL FILE...`: a model of variability fitted to measurements; `prism-jax fit report FILE`: what it says."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ... import app
from ...errors import DataError
from ..exit_codes import FAILED
from ..options import Json, Plot, Seed
from ..pictures import check_picture
from ..progress import working
from ..result import emit
from ..verbosity import say, with_verbosity

EXIT_CODES = (
    "Exit code: 0 the fit passed its checks; 1 it failed them, and FILE.npz is kept as FILE.failed.npz; 2 wrong input."
)
fit_app = typer.Typer(
    name="fit",
    help="Fit variability to measurements; `predict --fit` uses it.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
)
HELP = {
    "fleet": "Fit the differences between GPUs and nodes to kernel times per GPU.",
    "steps": "Fit the variation of steps, runs and systems to step times.",
    "collectives": "Fit latency, bandwidth and noise of collectives to nccl-tests logs or tables.",
    "kernels": "Fit the efficiency of GEMM and attention by shape to kernel times.",
    "overlap": "Fit how much communication slows concurrent kernels.",
    "failures": "Fit failure rates per GPU, node and job to counts of several clusters.",
    "repairs": "Fit times between failures, repairs and group losses to a log of node failures.",
    "revocation": "Fit how long spot nodes stay, by zone, to recorded availability or lifetimes.",
    "ladder": "Fit a floor and a rate to step times at several batch sizes on one instance.",
    "saves": "Fit seconds of checkpoints to the sizes of their files on one storage.",
    "startup": "Fit provisioning, staging and booting of cloud machines.",
}

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...", help="CSV, parquet or log; a table of runs may be followed by the table of their steps."
    ),
]
Out = Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="Save the fit (.npz).")]
Method = Annotated[
    str | None,
    typer.Option("--method", help="nuts (exact), svi or map (checked approximations). [default: depends on the model]"),
]
Holdout = Annotated[
    str | None, typer.Option("--holdout", metavar="COLUMN", help="Leave whole groups of a column out and score them.")
]
Splits = Annotated[
    int | None,
    typer.Option("--splits", min=1, max=10_000, help="Number of random halves (fleet) or of folds over the groups."),
]
Map = Annotated[list[str] | None, typer.Option("--map", metavar="COLUMN=NAME", help="Name of a column in the files.")]
Unit = Annotated[list[str] | None, typer.Option("--unit", metavar="COLUMN=UNIT", help="Unit of a column: duration=ms.")]
Where = Annotated[
    list[str] | None, typer.Option("--where", metavar="COLUMN=VALUE", help="Keep only rows with that value.")
]
Collective = Annotated[
    str | None,
    typer.Option(
        "--collective", metavar="NAME", help="What was run, for logs that do not say it: all_reduce, all_gather, ..."
    ),
]
Chains = Annotated[int, typer.Option("--chains", min=1, max=64, help="Number of NUTS chains.")]
Draws = Annotated[
    int,
    typer.Option(
        "--draws",
        min=50,
        max=100_000,
        help="Draws per chain, after at least half as many warm-up draws; up to three times as many where the chains need them.",
    ),
]


FitFile = Annotated[str, typer.Argument(metavar="FILE", help="A fit saved by `prism-jax fit ... -o FILE`.")]
Loo = Annotated[bool, typer.Option("--loo", help="Add the leave-one-out score (PSIS-LOO; needs ArviZ).")]


def _command(model: str) -> Callable[..., None]:
    def command(
        files: Files,
        out: Out = None,
        method: Method = None,
        holdout: Holdout = None,
        splits: Splits = None,
        mapping: Map = None,
        unit: Unit = None,
        where: Where = None,
        collective: Collective = None,
        chains: Chains = 4,
        draws: Draws = 500,
        seed: Seed = 0,
        json: Json = False,
    ) -> None:
        columns = app.Columns(_pairs("--map", mapping), _pairs("--unit", unit), _pairs("--where", where))
        with working() as progress:
            run = app.run_fit(
                model,
                files,
                columns=columns,
                collective=collective,
                method=method,
                holdout=None if holdout is None else app.Holdout(holdout, splits),
                n_chain=chains,
                n_draw=draws,
                out=out,
                seed=seed,
                progress=progress,
            )
        rows = run.report.fit.hygiene
        say(f"{rows.n_kept:,} of {rows.n_read:,} rows", detail=True)
        emit(run.report, json)
        if run.kept is not None:
            say(f"wrote {run.kept}")
        if not run.report.fit.verdict.ok:
            say(_failed(run.kept, out), always=True)
            raise typer.Exit(FAILED)

    return command if model == "collectives" else _without(command, "collective")


def _without(command: Callable[..., None], option: str) -> Callable[..., None]:
    """The command without an option that its model has no use for."""
    signature = inspect.signature(command, eval_str=True)
    kept = [item for name, item in signature.parameters.items() if name != option]
    command.__signature__ = signature.replace(parameters=kept)  # pyright: ignore[reportFunctionMemberAccess]
    return command


def report(file: FitFile, plot: Plot = None, loo: Loo = False, json: Json = False) -> None:
    """Show a saved fit and whether it can be trusted."""
    check_picture(plot)
    with working():
        run = app.read_fit(file, loo=loo)
    emit(run.report, json, plot=plot, figure=run.figure)


def _failed(kept: Path | None, out: str | None) -> str:
    """What became of a fit that failed its checks."""
    if kept is None:
        return "error: the fit failed its checks (see `remedy` above)"
    return (
        f"error: the fit failed its checks (see `remedy` above). It is in {kept}, not in {out}: `predict --fit {kept}` refuses "
        "it unless --force is given."
    )


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """{"duration": "time_ms"} of ["duration=time_ms"]."""
    found: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (equals and name.strip() and value.strip()):
            raise DataError(f"{option} {text}: write COLUMN=VALUE, such as {option} duration=time_ms")
        found[name.strip()] = value.strip()
    return found


for _model, _help in HELP.items():
    fit_app.command(_model, help=_help, epilog=EXIT_CODES)(with_verbosity(_command(_model)))
fit_app.command("report")(with_verbosity(report))

"""`prism-jax fit MODEL FILE...`: a model of variability fitted to measurements, and how well it predicts what it has not seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from ..options import Json, Seed
from ..result import leave
from ..verbosity import say, talks
from . import fit_report

fit_app = typer.Typer(
    name="fit", help="Fit variability to measurements; `predict --fit` uses it.", no_args_is_help=True
)
HELP = {
    "fleet": "How GPUs and nodes differ, from kernel times per GPU.",
    "steps": "How steps of a run, runs and systems vary, from step times.",
    "collectives": "Latency, bandwidth and noise of collectives, from nccl-tests or tables.",
    "kernels": "Efficiency of GEMM and attention by shape, from kernel times.",
    "overlap": "How much communication slows the kernels under it.",
}

Files = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="CSV, parquet or log; a table of runs may come with its steps.")
]
Out = Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="Keep the fit (netCDF, .nc).")]
Method = Annotated[
    str | None,
    typer.Option("--method", help="nuts (exact), svi or map (checked approximations). [default: what suits the model]"),
]
Holdout = Annotated[
    str | None, typer.Option("--holdout", metavar="COLUMN", help="Leave whole groups of a column out and score them.")
]
Splits = Annotated[
    int | None,
    typer.Option("--splits", min=1, max=10_000, help="Random halves (fleet), or folds that each group is in once."),
]
Map = Annotated[
    list[str] | None, typer.Option("--map", metavar="COLUMN=NAME", help="What a column is called in the files.")
]
Unit = Annotated[list[str] | None, typer.Option("--unit", metavar="COLUMN=UNIT", help="Unit of a column: duration=ms.")]
Where = Annotated[
    list[str] | None, typer.Option("--where", metavar="COLUMN=VALUE", help="Keep only rows with that value.")
]
Chains = Annotated[int, typer.Option("--chains", min=1, max=64, help="Chains of nuts.")]
Draws = Annotated[
    int, typer.Option("--draws", min=50, max=100_000, help="Draws per chain, and half as many at least to warm up.")
]


def register(app: typer.Typer) -> None:
    """Adds the commands to `app`."""
    for model, text in HELP.items():
        fit_app.command(model, help=text)(talks(_command(model)))
    fit_app.command("report")(talks(fit_report.report))
    app.add_typer(fit_app)


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
        chains: Chains = 4,
        draws: Draws = 500,
        seed: Seed = 0,
        json: Json = False,
    ) -> None:
        from ...io.write import check_target

        if out is not None:
            check_target(out)
        options = {
            "mapping": _pairs("--map", mapping),
            "units": _pairs("--unit", unit),
            "where": _pairs("--where", where),
        }
        summary, fitted = _run(model, files, options, out, method, holdout, splits, chains, draws, seed)

        def lines() -> list[str]:
            from ...report.fit_lines import fit_lines

            return fit_lines(summary)

        leave(summary, lines, json, None, lambda: None, lambda: _keep(fitted, out))

    return command


def _run(
    model: str,
    files: list[str],
    options: dict[str, dict[str, str]],
    out: str | None,
    method: str | None,
    column: str | None,
    n_split: int | None,
    n_chain: int,
    n_draw: int,
    seed: int,
) -> tuple[dict[str, Any], Any]:
    """Reads, fits, and leaves out: everything that needs JAX, with a spinner on a terminal."""
    from pathlib import Path

    from ..._inference_loader import inference
    from ...start_jax import start_jax
    from ..spinner import shown, spinner

    start_jax()
    with spinner("loading JAX") as tell:
        module = inference()
        import jax

        from ...io.write import run_record

        tell(f"reading {', '.join(files)}")
        measured = module.measured(files, model, **options)
        say(f"{measured.hygiene.n_kept:,} of {measured.hygiene.n_read:,} rows", detail=True)
        settings = _settings(module, n_chain, n_draw)
        fitted = module.fit(
            measured,
            model=model,
            method=method,
            key=jax.random.key(seed),
            settings=settings,
            progress=shown(tell, "fitting"),
            resume=None if out is None else Path(f"{out}.partial"),
            record=run_record({"files": files, "model": model, "method": method, **options}, seed),
        )
        summary = fitted.summary()
        if column is not None:
            tell(f"leaving out groups of {column}")
            scored = module.holdout(
                measured,
                model=model,
                column=column,
                key=jax.random.key(seed),
                method=None if method == "nuts" else method,  # as often as there are groups, nuts takes too long
                n_split=n_split,
                settings=settings,
                progress=shown(tell, f"leaving out groups of {column}"),
            )
            summary["holdout"] = scored.as_dict()
    return summary, fitted


def _settings(module: Any, n_chain: int, n_draw: int) -> Any:
    """Whole blocks of draws, and a warm-up that grows with them."""
    block = module.Settings.block
    whole = -(-n_draw // block) * block
    return module.Settings(
        n_chain=n_chain, n_draw=whole, n_warmup=max(module.Settings.n_warmup, -(-whole // (2 * block)) * block)
    )


def _keep(fitted: Any, out: str | None) -> None:
    if out is None:
        return
    from pathlib import Path

    fitted.save(out)
    Path(f"{out}.partial").unlink(missing_ok=True)
    say(f"wrote {out}")


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """{"duration": "time_ms"} of ["duration=time_ms"]."""
    from ...errors import DataError

    found: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (equals and name.strip() and value.strip()):
            raise DataError(f"{option} {text}: write COLUMN=VALUE, such as {option} duration=time_ms")
        found[name.strip()] = value.strip()
    return found

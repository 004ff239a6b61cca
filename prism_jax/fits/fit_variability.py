"""Fitting variability to measurements, and reading a kept fit; what `prism-jax fit` does."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from .._inference_loader import inference
from ..core.executor import Workers
from ..core.processes import TO_FIT, Progress, check_memory, part, silent
from ..core.read_file import check_input
from ..core.report import from_plain, to_plain
from ..core.use_case import OUTPUT, Argument, Message, Option, OptionGroup, use_case
from ..core.write_file import check_target, run_record
from ..result.parameters import Seed
from ..tables.column_map import pairs_of
from .curves import bandwidth_curves, replicated_values
from .models import CollectiveRun
from .report import FitReport, KeptFitReport

METHOD = (
    "nuts (exact), svi or map (checked approximations), least_squares (collectives); by default what suits the data."
)


@dataclass(frozen=True)
class FitParts:
    """Result of a fit and its files.

    Attributes:
        fit: what `prism_jax.fit` returns; an `inference.Fit`.
        out: where it was to be written.
        kept: where it was written; None if it was not. A fit that failed its checks is in net.failed.npz where net.npz was asked
            for.
    """

    fit: Any
    out: str | Path | None
    kept: Path | None


@dataclass(frozen=True)
class Columns(OptionGroup):
    """Reading of the files of a fit.

    Attributes:
        mapping: name of a column in the files.
        units: unit of a column: duration=ms.
        where: keep only rows with that value.
    """

    heading = "Reading the files"
    mapping: Annotated[Mapping[str, str] | None, Option("--map", "COLUMN=NAME", parse=pairs_of, is_repeated=True)] = (
        None
    )
    units: Annotated[Mapping[str, str] | None, Option("--unit", "COLUMN=UNIT", parse=pairs_of, is_repeated=True)] = None
    where: Annotated[Mapping[str, str] | None, Option("--where", "COLUMN=VALUE", parse=pairs_of, is_repeated=True)] = (
        None
    )


@dataclass(frozen=True)
class HoldoutChoice(OptionGroup):
    """Groups to leave out.

    Attributes:
        column: leave whole groups of a column out and score them.
        n_split: number of random halves (fleet) or of folds over the groups; default: what suits the model.
    """

    column: Annotated[str | None, Option("--holdout", "COLUMN")] = None
    n_split: Annotated[int | None, Option("--splits", "N", least=1, most=10_000)] = None


@dataclass(frozen=True)
class Posterior(OptionGroup):
    """Method by which the posterior is drawn.

    Attributes:
        n_chain: number of NUTS chains.
        n_draw: draws per chain, after at least half as many warm-up draws; up to three times as many where the chains need them.
        seed: same seed, same answer.
    """

    heading = "Sampling"
    method: Annotated[str | None, Option("--method", "NAME", help=METHOD)] = None
    n_chain: Annotated[int, Option("--chains", "N", least=1, most=64)] = 4
    n_draw: Annotated[int, Option("--draws", "N", least=50, most=100_000)] = 500
    seed: Seed = 0


def fit_messages(report: FitReport) -> list[Message]:
    """Messages on how many rows were used, where the fit is, and whether it failed."""
    rows, parts = report.fit.hygiene, report.parts
    told = [Message(f"{rows.n_kept:,} of {rows.n_read:,} rows", detail=True)]
    if parts.kept is not None:
        told.append(Message(f"wrote {parts.kept}"))
    if not report.fit.verdict.ok:
        where = (
            ""
            if parts.kept is None
            else (
                f". It is in {parts.kept}, not in {parts.out}: `predict --fit {parts.kept}` refuses it unless --force is given."
            )
        )
        told.append(
            Message(f"error: the fit failed its checks (see `remedy` in the report){where}", always=True, failed=True)
        )
    return told


@use_case(then=(fit_messages,))
def fit_variability(
    model: Annotated[str, Argument(metavar="MODEL")],
    files: Annotated[
        Sequence[str], Argument(metavar="FILE...", columns=(("the files", "prism_jax.fits.models:columns_of"),))
    ],
    *,
    out: Annotated[
        str | Path | None, Option("--output -o", "FILE", heading=OUTPUT, help="Save the fit (.npz).")
    ] = None,
    posterior: Posterior = Posterior(),
    holdout: HoldoutChoice = HoldoutChoice(),
    columns: Columns = Columns(),
    run: CollectiveRun = CollectiveRun(),
    workers: Workers = Workers(),
    progress: Progress = silent,
) -> FitReport:
    """Fit a model of variability to measurements.

    Args:
        model: fleet, steps, collectives or another name of `fits.models.MODELS`.
        files: CSV, parquet or log; a table of runs may be followed by the table of their steps.
        out: file for the fit (.npz); an interrupted fit with the same file goes on where it stopped. A fit that failed its
            checks is kept in `failed_name(out)` instead.
        posterior: method and draws of the posterior.
        holdout: groups to leave out and score.
        columns: names of columns, and rows to keep.
        run: collective, GPUs and nodes of the run, for logs that do not state them.
        workers: processes that share the fits without some groups.
        progress: told what is being done.

    Raises:
        DataError: the files cannot be read, or `out` cannot be written.
        FitError: the fit cannot be made.

    Example:
        >>> fit_variability("fleet", ["kernels.csv"], out="fleet.npz").fit.verdict.ok  # doctest: +SKIP
    """
    if out is not None:
        for target in (out, failed_name(out), _unfinished_name(out)):
            check_target(target)
    for file in files:
        check_input(file)
    check_memory(TO_FIT)
    module, method, seed = inference(), posterior.method, posterior.seed
    import jax  # here, so that mistakes above do not wait for it

    key = jax.random.key(seed)
    options = {"mapping": columns.mapping, "units": columns.units, "where": columns.where}
    options = {name: dict(value or {}) for name, value in options.items()}
    progress(0.0, f"reading {', '.join(files)}")
    measured = module.measured(list(files), model, collective=run, **options)
    if holdout.column is not None:  # refused now, and not after the fit
        module.splits_of_groups(measured, model=model, column=holdout.column, key=key, n_split=holdout.n_split)
    settings = _settings(module, posterior.n_chain, posterior.n_draw)
    inputs = {"files": list(files), "model": model, "method": method, **_stated(run), **options}
    fitted = module.fit(
        measured,
        model=model,
        method=method,
        key=key,
        settings=settings,
        progress=part(progress, "fitting"),
        resume=None if out is None else _unfinished_name(out),
        record=run_record(inputs, seed),
    )
    found = fitted.summary()
    if holdout.column is not None:
        what = f"leaving out groups of {holdout.column}"
        progress(0.0, what)
        scored = module.holdout(
            measured,
            model=model,
            column=holdout.column,
            key=key,
            method=None if method == "nuts" else method,  # as often as there are groups, nuts takes too long
            n_split=holdout.n_split,
            settings=settings,
            workers=workers,
            progress=part(progress, what),
        )
        found["holdout"] = scored.as_dict()
    return from_plain(FitReport, to_plain(found)).made_of(FitParts(fitted, out, _keep(fitted, out)))


def _stated(run: CollectiveRun) -> dict[str, Any]:
    """The options of a run, as they are recorded."""
    known = {"n_gpus": run.n_gpus, "n_nodes": run.n_nodes}
    return {"collective": run.collective, **{name: value for name, value in known.items() if value is not None}}


def failed_name(out: str | Path) -> Path:
    """File of a fit that failed its checks: net.failed.npz for net.npz."""
    return Path(out).with_suffix(f".failed{Path(out).suffix}")


def _unfinished_name(out: str | Path) -> Path:
    """File from which an interrupted fit goes on."""
    return Path(f"{out}.partial")


@use_case()
def report_fit(file: Annotated[str | Path, Argument(metavar="FILE")], *, loo: bool = False) -> KeptFitReport:
    """Show a saved fit and whether it can be trusted.

    Args:
        file: a fit saved by `prism-jax fit ... -o FILE`.
        loo: add the leave-one-out score (PSIS-LOO; needs ArviZ).

    Raises:
        DataError: the file is no fit.
        FitError: the model has no leave-one-out score, or ArviZ is not installed.

    Example:
        >>> report_fit("fleet.npz").fit.verdict.sentence  # doctest: +SKIP
    """
    if os.path.lexists(file):
        check_input(file)
    fitted = inference().Fit.load(str(file))
    checked = fitted.check()
    found = {**fitted.summary(), "checks": None if checked is None else checked.as_dict()}
    if loo:
        found["loo"] = fitted.loo()
    report = from_plain(KeptFitReport, to_plain(found))
    curves = bandwidth_curves(fitted.curves())
    return replace(
        report,
        bandwidths=curves or None,
        replicated=None if checked is None or curves else replicated_values(checked),
    )


def _settings(module: Any, n_chain: int, n_draw: int) -> Any:
    """Whole blocks of draws, and a warm-up that grows with them."""
    block = module.Settings.block
    whole = -(-n_draw // block) * block
    return module.Settings(
        n_chain=n_chain, n_draw=whole, n_warmup=max(module.Settings.n_warmup, -(-whole // (2 * block)) * block)
    )


def _keep(fitted: Any, out: str | Path | None) -> Path | None:
    if out is None:
        return None
    kept = Path(out) if fitted.verdict.ok else failed_name(out)
    fitted.save(str(kept))
    _unfinished_name(out).unlink(missing_ok=True)
    return kept

"""Fitting variability to measurements, and reading a kept fit; what `prism-jax fit` does."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.files import check_target
from .._core.input_file import check_input
from .._inference_loader import inference
from ..io.write import run_record
from ..progress import Progress, silent
from ..report.codec import from_plain, to_plain
from ..report.types.fit import FitReport, KeptFitReport
from .progress import part

if TYPE_CHECKING:
    from ..plot.figure import Figure


@dataclass(frozen=True)
class FitRun:
    """A fit with what its report is made of.

    Attributes:
        fit: what `prism_jax.fit` returns; an `inference.Fit`.
        kept: where it was written; None if it was not. A fit that failed its checks is in net.failed.npz where net.npz was asked
            for.
    """

    report: FitReport
    fit: Any
    kept: Path | None


@dataclass(frozen=True)
class KeptFitRun:
    """A kept fit with what its report is made of.

    Attributes:
        summary: what the picture is drawn from.
        checks: measured values against replicated ones; None where the model offers no replication.
        fit: the fit itself; an `inference.Fit`.
    """

    report: KeptFitReport
    summary: Mapping[str, Any]
    checks: Any
    fit: Any

    def figure(self) -> Figure:
        """Bandwidth by size of collectives; else shares of variance, and fitted rows against replicated ones."""
        from ..plot import plot_bandwidths, plot_fit  # here, so that reports without a picture do not pay for it

        curves = self.fit.curves()
        return plot_bandwidths(curves, self.summary) if curves else plot_fit(self.summary, self.checks)


@dataclass(frozen=True)
class Columns:
    """How to read the files of a fit.

    Attributes:
        mapping: column -> what it is called in the files.
        units: column -> its unit.
        where: column -> the value of the rows to keep.
    """

    mapping: Mapping[str, str]
    units: Mapping[str, str]
    where: Mapping[str, str]


@dataclass(frozen=True)
class Holdout:
    """Which groups to leave out.

    Attributes:
        column: whose groups.
        n_split: random halves, or folds that each group is in once; None: what suits the model.
    """

    column: str
    n_split: int | None = None


NO_COLUMNS = Columns({}, {}, {})


def fit_variability(model: str, files: Sequence[str], **options: Any) -> FitReport:
    """A model of variability fitted to measurements; arguments as those of `run_fit`.

    Example:
        >>> fit_variability("fleet", ["kernels.csv"], out="fleet.npz").fit.verdict.ok  # doctest: +SKIP
    """
    return run_fit(model, files, **options).report


def run_fit(
    model: str,
    files: Sequence[str],
    *,
    columns: Columns = NO_COLUMNS,
    collective: str | None = None,
    method: str | None = None,
    holdout: Holdout | None = None,
    n_chain: int = 4,
    n_draw: int = 500,
    out: str | Path | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> FitRun:
    """Fits a model of variability.

    Args:
        model: fleet, steps, collectives, kernels, overlap, failures, repairs, revocation, ladder, saves or startup.
        files: CSV, parquet or log; a table of runs may come with its steps.
        columns: what columns are called and which rows to keep.
        collective: all_reduce, ...: what was run, for logs of nccl-tests that do not say it.
        method: nuts, svi or map; None: what suits the model.
        holdout: groups to leave out and score.
        n_chain, n_draw: of nuts.
        out: where to keep the fit (.npz); an interrupted fit with the same file goes on where it stopped. A fit that failed its
            checks is kept in `failed_name(out)` instead.
        seed: same seed, same answer.
        progress: told what is being done.

    Raises:
        DataError: the files cannot be read, or `out` cannot be written.
        FitError: the fit cannot be made.
    """
    if out is not None:
        for target in (out, failed_name(out), _unfinished_name(out)):
            check_target(target)
    for file in files:
        check_input(file)
    module = inference()
    import jax  # here, so that mistakes above do not wait for it

    key = jax.random.key(seed)
    options = {"mapping": dict(columns.mapping), "units": dict(columns.units), "where": dict(columns.where)}
    progress(0.0, f"reading {', '.join(files)}")
    measured = module.measured(list(files), model, collective=collective, **options)
    settings = _settings(module, n_chain, n_draw)
    fitted = module.fit(
        measured,
        model=model,
        method=method,
        key=key,
        settings=settings,
        progress=part(progress, "fitting"),
        resume=None if out is None else _unfinished_name(out),
        record=run_record(
            {"files": list(files), "model": model, "method": method, "collective": collective, **options}, seed
        ),
    )
    found = fitted.summary()
    if holdout is not None:
        found["holdout"] = _left_out(module, measured, model, method, holdout, settings, key, progress)
    return FitRun(from_plain(FitReport, to_plain(found)), fitted, _keep(fitted, out))


def failed_name(out: str | Path) -> Path:
    """Where a fit is kept that failed its checks: net.failed.npz for net.npz."""
    return Path(out).with_suffix(f".failed{Path(out).suffix}")


def _unfinished_name(out: str | Path) -> Path:
    """What an interrupted fit goes on from."""
    return Path(f"{out}.partial")


def report_fit(file: str | Path, *, loo: bool = False) -> KeptFitReport:
    """What a kept fit says, and whether to trust it.

    Args:
        file: a fit kept by `prism-jax fit ... -o FILE`.
        loo: add the leave-one-out score (PSIS-LOO; needs ArviZ).

    Raises:
        DataError: the file is no fit.
        FitError: the model has no leave-one-out score, or ArviZ is not installed.

    Example:
        >>> report_fit("fleet.npz").fit.verdict.sentence  # doctest: +SKIP
    """
    return read_fit(file, loo=loo).report


def read_fit(file: str | Path, *, loo: bool = False) -> KeptFitRun:
    """A kept fit with its picture; arguments as those of `report_fit`."""
    if os.path.lexists(file):
        check_input(file)
    fitted = inference().Fit.load(str(file))
    checked = fitted.check()
    found = {**fitted.summary(), "checks": None if checked is None else checked.as_dict()}
    if loo:
        found["loo"] = fitted.loo()
    return KeptFitRun(from_plain(KeptFitReport, to_plain(found)), found, checked, fitted)


def _left_out(
    module: Any,
    measured: Any,
    model: str,
    method: str | None,
    holdout: Holdout,
    settings: Any,
    key: Any,
    progress: Progress,
) -> dict[str, Any]:
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
        progress=part(progress, what),
    )
    return scored.as_dict()


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

"""A site's calibration with what there is to say about it: errors before and after, by number of runs, and what moved.

Errors are relative, predicted over measured minus one. No run counts towards the error of a fit that has seen it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, islice
from math import comb
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from prism_jax.calibration.band import row_factors
from prism_jax.calibration.calibration import KNOBS, Calibration, linked, shipped
from prism_jax.calibration.surrogate import sensitivities, surrogate_seconds
from prism_jax.core.arrays import Floats
from prism_jax.core.executor import ALONE, Workers, answers_in_order
from prism_jax.core.processes import Progress, part_of, silent
from prism_jax.result.distribution import MedianInterval
from prism_jax.validation.calibration_report import (
    BandByStage,
    CorrectionFacts,
    CurvePoint,
    ErrorFacts,
    ErrorsByStage,
    Interval90,
    SiteReport,
    SiteRun,
)
from prism_jax.validation.job_table import MeasuredRun

from .site_density import SitePosterior, calibrate_site, of_site, posterior
from .site_runs import (
    SitePrior,
    SiteRuns,
    SiteTable,
    one_order,
    only,
    read_site_runs,
    run_corrections,
    site_prior,
    site_runs,
    some_of,
    two_softwares,
)
from .store import save

FEW = 12  # runs up to which several choices of the same number are averaged; of more, one choice by chance, which grows
MOST_CHOICES = 12  # of the runs that are seen, per number of runs
FEWEST = 3  # runs whose being left out tells whether they help each other
MOST_FOLDS = 40  # of more runs, several are left out at a time
SEED = 0


def predicted_s(calibration: Calibration, runs: SiteRuns) -> Floats:
    """[run] seconds of the median step at the mean of the calibration's knobs, with what carries over from measured runs."""
    correction = run_corrections(calibration, runs)
    carried = 0.0 if calibration.nearby is None else calibration.nearby.log_residual(sensitivities(runs, correction))
    return np.asarray(surrogate_seconds(runs, correction)) * np.exp(runs.left_out + carried)


def errors(calibration: Calibration, runs: SiteRuns) -> Floats:
    """[run] predicted over measured, minus one."""
    return predicted_s(calibration, runs) / np.exp(runs.log_measured) - 1.0


def bands(calibration: Calibration, runs: SiteRuns, seed: int = SEED) -> tuple[Floats, Floats]:
    """5% and 95% quantile [run] of what would be measured over what is predicted."""
    factors = np.empty((calibration.n_draw, runs.n_run))
    for index in np.unique(runs.kind):
        at = np.flatnonzero(runs.kind == index)
        has_experts = [bool(has) for has in runs.has_experts[at]]
        factors[:, at] = row_factors(some_of(runs, at), runs.kinds[index], has_experts, calibration, seed)
    low, high = np.quantile(factors, [0.05, 0.95], axis=0)
    return low, high


def learning_curve(
    calibration: Calibration,
    runs: SiteRuns,
    *,
    key: jax.Array,
    workers: Workers = ALONE,
    progress: Progress = silent,
) -> list[CurvePoint]:
    """Errors after 0, 1, ... runs; of many runs, after 1 to 12 and then powers of two."""
    points = [CurvePoint(0, 1, float(np.median(np.abs(errors(calibration, runs)))))]
    every = {size: _choices(runs.n_run, size) for size in _sizes(runs.n_run)}
    chosen = [one for choices in every.values() for one in choices]
    found = iter(_errors_of_others(calibration, runs, chosen, key, workers, progress))
    for size, choices in every.items():
        own = np.concatenate([next(found) for _ in choices])
        points.append(CurvePoint(size, len(choices), float(np.median(np.abs(own)))))
    return points


def left_out_errors(
    calibration: Calibration,
    runs: SiteRuns,
    *,
    key: jax.Array,
    workers: Workers = ALONE,
    progress: Progress = silent,
) -> Floats:
    """[run] error of every run when it was left out; of many runs, when its fold was. One run: before calibration."""
    found = errors(calibration, runs)
    n_fold = min(runs.n_run, MOST_FOLDS)
    if runs.n_run < 2:
        return found
    fold = np.arange(runs.n_run) % n_fold
    kept = [np.flatnonzero(fold != index) for index in range(n_fold)]
    for index, own in enumerate(_errors_of_others(calibration, runs, kept, key, workers, progress)):
        found[fold == index] = own
    return found


def _errors_of_others(
    calibration: Calibration,
    runs: SiteRuns,
    chosen: Sequence[NDArray[np.intp]],
    key: jax.Array,
    workers: Workers,
    progress: Progress,
) -> list[Floats]:
    """Errors of the runs that are not among those chosen [task][run], after a calibration with these."""
    one = partial(_fitted_to, calibration=calibration, runs=runs, key=key)
    return answers_in_order(one, chosen, workers, progress)


def _fitted_to(chosen: NDArray[np.intp], *, calibration: Calibration, runs: SiteRuns, key: jax.Array) -> Floats:
    left = np.setdiff1d(np.arange(runs.n_run), chosen)
    return errors(calibrate_site(calibration, only(runs, chosen), key=key), runs)[left]


def helps(before: Floats, left_out: Floats) -> bool:
    """Whether runs that are left out are predicted no worse than by what was known before; fewer than `FEWEST` cannot tell.

    Worse is worse by more than the standard error of the mean over the runs. Asked of any worsening, more is lost than saved: by
    chance, three runs say so of a third of the sites (56 published sites, in whose sight this was chosen).
    """
    worse = np.abs(np.log1p(left_out)) - np.abs(np.log1p(before))
    return len(worse) < FEWEST or bool(worse.mean() <= worse.std(ddof=1) / np.sqrt(len(worse)))


def _sizes(n_run: int) -> list[int]:
    doubled = [2**i for i in range(4, 12)]
    return [*range(1, min(n_run, FEW + 1)), *(size for size in doubled if FEW < size < n_run)]


def _choices(n_run: int, size: int) -> list[NDArray[np.intp]]:
    """Returns choices of the runs that are seen: all choices, some by chance, or one by chance, to which the next size adds."""
    if n_run > FEW:
        return [np.sort(np.random.default_rng(SEED).permutation(n_run)[:size])]
    if comb(n_run, size) <= MOST_CHOICES:
        return [np.array(chosen) for chosen in islice(combinations(range(n_run), size), MOST_CHOICES)]
    rng = np.random.default_rng([SEED, size])
    return [np.arange(size), *(np.sort(rng.permutation(n_run)[:size]) for _ in range(MOST_CHOICES - 1))]


Source = str | Path | Sequence[MeasuredRun]


@dataclass(frozen=True)
class SiteFit:
    """Result of `calibrate_runs`.

    Attributes:
        calibration: of this site; `before` where that is no worse on runs that are left out.
        before: of the population.
        table: the runs, and rows that could not be used, in the order of the table.
        runs: outlines, in an order that does not depend on it.
        place: [run] where the runs of the table stand among the outlines.
        curve: error on runs not seen, by number of runs seen.
        left_out: [run] relative error of every run when it was left out.
    """

    calibration: Calibration
    before: Calibration
    table: SiteTable
    runs: SiteRuns
    place: NDArray[np.intp]
    prior: SitePrior
    posterior: SitePosterior
    curve: tuple[CurvePoint, ...]
    left_out: Floats
    elapsed_s: float

    def save(self, path: str | Path) -> None:
        """Writes the calibration (.npz); `prism-jax predict --fit` uses it.

        Raises:
            DataError: the file cannot be written.
        """
        save(self.calibration, path)

    def report(self, notes: tuple[str, ...] | None = None) -> SiteReport:
        """Report as plain values, which `prism-jax calibrate` prints; seconds, fractions 0-1."""
        before, after = errors(self.before, self.runs), errors(self.calibration, self.runs)
        setting = self.runs.setting
        return SiteReport(
            generation=setting.generation,
            framework=setting.framework,
            device=setting.device,
            n_run=self.runs.n_run,
            dropped=dict(self.table.dropped),
            runs=self._runs(before, after),
            error=ErrorsByStage(_score(before), _score(after), _score(self.left_out)),
            curve=self.curve,
            corrections=self._corrections(),
            site_factor=_interval(np.exp(self.posterior.site)),
            band=BandByStage(_band(self.before, self.runs), _band(self.calibration, self.runs)),
            elapsed_s=self.elapsed_s,
            record=dict(self.calibration.record or {}),
            notes=(*(notes or ()), *self._two_softwares()) or None,
            shipped_stands=not helps(before, self.left_out) or None,
        )

    def _two_softwares(self) -> Iterator[str]:
        """Yields a warning if two runs made of the same parts are too far apart."""
        if found := two_softwares(self.before, self.runs):
            first, second = (self.table.runs[int(np.flatnonzero(self.place == index)[0])].id for index in found[:2])
            yield (
                f"{first} and {second} consist of the same parts, but {second} took {found[2]:.2f} times as long, prediction for "
                "prediction: two softwares or methods? Name them in a column version or method, and calibrate each with --only."
            )

    def _runs(self, before: Floats, after: Floats) -> tuple[SiteRun, ...]:
        first, then = predicted_s(self.before, self.runs), predicted_s(self.calibration, self.runs)
        columns = np.column_stack([first, then, before, after, self.left_out])[self.place].tolist()
        return tuple(SiteRun(run.id, run.measured_s, *own) for run, own in zip(self.table.runs, columns, strict=True))

    def _corrections(self) -> dict[str, CorrectionFacts]:
        """Corrections per knob in its own unit; `shift`: how far it moved, in standard deviations of the prior."""
        spread = np.sqrt((self.prior.factor**2).sum(axis=1))
        found = {}
        for index, knob in enumerate(KNOBS):
            drawn = self.posterior.knobs[:, index]
            stages = (self.prior.mean[index], drawn.mean(), np.quantile(drawn, 0.05), np.quantile(drawn, 0.95))
            moved = float(drawn.mean() - self.prior.mean[index])
            found[knob] = CorrectionFacts(*(float(linked(knob, x)) for x in stages), shift=moved / float(spread[index]))
        return found


def calibrate_runs(
    runs: Source,
    *,
    key: jax.Array,
    framework: str = "",
    only_version: str = "",
    calibration: Calibration | None = None,
    more: Sequence[MeasuredRun] = (),
    progress: Progress = silent,
    record: Mapping[str, Any] | None = None,
    workers: Workers = ALONE,
) -> SiteFit:
    """The shipped calibration, updated by measured runs of one cluster; three to five tell much.

    Args:
        runs: a table (CSV; see `read_site_runs`), or jobs with their measured seconds.
        key: seed of the draws; the same gives the same calibration.
        framework: training software of all runs, where they do not say.
        only_version: of the software, or method; only such runs of the table are used.
        calibration: what to start from; None: the shipped one.
        more: further jobs with their measured seconds, in addition to a table.
        progress: called with the share that is done.
        record: inputs and versions, kept with the result.
        workers: processes that share the calibrations by which errors fall with the number of runs.

    Raises:
        DataError: the runs cannot be read, or are of several device generations or frameworks.
        FitError: the calibration did not converge on them.
    """
    started = time.perf_counter()
    before = shipped() if calibration is None else calibration
    table = read_site_runs(runs, only_version) if isinstance(runs, (str, Path)) else SiteTable(tuple(runs), {})
    table = replace(table, runs=(*table.runs, *more))
    order = one_order(table.runs)
    made = some_of(site_runs(table.runs, before, framework, progress=part_of(progress, 0.0, 0.6)), order)
    prior = site_prior(before, made)
    found = posterior(prior, made, before.n_draw, key)
    after = of_site(before, found, made, record)
    curve = learning_curve(before, made, key=key, workers=workers, progress=part_of(progress, 0.6, 0.9))
    left_out = left_out_errors(before, made, key=key, workers=workers, progress=part_of(progress, 0.9, 1.0))
    if not helps(errors(before, made), left_out):
        after = replace(before, record=after.record)
    fit = SiteFit(after, before, table, made, np.argsort(order), prior, found, tuple(curve), left_out, 0.0)
    return replace(fit, elapsed_s=time.perf_counter() - started)


def _score(found: Floats) -> ErrorFacts:
    size = np.abs(found)
    return ErrorFacts(float(np.median(size)), float(size.mean()), float(found.mean()), float(size.max()))


def _band(calibration: Calibration, runs: SiteRuns) -> Interval90:
    """90% interval of measured over predicted, minus one: medians over the runs."""
    low, high = bands(calibration, runs)
    return Interval90(float(np.median(low)) - 1.0, float(np.median(high)) - 1.0)


def _interval(drawn: Floats) -> MedianInterval:
    low, middle, high = np.quantile(drawn, [0.05, 0.5, 0.95])
    return MedianInterval(float(middle), float(low), float(high))

"""A site's calibration with what there is to say about it: errors before and after, by number of runs, and what moved."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from prism_jax._typing import Floats
from prism_jax.calibration.calibration import KNOBS, Calibration, linked, shipped
from prism_jax.io.tables.job_table import MeasuredRun
from prism_jax.progress import Progress, part_of, silent
from prism_jax.report.types.site import (
    BandByStage,
    CorrectionFacts,
    CurvePoint,
    ErrorFacts,
    ErrorsByStage,
    Interval90,
    SiteReport,
    SiteRun,
)
from prism_jax.result.interval import MedianInterval

from ..store import save
from .calibrate_site import SitePosterior, of_site, posterior
from .curve import bands, errors, learning_curve, left_out_errors, predicted_s
from .prior import SitePrior, site_prior
from .read_runs import SiteTable, read_site_runs
from .runs import SiteRuns, one_order, site_runs, some_of

Source = str | Path | Sequence[MeasuredRun]


@dataclass(frozen=True)
class SiteFit:
    """What `calibrate_runs` found.

    Attributes:
        calibration: of this site.
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
        """Everything as a report: what `prism-jax calibrate` prints; seconds, fractions 0-1."""
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
            notes=notes,
        )

    def _runs(self, before: Floats, after: Floats) -> tuple[SiteRun, ...]:
        first, then = predicted_s(self.before, self.runs), predicted_s(self.calibration, self.runs)
        columns = np.column_stack([first, then, before, after, self.left_out])[self.place].tolist()
        return tuple(SiteRun(run.id, run.measured_s, *own) for run, own in zip(self.table.runs, columns, strict=True))

    def _corrections(self) -> dict[str, CorrectionFacts]:
        """Per knob in its own unit; `shift`: how far it moved, in standard deviations of the prior."""
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
    calibration: Calibration | None = None,
    more: Sequence[MeasuredRun] = (),
    progress: Progress = silent,
    record: Mapping[str, Any] | None = None,
) -> SiteFit:
    """The shipped calibration, updated by measured runs of one cluster; three to five tell much.

    Args:
        runs: a table (CSV; see `read_site_runs`), or jobs with their measured seconds.
        key: seed of the draws; the same gives the same calibration.
        framework: training software of all runs, where they do not say.
        calibration: what to start from; None: the shipped one.
        more: further jobs with their measured seconds, beside a table.
        progress: called with the share that is done.
        record: inputs and versions, kept with the result.

    Raises:
        DataError: the runs cannot be read, or are of several device generations or frameworks.
        FitError: the calibration did not converge on them.
    """
    started = time.perf_counter()
    before = shipped() if calibration is None else calibration
    table = read_site_runs(runs) if isinstance(runs, (str, Path)) else SiteTable(tuple(runs), {})
    table = replace(table, runs=(*table.runs, *more))
    order = one_order(table.runs)
    made = some_of(site_runs(table.runs, before, framework, progress=part_of(progress, 0.0, 0.6)), order)
    prior = site_prior(before, made.setting)
    found = posterior(prior, made, before.n_draw, key)
    after = of_site(before, found, made, record)
    curve = learning_curve(before, made, key=key, progress=part_of(progress, 0.6, 0.9))
    left_out = left_out_errors(before, made, key=key, progress=part_of(progress, 0.9, 1.0))
    fit = SiteFit(after, before, table, made, np.argsort(order), prior, found, tuple(curve), left_out, 0.0)
    return replace(fit, elapsed_s=time.perf_counter() - started)


def _score(found: Floats) -> ErrorFacts:
    size = np.abs(found)
    return ErrorFacts(float(np.median(size)), float(size.mean()), float(found.mean()), float(size.max()))


def _band(calibration: Calibration, runs: SiteRuns) -> Interval90:
    """90 % interval of measured over predicted, minus one: medians over the runs."""
    low, high = bands(calibration, runs)
    return Interval90(float(np.median(low)) - 1.0, float(np.median(high)) - 1.0)


def _interval(drawn: Floats) -> MedianInterval:
    low, middle, high = np.quantile(drawn, [0.05, 0.5, 0.95])
    return MedianInterval(float(middle), float(low), float(high))

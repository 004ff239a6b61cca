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

from ..store import save
from .calibrate_site import SitePosterior, of_site, posterior
from .curve import CurvePoint, bands, errors, learning_curve, left_out_errors, predicted_s
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

    def summary(self) -> dict[str, Any]:
        """Everything in plain types: seconds, fractions 0-1; what `prism-jax calibrate --json` prints."""
        before, after = errors(self.before, self.runs), errors(self.calibration, self.runs)
        return {
            **{name: getattr(self.runs.setting, name) for name in ("generation", "framework", "device")},
            "n_run": self.runs.n_run,
            "dropped": dict(self.table.dropped),
            "runs": self._runs(before, after),
            "error": {"before": _score(before), "after": _score(after), "leave_one_out": _score(self.left_out)},
            "curve": [
                {"n_run": p.n_run, "n_choice": p.n_choice, "median_ape": p.median_ape} for p in self.curve
            ],
            "corrections": self._corrections(),
            "site_factor": _interval(np.exp(self.posterior.site)),
            "band": {"before": _band(self.before, self.runs), "after": _band(self.calibration, self.runs)},
            "elapsed_s": self.elapsed_s,
            "record": dict(self.calibration.record or {}),
        }  # fmt: skip

    def _runs(self, before: Floats, after: Floats) -> list[dict[str, Any]]:
        first, then = predicted_s(self.before, self.runs), predicted_s(self.calibration, self.runs)
        return [
            {
                "id": run.id,
                "measured_s": run.measured_s,
                "before_s": float(first[i]),
                "after_s": float(then[i]),
                "error_before": float(before[i]),
                "error_after": float(after[i]),
                "error_left_out": float(self.left_out[i]),
            }
            for i, run in zip(self.place.tolist(), self.table.runs, strict=True)
        ]

    def _corrections(self) -> dict[str, dict[str, float]]:
        """Per knob in its own unit; `shift`: how far it moved, in standard deviations of the prior."""
        spread = np.sqrt((self.prior.factor**2).sum(axis=1))
        found = {}
        for index, knob in enumerate(KNOBS):
            drawn = self.posterior.knobs[:, index]
            moved = float(drawn.mean() - self.prior.mean[index])
            found[knob] = {
                "before": float(linked(knob, self.prior.mean[index])),
                "after": float(linked(knob, drawn.mean())),
                "p5": float(linked(knob, np.quantile(drawn, 0.05))),
                "p95": float(linked(knob, np.quantile(drawn, 0.95))),
                "shift": moved / float(spread[index]),
            }
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


def _score(found: Floats) -> dict[str, float]:
    size = np.abs(found)
    return {
        "median_ape": float(np.median(size)),
        "mape": float(size.mean()),
        "bias": float(found.mean()),
        "largest": float(size.max()),
    }


def _band(calibration: Calibration, runs: SiteRuns) -> dict[str, float]:
    """90 % interval of measured over predicted, minus one: medians over the runs."""
    low, high = bands(calibration, runs)
    return {"p5": float(np.median(low)) - 1.0, "p95": float(np.median(high)) - 1.0}


def _interval(drawn: Floats) -> dict[str, float]:
    low, middle, high = np.quantile(drawn, [0.05, 0.5, 0.95])
    return {"median": float(middle), "p5": float(low), "p95": float(high)}

"""Fits the law of drift to runs of several sources, and its errors to sources that were left out.

All sources count alike, and within one a group counts by the root of its runs. Weak priors hold what few sources say little
about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from experiments.held_out_runs.runs import HeldOutRun
from prism_jax.core.arrays import Floats
from prism_jax.watch.remaining import HORIZON, DriftLaw, Traits

SPANS = (1.0, 3.0, HORIZON)  # later entries over first ones that are fitted to
TAILS = 3.0  # degrees of freedom of the Student-t that the fit is robust by
WORTH = 450.0  # runs that all sources together count for, against the priors
LEVELS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.175, 0.25, 0.375, 0.5, 0.625, 0.75, 0.825, 0.9, 0.95, 0.975, 0.99, 0.995)
# means and standard deviations of the priors: ln k, gamma, h, ln c_stalls, ln c_change
PRIORS = {1: (3.0, 1.0), 3: (0.5, 0.5), 4: (0.25, 0.25), 5: (-1.0, 1.0), 6: (-1.0, 1.0)}
START = np.array([0.1, 3.0, np.log(0.003), 0.5, 0.25, -1.0, -1.0])


@dataclass(frozen=True)
class Cuts:
    """Runs cut after their first tenth, each with several spans of later entries; every array is [cut].

    Attributes:
        source, group: of the run.
        log_ratio: logarithm of the later mean over the first level.
        n_later: later entries.
        span: later entries over first ones, of `SPANS`.
        run: index of the run.
    """

    source: NDArray
    group: NDArray
    traits: Traits
    log_ratio: Floats
    n_later: Floats
    span: Floats
    run: NDArray

    def chosen(self, rows: NDArray) -> Cuts:
        """Some of them."""
        parts = {name: getattr(self, name)[rows] for name in ("source", "group", "log_ratio", "n_later", "span", "run")}
        return Cuts(traits=Traits(*np.array(self.traits)[:, rows]), **parts)

    @property
    def weight(self) -> Floats:
        """Sources alike, groups by the root of their size; sums to one."""
        share = np.empty(len(self.source))
        for source in np.unique(self.source):
            rows = self.source == source
            _, group, size = np.unique(self.group[rows], return_inverse=True, return_counts=True)
            own = 1.0 / np.sqrt(size[group])
            share[rows] = own / own.sum()
        return share / share.sum()


def cuts_of(runs: Sequence[HeldOutRun]) -> Cuts:
    """All spans of all runs, the longest being all that is left."""
    traits = [Traits.of(run.first_s) for run in runs]
    rows = [(i, span) for i in range(len(runs)) for span in SPANS]
    later = [_later(runs[i], span) for i, span in rows]
    return Cuts(
        source=np.array([runs[i].source for i, _ in rows]),
        group=np.array([runs[i].group for i, _ in rows]),
        traits=Traits.stacked([traits[i] for i, _ in rows]),
        log_ratio=np.array(
            [np.log(runs[i].later_s(n) / traits[i].level_s) for (i, _), n in zip(rows, later, strict=True)]
        ),
        n_later=np.array(later, float),
        span=np.array([span for _, span in rows]),
        run=np.array([i for i, _ in rows]),
    )


def _later(run: HeldOutRun, span: float) -> int:
    return len(run.total_s) if span == HORIZON else min(int(span * run.n_first), len(run.total_s))


def fit_drift(cuts: Cuts) -> DriftLaw:
    """The most probable law, without its errors."""
    weight = WORTH * cuts.weight

    def cost(p: Floats) -> float:
        law = _law(p)
        sd = np.sqrt(sum(law.variances(cuts.traits, cuts.n_later)))
        u = (cuts.log_ratio - law.location(cuts.traits)) / sd
        loss = weight @ (np.log(sd) + 0.5 * (TAILS + 1.0) * np.log1p(u**2 / TAILS))
        return loss + 0.5 * sum(((p[i] - mean) / spread) ** 2 for i, (mean, spread) in PRIORS.items())

    return _law(minimize(cost, START, method="BFGS", options={"gtol": 1e-3 * WORTH**0.5}).x)


def _law(p: Floats) -> DriftLaw:
    k, drift, stalls, change = np.exp(p[[1, 2, 5, 6]]).tolist()
    return DriftLaw(float(p[0]) / 100.0, k, drift, float(p[3]), float(p[4]), stalls, change)


def law_with_errors(cuts: Cuts) -> DriftLaw:
    """The law of all cuts; its errors are those of every source under the law of the others."""
    u = np.empty(len(cuts.source))
    for source in np.unique(cuts.source):
        own = cuts.source == source
        u[own] = errors(fit_drift(cuts.chosen(~own)), cuts.chosen(own))
    return replace(fit_drift(cuts), levels=LEVELS, errors=tuple(_quantiles(u, cuts.weight).tolist()))


def errors(law: DriftLaw, cuts: Cuts) -> Floats:
    """[cut] in standard deviations."""
    sd = np.sqrt(sum(law.variances(cuts.traits, cuts.n_later)))
    return (cuts.log_ratio - law.location(cuts.traits)) / sd


def _quantiles(values: Floats, weight: Floats) -> Floats:
    order = np.argsort(values)
    below = np.cumsum(weight[order]) - 0.5 * weight[order]
    return np.interp(LEVELS, below, values[order])

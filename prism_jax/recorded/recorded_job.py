"""RecordedJob: everything that was learned from the recorded steps of a job, ready to draw new ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.arrays import Floats
from ..trace.dependencies import Dependencies, Waits, observed_waits, work
from ..trace.pipeline import dependencies
from ..trace.trace import Trace
from .effects import Effects, fit_effects
from .kernel_draws import KernelDraws, kernel_draws
from .prediction import MomentMatch

IDENTITY = MomentMatch()


@dataclass(frozen=True)
class RecordedJob:
    """A fitted job.

    Attributes:
        trace: the recorded steps.
        waits: its dependencies, with the waits that only the times show.
        run_s: [op, replica, step] seconds of work.
        gap_s: [op, replica, step] seconds of host gaps.
        effects: what the compute of micro-batches shares; None if there is no compute.
        agreement: of drawn with recorded steps; perfect unless they were held against each other (`unseen_steps.match_moments`).
        kernels: own parts of the kernels inside the compute, to be drawn anew; None where the trace has no kernels.
    """

    trace: Trace
    waits: Waits
    run_s: Floats
    gap_s: Floats
    effects: Effects | None
    agreement: MomentMatch = IDENTITY
    kernels: KernelDraws | None = None

    @property
    def shared_s(self) -> Floats:
        """[op, replica, step] seconds of work without what is a kernel's own."""
        return self.run_s if self.kernels is None else self.run_s * self.kernels.shared


def fit_job(trace: Trace) -> RecordedJob:
    """Fits a recorded job, from which steps that were not recorded are drawn.

    Where fewer replicas were recorded than the job has, meetings of all replicas are counted without the wait for missing ones.
    """
    waits = observed_waits(trace, dependencies(trace))
    run_s, gap_s = work(trace, waits)
    run_s = _without_absent(run_s, waits.needs, trace.n_replica / trace.job.dp)
    own = None if trace.kernels is None else kernel_draws(trace.kernels, run_s)
    effects = fit_effects(trace, run_s if own is None else run_s * own.shared)
    return RecordedJob(trace, waits, run_s, gap_s, effects, kernels=own)


def _without_absent(run_s: Floats, needs: Dependencies, share: float) -> Floats:
    """Transfers across replicas of which only a share was looked at.

    The last replica of a step is a recorded one with probability `share`; else the transfer contains the wait for it. So the
    shortest `share` of the steps are free of it; the other steps take their values.
    """
    n_step = run_s.shape[-1]
    n_free = max(1, round(share * n_step))
    if n_free >= n_step:
        return run_s
    cleaned = run_s.copy()
    for op in np.flatnonzero(needs.meets_replicas):
        order = np.argsort(run_s[op].mean(axis=0))
        cleaned[op][:, order] = run_s[op][:, order[np.arange(n_step) % n_free]]
    return cleaned

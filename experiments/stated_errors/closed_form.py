"""Data-parallel jobs whose quantiles are known, by quadrature in float64.

Nothing overlaps, so that with M the slowest of n GPUs, R the regime of the network and E the exponential extra time of a stall,

    T = (b M + d R + c) (1 + E),    P(M <= f) = F(f)^n

where b is the compute of the noise-free step, d its reduction and c what is left; E is zero where the step does not stall.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from prism_jax.job.job import Job
from prism_jax.plan.plan import Overlap
from prism_jax.simulate.inputs import deterministic
from prism_jax.simulate.program import lower
from prism_jax.variability.families import CONSTANT, Family
from prism_jax.variability.tree import Stall, Variability

from .jobs import compute_varies, job_of, network_varies

Z_MAX, N_SCORE, N_REGIME, N_TIME, N_STALL = 8.0, 20_001, 601, 8_001, 4_001
NO_STALL = Stall()


@dataclass(frozen=True)
class ClosedForm:
    """A data-parallel job.

    Attributes:
        dp: GPUs.
        gpu: persistent factor of a GPU's compute.
        regime: factor of the reduction of a step.
        stall: of the step.
    """

    dp: int
    gpu: Family
    regime: Family = CONSTANT
    stall: Stall = NO_STALL

    @property
    def job(self) -> Job:
        """The job; nothing else of it varies."""
        classes = compute_varies(gpu=self.gpu) | network_varies(regime=self.regime)
        tree = Variability("closed form", classes, stalls=(self.stall,))
        return job_of(tree, dp=self.dp, overlap=Overlap(dp=False, pp=False))

    def quantiles_s(self, levels: Sequence[float]) -> Float[np.ndarray, " level"]:
        """Exact quantiles of the step time, seconds."""
        time_s, below = self._unstalled()
        prob, mean = self.stall.prob(self.dp), self.stall.mean_fraction
        if prob == 0.0 or mean == 0.0:
            return np.interp(levels, below, time_s)
        share = (np.arange(N_STALL) + 0.5) / N_STALL
        of_step_s = np.interp(share, below, time_s)
        reach_s = np.concatenate([time_s, time_s[-1] * (1.0 + mean * np.linspace(0.001, 30.0, N_TIME))])
        lasting = [np.exp(-np.maximum(t / of_step_s - 1.0, 0.0) / mean).mean() for t in reach_s]
        beyond = (1.0 - prob) * (1.0 - np.interp(reach_s, time_s, below, right=1.0)) + prob * np.array(lasting)
        return np.interp(levels, 1.0 - beyond, reach_s)

    def _unstalled(self) -> tuple[Float[np.ndarray, " time"], Float[np.ndarray, " time"]]:
        """Times, seconds, and the probability that a step without stall takes at most so long."""
        program = lower(self.job)
        reduction_s = float(program.graph.end_comm_s.max())
        compute_s = float(program.graph.compute_s.sum() + program.graph.end_compute_s.max())
        rest_s = deterministic(program) - compute_s - reduction_s
        edges = np.linspace(-Z_MAX, Z_MAX, N_REGIME + 1)
        regime = self.regime.ppf_normal(0.5 * (edges[1:] + edges[:-1]))
        score = np.linspace(-Z_MAX, Z_MAX, N_SCORE)
        factor = self.gpu.ppf_normal(score)
        shift_s = rest_s + reduction_s * regime
        ends = np.interp([1e-9, 1.0 - 1e-9], ndtr(score) ** self.dp, factor)
        time_s = np.linspace(shift_s[0] + compute_s * ends[0], shift_s[-1] + compute_s * ends[1], N_TIME)
        below = np.zeros(N_TIME)
        for shift, mass in zip(shift_s, np.diff(ndtr(edges)), strict=True):
            below += mass * ndtr(np.interp((time_s - shift) / compute_s, factor, score)) ** self.dp
        return time_s, below

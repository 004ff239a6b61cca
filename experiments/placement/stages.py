"""p95 of a job with one slow node, by the pipeline stage that the node sits in."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from prism_jax import Job
from prism_jax.placement.draws import Draws
from prism_jax.placement.evaluator import problem_of, score
from prism_jax.placement.fleet import fleet_of
from prism_jax.result.objective import OBJECTIVES, PlanObjective

N_BATCH = 8  # of the draws, so that few are in memory at once


@dataclass(frozen=True)
class Stages:
    """p95 with one slow node, by the stage it sits in.

    Attributes:
        slowdown: of the node.
        over: [stage] p95 over the p95 without a slow node.
    """

    slowdown: float
    over: np.ndarray

    @property
    def spread(self) -> float:
        """p95 of the worst stage over that of the best, less one."""
        return float(self.over.max() / self.over.min() - 1.0)

    @property
    def inner_spread(self) -> float:
        """The same without the first and the last stage, which hold the embedding, the head, or a layer less."""
        return float(self.over[1:-1].max() / self.over[1:-1].min() - 1.0)


def by_stage(job: Job, slowdown: float, n_sample: int, seed: int) -> Stages:
    """One slow node in every stage in turn, in the first replica; all other nodes are nominal."""
    n_node = job.plan.n_devices // job.cluster.node_size
    slow = np.ones(n_node)
    slow[0] = slowdown
    problem = problem_of(job, fleet_of(slow, job.cluster.node_size))
    seats = []
    for lane in range(problem.slots.n_lane):
        seat, slot = np.arange(n_node, dtype=np.int32), int(problem.slots.slot[lane, 0, 0])
        seat[[0, slot]] = seat[[slot, 0]]
        seats.append(seat)
    draws = Draws(jax.random.key(seed), n_sample)
    alike = problem_of(job, fleet_of(np.ones(n_node), job.cluster.node_size))
    size = max(8, n_sample // N_BATCH)
    p95 = PlanObjective(OBJECTIVES.named("p95"))
    base = p95.of(score(alike, np.arange(n_node, dtype=np.int32)[None], draws, chunk=size))[0]
    return Stages(slowdown, p95.of(score(problem, np.stack(seats), draws, chunk=size)) / base)

"""A policy of one's own is known by its name and obeyed."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prism_jax.queue.jobs import QueuedJobs
from prism_jax.queue.policies import POLICIES, QueuePolicy, QueueView
from prism_jax.queue.simulator import simulate
from prism_jax.queue.world import World


@dataclass(frozen=True)
class SmallestFirst(QueuePolicy):
    """Jobs of few GPUs first."""

    name: ClassVar[str] = "smallest"
    about: ClassVar[str] = "fewest GPUs first"

    def rank(self, job: int, view: QueueView) -> float:
        return view.gpus[job]


def test_a_policy_of_a_caller_decides_who_runs():
    seconds = np.array([10.0, 10.0, 10.0])
    jobs = QueuedJobs(np.array([0.0, 1.0, 2.0]), np.array([2, 2, 1], np.int32), seconds)
    world = World(jobs, np.ones(2), seconds, seconds, seconds + 1e9, 0)
    with POLICIES.with_item(SmallestFirst()):
        assert simulate(world, POLICIES.named("smallest")).end_s.tolist() == [10.0, 30.0, 20.0]

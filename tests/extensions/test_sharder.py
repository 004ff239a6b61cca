"""A sharder of one's own is known by its name, and the search is never worse than it."""

from dataclasses import dataclass

import numpy as np

from prism_jax.result.objective import OBJECTIVES, PlanObjective
from prism_jax.sharding.problem import ShardingProblem
from prism_jax.sharding.search import shard
from prism_jax.sharding.sharders import SHARDERS
from prism_jax.sharding.task import Exchange, ShardingTask, StepRest, free
from prism_jax.system import catalog as systems
from prism_jax.workload.dlrm.lookup_law import lookup_law
from prism_jax.workload.dlrm.tables import EmbeddingTable


@dataclass(frozen=True)
class LargestApart:
    """Tables by size, back and forth over the GPUs."""

    name: str = "largest_apart"
    about: str = "tables by size, back and forth over the GPUs"

    def assign(self, task: ShardingTask, rng: np.random.Generator) -> np.ndarray:
        n, pieces = task.n_ranks, task.pieces
        turn = np.arange(len(pieces)) % (2 * n)
        codes = np.empty(len(pieces), np.int64)
        codes[np.argsort(-pieces.rows * pieces.dims, kind="stable")] = np.minimum(turn, 2 * n - 1 - turn)
        return codes


def test_a_sharder_of_a_caller_is_a_baseline():
    tables = tuple(EmbeddingTable(f"t{i}", 1000 * (i + 1), 32, 1.0 + i) for i in range(6))
    law = lookup_law(systems.device("a100-80gb"), 40e6)
    problem = ShardingProblem(tables, 2, 4096, law, 1e10, StepRest(Exchange(free)), split=False)
    with SHARDERS.with_item(LargestApart()):
        result = shard(problem, PlanObjective(OBJECTIVES.named("mean")), seed=0)
    assert result.assignments["largest_apart"].codes == (1, 0, 0, 1, 1, 0)
    assert result.value()[0] <= result.value("largest_apart")[0]

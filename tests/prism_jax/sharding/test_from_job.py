"""The step of the search is that of the cost model, whatever the sharding, and mistakes are told before the search."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.cost.step import step_cost
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.plan.fields import TableShard, TableSharding, parse_shard
from prism_jax.sharding.assignment import Assignment, steps
from prism_jax.sharding.from_job import own_assignment, problem_of
from prism_jax.sharding.problem import Cut, ShardingProblem
from prism_jax.sharding.sharders import SHARDERS, greedy, predicted_s


def assignment_of(problem: ShardingProblem, texts: Mapping[str, str]) -> Assignment:
    """The assignment that job files write so; parts without devices go where the greedy rule on predicted seconds puts them."""
    own = [parse_shard(texts.get(table.name, "table")) for table in problem.tables]
    cuts = tuple(_cut(problem, shard) for shard in own)
    fixed = np.concatenate([_codes(problem, shard, cut) for shard, cut in zip(own, cuts, strict=True)])
    task = problem.task(cuts)
    return Assignment(cuts, tuple(greedy(task, predicted_s(task), fixed).tolist()))


def _cut(problem: ShardingProblem, shard: TableShard) -> Cut:
    if shard.way == "column":
        return Cut(1, shard.n_part)
    by_rows = shard.way == "row" and (shard.devices or 0 < shard.n_part < problem.n_ranks)
    return Cut(shard.n_part or len(shard.devices), 1) if by_rows else Cut()


def _codes(problem: ShardingProblem, shard: TableShard, cut: Cut) -> np.ndarray:
    """Codes of its parts, -1 where they are open."""
    if shard.way == "dp":
        return np.array([problem.n_ranks + 1])
    if shard.way == "row" and cut.rows == 1 and not shard.devices:
        return np.array([problem.n_ranks])
    return np.array(shard.devices or (-1,) * (cut.rows * cut.columns))


def eight_gpus(*more: str) -> Job:
    """DLRM-DCNv2 on one node."""
    return load_job("dlrm_dcnv2_64", ["cluster.n_devices=8", "plan.dp=8", "plan.global_batch=55296", *more])


def cost_model_s(job: Job, sharding: TableSharding) -> float:
    """Noise-free step with that sharding."""
    plan = replace(job.plan, tables=sharding)
    cost = step_cost(job.model, job.cluster, plan, job.efficiency)
    passes = plan.n_micro_batch * float(cost.compute_s.sum() + cost.comm_s.sum())
    return passes + float(cost.end_compute_s[0] + cost.end_comm_s[0])


def written(job: Job, shards: tuple[TableShard, ...]) -> TableSharding:
    """As a plan has it."""
    return TableSharding(tuple(zip([table.name for table in problem_of(job).tables], shards, strict=True)))


@pytest.mark.parametrize("more", [(), ("software.cuda_graphs=none",), ("plan.micro_batch=3456",)])
def test_the_step_is_that_of_the_cost_model(more: tuple[str, ...]):
    job = eight_gpus(*more)
    problem = problem_of(job)
    own = own_assignment(job)
    assert steps(problem.task(own.cuts), own.columns)[0, 0] == pytest.approx(
        cost_model_s(job, job.plan.tables), rel=1e-12
    )
    mixed = {
        "t0": "column:2@3,4",
        "t9": "row:4@0,1,2,3",
        "t20": "row",
        "t5": "dp",
        "t21": "table@7",
        "t14": "row:2@6,1",
    }
    cases = [assignment_of(problem, mixed)]
    cases += [
        Assignment(problem.uncut, tuple(SHARDERS.named(name).assign(problem.task(problem.uncut), _rng()).tolist()))
        for name in ("random", "lpt")
    ]
    for one in cases:
        found = float(steps(problem.task(one.cuts), one.columns)[0, 0])
        assert found == pytest.approx(cost_model_s(job, written(job, one.shards(8))), rel=4e-3)


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_written_and_read_again_is_the_same_assignment():
    problem = problem_of(eight_gpus())
    texts = {"t0": "column:2@3,4", "t9": "row:4@0,1,2,3", "t20": "row", "t5": "dp", "t21": "table@7"}
    one = assignment_of(problem, texts)
    names = [table.name for table in problem.tables]
    again = assignment_of(problem, {name: str(shard) for name, shard in zip(names, one.shards(8), strict=True)})
    assert again == one
    shown = {name: str(shard) for name, shard in zip(names, one.shards(8), strict=True)}
    assert {name: shown[name] for name in texts} == texts


def test_look_ups_at_their_mean_are_the_noise_free_step():
    problem = replace(problem_of(eight_gpus()), spread=(0.2,) * 26, _known={})
    own = own_assignment(eight_gpus())
    plain = steps(problem.task(own.cuts), own.columns)
    drawn = steps(problem.task(own.cuts, np.ones((26, 3))), own.columns)
    assert drawn == pytest.approx(np.repeat(plain, 3, axis=1), rel=1e-12)
    more = steps(problem.task(own.cuts, np.full((26, 1), 1.5)), own.columns)
    assert more > plain


def test_more_gpus_than_whole_tables_and_models_without_tables_are_refused():
    with pytest.raises(DataError, match="only 26 tables.*Let tables be split, or use at most 26"):
        problem_of(load_job("dlrm_dcnv2_64", []), split=False)
    with pytest.raises(DataError, match="has no embedding tables"):
        problem_of(load_job("llama2_7b_fsdp_64", []))

"""A job of 16 GPUs and a space of a few hundred plans around it."""

from dataclasses import replace

import pytest

from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.search.evaluate import Evaluator
from prism_jax.search.space import PlanSpace
from prism_jax.variability.config import preset
from tests.support.jobs import stated

SMALL = ["plan.sharding=none", "plan.dp=16", "plan.global_batch=64", "plan.micro_batch=1", "cluster.n_devices=16"]


@pytest.fixture(scope="session")
def job() -> Job:
    loaded = load_job("llama2_7b_fsdp_64", SMALL)
    return stated(replace(loaded, variability=preset("a100-default")))


@pytest.fixture(scope="session")
def space() -> PlanSpace:
    return PlanSpace(
        n_devices=(16,),
        tp=(1, 2, 4),
        pp=(1, 2, 4),
        cp=(1, 2),
        ep=(1,),
        micro_batch=(1, 2),
        virtual_stages=(1, 2),
        recompute=("none", "full"),
        zero_stage=(0, 1),
        sequence_parallel=(0, 1),
        overlap_tp=(0,),
        overlap_dp=(0, 1),
    )


@pytest.fixture(scope="session")
def evaluator(job: Job, space: PlanSpace) -> Evaluator:
    return Evaluator(job, space)

"""A job of ours, written down as a capture, costs what the job costs."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.capture.spec.run import axis_bytes, captured, overlap, products, stated
from prism_jax import load_job
from prism_jax.cost.step import step_cost

NARROW = ["cluster.n_devices=128", "plan.dp=auto", "plan.global_batch=64"]
PARTS = ("compute_s", "comm_s", "hidden_comm_s", "p2p_s", "end_compute_s", "end_comm_s")
JOBS = (("llama3_405b_8192", NARROW), ("bert_large_1024", []), ("vit_h_14_64", []))


@pytest.mark.parametrize(("name", "overrides"), JOBS)
def test_every_part_of_the_step_is_the_same(name: str, overrides: list[str]):
    job = stated(load_job(name, overrides))
    own = captured(job)
    before, after = (step_cost(one.model, one.cluster, one.plan, job.efficiency) for one in (job, own))
    for part in PARTS:
        np.testing.assert_allclose(getattr(after, part), getattr(before, part), rtol=1e-6, err_msg=part)


@pytest.mark.parametrize(("name", "overrides"), JOBS)
def test_products_and_bytes_are_the_same(name: str, overrides: list[str]):
    job = load_job(name, overrides)
    own = captured(job)
    assert overlap(products(job.model, job.plan), products(own.model, own.plan)) > 0.9999
    before, after = axis_bytes(job.model, job.plan), axis_bytes(own.model, own.plan)
    assert dict(after) == pytest.approx(dict(before), rel=1e-6)


def test_sharded_parameters_are_gathered_ahead_and_mostly_hidden():
    job = stated(load_job("llama2_7b_fsdp_64"))
    own = captured(job)
    before, after = (step_cost(one.model, one.cluster, one.plan, job.efficiency) for one in (job, own))
    assert after.compute_s.sum() == pytest.approx(before.compute_s.sum(), rel=0.03)
    total = [cost.comm_s.sum() + cost.hidden_comm_s.sum() for cost in (before, after)]
    assert total[1] == pytest.approx(total[0], rel=1e-3)
    assert after.hidden_comm_s.sum() > 0.9 * total[1]


def test_memory_is_that_of_the_job():
    job = stated(load_job("vit_h_14_64"))
    own = captured(job)
    for part in ("parameters", "gradients", "optimizer"):
        assert own.memory.as_dict()[part] == pytest.approx(job.memory.as_dict()[part], rel=1e-6)
    assert replace(own, name="x").model == own.model

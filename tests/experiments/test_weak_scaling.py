"""Weak-scaling families of a table, and the change of their throughput."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.step_tables.records import StepRecord
from experiments.weak_scaling.families import families_of
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.validation.score import MeasuredRow
from prism_jax.workload.catalog import model

SIZES = (8, 16, 64)
RECORD = StepRecord("one", "site", "llama", gpu="h100-sxm", global_batch=8)


def table(sizes=SIZES, batch_per_gpu=1):
    records = [replace(RECORD, id=str(n), n_gpus=n, global_batch=n * batch_per_gpu) for n in sizes]
    return records, [row_of(n) for n in sizes]


def row_of(n):
    plan = ParallelPlan(micro_batch=1, global_batch=n, seq_len=4096, dp=n)
    return MeasuredRow(str(n), "site", 1.0 + n / 100, None, model("llama2-7b"), catalog.cluster("dgx-h100", n), plan)


def test_one_configuration_on_three_sizes_is_a_family():
    (family,) = families_of(*table())
    assert family.sizes == SIZES
    assert family.is_expressible


@pytest.mark.parametrize("sizes", [(8, 64), (8, 16, 32)])
def test_too_few_sizes_or_too_short_a_span_are_none(sizes):
    assert families_of(*table(sizes)) == []


def test_another_batch_per_gpu_is_another_family():
    records, rows = table()
    more, others = table(batch_per_gpu=2)
    assert len(families_of([*records, *more], [*rows, *others])) == 2
    assert families_of([*records[:1], *more[1:]], [*rows[:1], *others[1:]]) == []


def test_change_is_that_of_the_throughput_per_device():
    (family,) = families_of(*table())
    slower = np.array([1.08 / 1.16 - 1.0, 1.08 / 1.64 - 1.0])
    assert family.changes(lambda row: row.measured_s or np.nan) == pytest.approx(100.0 * slower)
    assert family.changes(lambda row: 3.0) == pytest.approx([0.0, 0.0])


def test_a_row_that_is_no_job_makes_its_family_inexpressible():
    records, rows = table()
    (family,) = families_of(records, [*rows[:2], replace(rows[2], model=None)])
    assert not family.is_expressible

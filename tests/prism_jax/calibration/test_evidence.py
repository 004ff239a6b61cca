"""Which measured rows are called near a job, and what is said of them."""

from dataclasses import replace

import pytest

from prism_jax.calibration.evidence import Cell, CellScore, cell_of, evidence, shipped_cells
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import default_cluster
from prism_jax.workload import catalog

OWN = Cell("hopper", "fsdp", "eager", "16 bits", False, "full", False, False, True, 1, 1)


def cell(rows: int, error: float, inside: float = 0.9, **changes: object) -> CellScore:
    return CellScore(OWN._replace(**changes), (rows,), (error,), (inside,))


def test_rows_like_the_job_are_taken_before_others() -> None:
    found = evidence(OWN, [cell(5, 0.3, pipeline=True), cell(6, 0.1), cell(7, 0.2)])
    assert (found.n_rows, found.n_sources, found.differs) == (13, 2, ())
    assert found.median_error == pytest.approx(0.15)
    assert not found.is_extrapolated


def test_others_are_taken_where_there_are_too_few_and_said() -> None:
    found = evidence(OWN, [cell(3, 0.1, size=2), cell(20, 0.3, size=2, length=0)])
    assert (found.n_rows, found.n_sources) == (23, 2)
    assert found.differs == ("number of GPUs",)
    assert found.is_extrapolated  # two differences that weigh four together


def test_another_generation_is_an_extrapolation_and_only_a_last_resort() -> None:
    other = cell(50, 0.2, generation="blackwell")
    assert evidence(OWN, [cell(1, 0.1), other]).n_rows == 1
    alone = evidence(OWN, [other])
    assert (alone.n_rows, alone.is_extrapolated, alone.differs) == (50, True, ("device generation",))
    assert "extrapolated" in alone.sentence


def test_nothing_measured_is_said() -> None:
    found = evidence(OWN, [])
    assert (found.n_rows, found.median_error) == (0, None)
    assert "no measured run" in found.sentence


def test_the_cell_of_a_job() -> None:
    plan = ParallelPlan(micro_batch=1, global_batch=64, seq_len=4096, tp=2, dp=32, sharding="fsdp")
    found = cell_of(catalog.model("llama-3-8b"), default_cluster("h100-sxm", 64), plan, "fsdp")
    assert found == OWN._replace(tensor=True)
    longer = cell_of(catalog.model("llama-3-8b"), default_cluster("h100-sxm", 64), replace(plan, seq_len=65536), "fsdp")
    assert longer.length == 3


def test_shipped_cells_hold_no_rows_of_their_own_but_counts_and_scores() -> None:
    for one in shipped_cells():
        assert len(one.rows) == len(one.errors) == len(one.inside)
        assert min(one.rows) >= 1
        assert all(0.0 <= share <= 1.0 for share in one.inside)

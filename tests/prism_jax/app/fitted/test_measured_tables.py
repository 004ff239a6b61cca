"""Measured tables applied to a job: its cost, what is said of them, and where they are refused or left aside."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from inference.fitting.models import model_named
from prism_jax import load_job
from prism_jax.core.errors import DataError, FailedFitError
from prism_jax.cost.efficiency import MeasuredCost, MeasuredTables, efficiency
from prism_jax.cost.step import step_cost
from prism_jax.fits.load_fits import with_tables
from prism_jax.job.job import Job
from prism_jax.shell.app import main
from prism_jax.system.network_kinds import MeasuredCollectives, MeasuredCurve

JOB = """\
name: small
model: {n_layers: 4, hidden: 4096, n_heads: 32, ffn_hidden: 16384, vocab: 32000}
cluster: dgx-a100
plan: {micro_batch: 2, global_batch: 16, seq_len: 2048, tp: 8, dp: 1}
"""
PRESET = efficiency("ampere")


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> Job:
    file = tmp_path_factory.mktemp("job") / "job.yaml"
    file.write_text(JOB)
    return load_job(file)


def fit(tables: MeasuredTables | Exception | None) -> Any:
    """What `with_tables` asks of an `inference.Fit`."""

    def measured_cost(cluster, dtype, n, *, key, force):
        if isinstance(tables, Exception):
            raise tables
        return tables

    return SimpleNamespace(measured_cost=measured_cost, describes_variability=True)


def constants(covers: str, **values: float) -> MeasuredTables:
    return MeasuredTables(MeasuredCost(values), (MeasuredCost(values),) * 24, frozenset(), (covers,), ("a note",))


def compute_s(job: Job) -> float:
    return float(step_cost(job.model, job.cluster, job.plan, job.efficiency).compute_s.sum())


GEMM = constants("gemm in bf16", gemm_max=PRESET.gemm_max / 1.2)
TWICE = MeasuredCost(
    collectives=MeasuredCollectives((MeasuredCurve("all_reduce", False, 8, (0.0, 30.0), (np.log(2.0),) * 2),))
)
NET = MeasuredTables(TWICE, (TWICE,) * 24, covers=("all_reduce in a node",))


def test_a_job_costs_what_its_tables_say_and_says_which(job):
    found = with_tables(job, [("k.npz", fit(GEMM))])
    assert found.job.efficiency.gemm_max == PRESET.gemm_max / 1.2
    assert 1.05 < compute_s(found.job) / compute_s(job) < 1.2
    assert found.told == ("k.npz: gemm in bf16 of a100-80gb, as measured", "k.npz: a note")


def test_tables_of_several_kinds_apply_together(job):
    overlap = constants("slowdown", overlap_slowdown=0.4)
    found = with_tables(job, [("k.npz", fit(GEMM)), ("o.npz", fit(overlap)), ("n.npz", fit(NET))]).job
    assert (found.efficiency.gemm_max, found.efficiency.overlap_slowdown) == (PRESET.gemm_max / 1.2, 0.4)
    before, after = (one.cluster.fabric.collective("all_reduce", 1e6, 1, 8).seconds for one in (job, found))
    assert after == pytest.approx(2.0 * before)
    assert found != job
    assert found == with_tables(job, [("k.npz", fit(GEMM)), ("o.npz", fit(overlap)), ("n.npz", fit(NET))]).job


def test_a_fit_that_describes_no_cost_changes_nothing(job):
    found = with_tables(job, [("fleet.npz", fit(None))])
    assert found.job is job
    assert found.told == ()


@pytest.mark.parametrize(("name", "remedy"), [("failures", "--reliability"), ("startup", "fit report")])
def test_a_fit_that_says_nothing_of_a_step_is_refused(job, name, remedy):
    model = model_named(name)
    nothing = SimpleNamespace(measured_cost=fit(None).measured_cost, describes_variability=False, model=model)
    with pytest.raises(DataError, match=f"a fit of {name}, which says nothing of a step.*{remedy}"):
        with_tables(job, [("x.npz", nothing)])


def test_a_table_of_another_device_names_its_file(job):
    with pytest.raises(DataError, match=r"^--fit k\.npz: kernels of H100"):
        with_tables(job, [("k.npz", fit(DataError("kernels of H100")))])
    with pytest.raises(FailedFitError, match=r"k\.npz"):
        with_tables(job, [("k.npz", fit(FailedFitError("bad", "")))])


@pytest.mark.slow  # fits
def test_check_names_the_tables_of_a_kept_fit(tmp_path, capsys):
    n, rng = 120, np.random.default_rng(0)
    m, n_, k = (2.0 ** rng.integers(10, 14, n) for _ in range(3))
    seconds = 2.0 * m * n_ * k / (0.6 * 312e12) * np.exp(0.02 * rng.standard_normal(n))
    rows = {"m": m, "n": n_, "k": k, "duration_s": seconds, "dtype": "bf16", "op": "gemm", "gpu": "A100-SXM-80GB"}
    table, kept, job = tmp_path / "gemm.csv", tmp_path / "k.npz", tmp_path / "job.yaml"
    lines = [",".join(rows), *(",".join(str(np.broadcast_to(v, n)[i]) for v in rows.values()) for i in range(n))]
    table.write_text("\n".join(lines))
    job.write_text(JOB)
    assert main(["fit", "kernels", str(table), "-q", "-o", str(kept)]) == 0
    assert main(["check", str(job), "--fit", str(kept)]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "gemm in bf16 of a100-80gb, as measured" in said
    assert "attention and memory of a100-80gb: not measured, as the preset has it" in said
    assert main(["check", str(job), "--set", "cluster=dgx-h100", "--fit", str(kept)]) == 2
    assert "--where gpu=" in capsys.readouterr().err


def test_measured_steps_of_the_site_say_more_than_its_tables(job):
    site = replace(job.effective_calibration, site=np.zeros(job.effective_calibration.n_draw))
    found = with_tables(replace(job, calibration=site), [("k.npz", fit(GEMM))])
    assert found.job.efficiency.gemm_max == PRESET.gemm_max
    assert found.told == ("k.npz: its seconds are not used: the steps that the site was calibrated with say more",)

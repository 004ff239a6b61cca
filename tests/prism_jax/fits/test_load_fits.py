"""Kept fits in a job: measured tables, the level of a log, and what is left aside."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from prism_jax.calibration.key import LevelFactor, MeasuredLevel, NoLevel
from prism_jax.core.errors import DataError, FailedFitError
from prism_jax.cost.efficiency import MeasuredCost, MeasuredTables, efficiency
from prism_jax.cost.step import step_cost
from prism_jax.fits.load_fits import LogLevel, _level_of, collectives_of, unused_note, with_served, with_tables
from prism_jax.fits.models import model_named
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.prediction.facts import model_band
from prism_jax.prediction.predicted_step import JobAtLevel, at_log_level
from prism_jax.result.distribution import StepTimeDistribution
from prism_jax.shell.app import main
from prism_jax.simulate.program import lower
from prism_jax.system.network_kinds import MeasuredCollectives, MeasuredCurve
from prism_jax.variability.families import StudentT
from prism_jax.variability.tree import ClassVariability, Variability

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
    assert found.tables == ("k.npz: gemm in bf16 of a100-80gb, as measured", "k.npz: a note")


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
    assert found.tables == ()


@pytest.mark.parametrize(("name", "remedy"), [("failures", "--reliability"), ("startup", "fit report")])
def test_a_fit_without_effect_on_a_step_is_refused(job, name, remedy):
    model = model_named(name)
    nothing = SimpleNamespace(measured_cost=fit(None).measured_cost, describes_variability=False, model=model)
    with pytest.raises(DataError, match=f"a fit of {name}, which has no effect on a step's time.*{remedy}"):
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
    assert found.tables == ("k.npz: its seconds are not used: the steps that the site was calibrated with say more",)


# --- A job at the level of its own log: the factor, what refuses it, and that every second of the job is scaled ------


PREDICTED_S = 8.0
LOG = MeasuredLevel(step_s=10.0, is_mean=False, log_sd=0.003, n_steps=500, n_runs=1)


@pytest.fixture(scope="module")
def log_level_job() -> Job:
    return load_job("llama2_7b_fsdp_64")


def predicted(_job: Job) -> StepTimeDistribution:
    """Median 8 s, mean 9 s."""
    samples_s = np.array([7.0, PREDICTED_S, 12.0])
    return StepTimeDistribution(samples_s, np.tile(samples_s, (2, 1)), 7.0, "brute_force", 3, 1.0)


@pytest.mark.parametrize(
    ("is_mean", "factor", "statistic"), [(False, 10.0 / 8.0, "median"), (True, 10.0 / 9.0, "mean")]
)
def test_the_factor_is_measured_over_predicted(log_level_job, is_mean, factor, statistic):
    found = at_log_level(log_level_job, LogLevel("steps.npz", replace(LOG, is_mean=is_mean)), predicted)
    assert found.job.level == LevelFactor(factor, 0.003)
    assert found.facts is not None
    assert (found.facts.factor, found.facts.statistic, found.facts.n_steps) == (factor, statistic, 500)
    assert found.facts.factor_sd == pytest.approx(factor * 0.003)
    assert not found.note


@pytest.mark.parametrize("step_s", [3.9, 16.1, 10e3])
def test_a_log_that_is_twice_as_far_off_is_refused_in_words(log_level_job, step_s):
    found = at_log_level(log_level_job, LogLevel("steps.npz", replace(LOG, step_s=step_s)), predicted)
    assert found.job is log_level_job
    assert found.facts is None
    assert "Is it a log of this job" in found.note


def test_every_second_is_scaled(log_level_job):
    scaled = replace(log_level_job, level=LevelFactor(1.25, 0.0))
    one, other = lower(log_level_job).cost, lower(scaled).cost
    for name in ("compute_s", "comm_s", "p2p_s", "end_compute_s", "end_comm_s"):
        np.testing.assert_allclose(getattr(other, name), 1.25 * getattr(one, name), rtol=1e-9, err_msg=name)


def test_the_band_is_what_the_log_leaves_open(log_level_job):
    band = model_band(replace(log_level_job, level=LevelFactor(1.25, 0.01)), 10.0, seed=0)
    assert (band.p5, band.p50, band.p95) == pytest.approx(
        (10 * np.exp(-0.016449), 10.0, 10 * np.exp(0.016449)), rel=1e-5
    )


def test_gpus_of_the_log_are_one_draw_of_the_fleet(log_level_job):
    found = at_log_level(log_level_job, LogLevel("steps.npz", LOG), predicted).with_fleet(0.004)
    assert found.facts is not None
    assert found.facts.factor_sd == pytest.approx(1.25 * 0.005)
    assert found.job.level is not None
    assert found.job.level.log_sd == pytest.approx(0.005)
    assert JobAtLevel(log_level_job, None).with_fleet(0.1).job is log_level_job


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (NoLevel("it holds 3 configurations"), "it holds 3 configurations"),
        (replace(LOG, n_gpus=8.0), "it is of 8 GPUs, and the job has 64"),
        (replace(LOG, job="model.n_layers=32 plan.tp=2"), "it is of another job (plan.tp 2 instead of 1)"),
    ],
)
def test_why_a_level_is_not_used_is_said(log_level_job, found, says):
    said = _level_of(found, "steps.npz", log_level_job)
    assert isinstance(said, str)
    assert said.startswith("steps.npz: the level of the log is not used")
    assert says in said


def test_a_log_of_as_many_gpus_or_of_an_unknown_number_is_used(log_level_job):
    for n_gpus in (64.0, np.nan):
        assert isinstance(_level_of(replace(LOG, n_gpus=n_gpus), "steps.npz", log_level_job), LogLevel)
    assert isinstance(_level_of(replace(LOG, job="model.n_layers=32 plan.tp=1"), "steps.npz", log_level_job), LogLevel)
    assert _level_of(None, "fleet.npz", log_level_job) is None


# --- A fit of collectives of which nothing applies to a job is named, and why ----------------------------------------


UNUSED_FIT_JOB = """\
name: small
model: {n_layers: 2, hidden: 1024, n_heads: 16, ffn_hidden: 4096, vocab: 1000}
cluster: dgx-a100
plan: {micro_batch: 1, global_batch: 16, seq_len: 1024, dp: 8, zero_stage: 3}
"""


def unused_fit_job(folder: Path) -> Job:
    (folder / "job.yaml").write_text(UNUSED_FIT_JOB)
    return load_job(folder / "job.yaml")


def fitted(*names: str) -> Variability:
    return Variability(classes={name: ClassVariability(call=StudentT(0.02, 4.0)) for name in names})


def test_a_fit_of_a_collective_that_the_job_lacks_is_named(tmp_path: Path) -> None:
    sharded = unused_fit_job(tmp_path)
    assert collectives_of(sharded) == ["all_gather"]
    note = unused_note(fitted("all_to_all"), sharded, "net.npz")
    assert note is not None
    assert "net.npz: nothing of this fit applies to the job: the fit is of all_to_all" in note
    assert note.endswith("and the job runs all_gather")


def test_an_all_reduce_serves_gathers_and_scatters_unless_they_were_measured(tmp_path: Path) -> None:
    sharded = unused_fit_job(tmp_path)
    assert unused_note(fitted("all_reduce"), sharded, "net.npz") is None
    served = with_served(fitted("all_reduce"))
    assert served.of("all_gather") == served.of("reduce_scatter") == served.of("all_reduce")
    kept = with_served(fitted("all_reduce"), {"all_gather"})
    assert kept.of("all_gather").is_zero
    assert not kept.of("reduce_scatter").is_zero
    assert with_served(fitted("gemm")) == fitted("gemm")


def test_a_fit_with_something_that_applies_is_not_named(tmp_path: Path) -> None:
    sharded = unused_fit_job(tmp_path)
    assert unused_note(fitted("all_reduce", "all_gather"), sharded, "net.npz") is None
    assert unused_note(fitted("all_reduce", "gemm"), sharded, "net.npz") is None
    assert unused_note(Variability(), sharded, "net.npz") is None

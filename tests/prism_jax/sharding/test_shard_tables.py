"""`shard` from a job file to a job file: what it writes is a job as fast as it says; mistakes are told with their remedy."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import prism_jax as pj
from prism_jax.core.errors import DataError
from prism_jax.sharding.report import ShardingReport
from prism_jax.sharding.shard_tables import shard_tables, write_sharded_job
from prism_jax.shell.app import main

JOB = """
name: small
model:
  kind: dlrm
  name: six
  n_dense: 13
  bottom: [64, 32]
  tables:
    - {name: users, rows: 2000000, dim: 32, pooling: 1}
    - {name: clicks, rows: 500000, dim: 32, pooling: 40, reuse: zipf(1.05), spread: 0.3}
    - {name: shops, rows: 30000, dim: 32, pooling: 12}
    - {name: words, rows: 800000, dim: 32, pooling: 25}
    - {name: days, rows: 7, dim: 32, pooling: 1}
    - {name: places, rows: 90000, dim: 32, pooling: 5}
  interaction: dot
  top: [128, 1]
cluster: {preset: dgx-a100, n_devices: 4}
plan: {dp: 4, global_batch: 32768, dtype: fp16}
software: {cuda_graphs: step}
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shard") / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.fixture(scope="module")
def report(job: Path) -> ShardingReport:
    return shard_tables(job)


def test_the_choice_beats_every_baseline_and_stays_above_the_bound(report: ShardingReport):
    assert all(report.best.steps.value <= steps.value + 1e-12 for steps in report.baselines.values())
    assert {"own", "random", "naive", "chunk", "lpt", "size_greedy"} <= {*report.baselines}
    assert report.lower_bound <= report.best.steps.value
    assert report.noise_free_lower_bound_s <= report.best.steps.noise_free_s
    low, high = report.gain_interval
    assert low <= report.gain <= high
    assert report.best.steps.p50_s < report.best.steps.p95_s


def test_look_ups_that_a_table_states_are_used_and_the_others_are_assumed(report: ShardingReport):
    assert report.spread["clicks"] == 0.3
    assert report.spread["users"] == 0.1
    assert "assumption" in " ".join(report.notes)


def test_every_table_is_somewhere(report: ShardingReport):
    held = {name.partition("[")[0] for rank in report.ranks for name in rank.tables} | {*report.everywhere}
    assert held == {*report.best.assignment} == {"users", "clicks", "shops", "words", "days", "places"}


def test_gpu_hours_are_those_of_a_million_samples(job: Path):
    """The mean step on four GPUs, per sample of the batch."""
    found = shard_tables(job, objective="gpu_hours_per_mtoken")
    assert found.best.steps.value == pytest.approx(4 * found.best.steps.mean_s / 3600 / 32768 * 1e6, rel=1e-9)
    assert "GPU-hours" in "\n".join(found.lines())


def test_the_written_job_has_the_step_that_was_promised(report: ShardingReport, tmp_path: Path):
    write_sharded_job(report, tmp_path / "best.yaml")
    again = shard_tables(tmp_path / "best.yaml")
    own = again.baselines["own"].noise_free_s
    assert own == pytest.approx(report.best.cost_model_s, rel=1e-9)
    assert own == pytest.approx(report.best.steps.noise_free_s, rel=5e-3)
    assert again.best.steps.value <= report.best.steps.value * 1.005  # the mean over open fields depends on the plan


def test_the_report_survives_json_and_prints(report: ShardingReport):
    assert ShardingReport.from_dict(json.loads(report.to_json())) == report
    text = str(report)
    assert all(words in text for words in ("the job's own", "lower bound", "GPU"))


def test_the_picture_has_a_bar_for_every_gpu(report: ShardingReport):
    seconds, sent, sharders = ShardingReport.from_dict(report.to_dict()).figure().axes  # of the report alone
    for ax in (seconds, sent):
        assert len(ax.patches) == 2 * 4
    heights = [bar.get_height() for bar in seconds.patches[4:]]  # type: ignore[attr-defined]
    assert heights == pytest.approx([rank.forward_s + rank.backward_s for rank in report.ranks])
    assert len(sharders.patches) == len(report.baselines) + 1
    with pytest.raises(DataError, match="older version"):
        replace(report, ranks_before=None).figure()


def test_without_spread_nothing_varies(job: Path):
    report = pj.shard_tables(job, spread=0.0, whole=True, objective="mean")
    steps = report.best.steps
    assert steps.p50_s == steps.p95_s == pytest.approx(steps.noise_free_s, rel=1e-12)
    assert {text.partition("@")[0] for text in report.best.assignment.values()} == {"table"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "plan.tables={shop: row}"], "shop"),
        (["--set", 'plan.tables={shops: "table@9"}'], "devices 0 to 3"),
        (["--set", "cluster.n_devices=8", "--set", "plan.dp=8", "--whole"], "use at most 6 GPUs"),
        (["--set", "model.tables=[{name: a, rows: 10, dim: 32, pooling: 0}]"], "pooling"),
        (["--set", "model.tables=[{name: a, rows: 10, dim: 32}, {name: a, rows: 10, dim: 32}]"], "'a'"),
        (["--set", "model.tables=[{name: a, rows: 90000000000, dim: 32, pooling: 1}]"], "Use more GPUs or fewer rows"),
        (["--spread", "-1"], "--spread"),
        (["--objective", "p59"], "p59"),
        (["-o", "no_such_folder/best.yaml"], "no_such_folder"),
    ],
)
def test_mistakes_end_with_two_and_a_remedy(
    job: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["shard", str(job), *options]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


ROW_BYTES = 128 * 4  # fp32


def tight(tmp_path: Path, rows: float) -> ShardingReport:
    """One table that is spread over 4 GPUs of 80 GB, and what else there is; returns the chosen plan, written as best.yaml."""
    (tmp_path / "job.yaml").write_text(
        JOB.replace("rows: 2000000, dim: 32", f"rows: {rows:.0f}, dim: 128").replace(
            "interaction: dot", "interaction: cat"
        )
    )
    report = shard_tables(tmp_path / "job.yaml")
    write_sharded_job(report, tmp_path / "best.yaml")
    return report


def test_the_choice_leaves_the_margin_that_a_search_of_plans_leaves(tmp_path: Path):
    """A table of 70 GB a share beside the others: 76 GB are left for tables with a tenth to spare, 85 GB without."""
    report = tight(tmp_path, 4 * 70e9 / ROW_BYTES)
    memory = pj.peak_memory(tmp_path / "best.yaml")
    assert memory.total_bytes <= 0.9 * memory.capacity_bytes
    assert not any("no assignment was found" in note for note in report.notes)


def test_tables_that_leave_no_margin_are_placed_and_that_is_said(tmp_path: Path):
    report = tight(tmp_path, 4 * 80e9 / ROW_BYTES)
    memory = pj.peak_memory(tmp_path / "best.yaml")
    assert 0.9 * memory.capacity_bytes < memory.total_bytes <= memory.capacity_bytes
    assert any("no assignment was found that leaves 10% of a GPU's memory free" in note for note in report.notes)


def test_what_does_not_fit_is_called_as_in_the_table(tmp_path: Path, capsys):
    """On eight GPUs that keep tables whole, the job's own assignment over-fills one."""
    plan = ["cluster.n_devices=8", "plan.dp=8", "plan.global_batch=16384", "plan.micro_batch=2048"]
    sets = [word for field in plan for word in ("--set", field)]
    assert main(["shard", "dlrm_dcnv2_64", *sets, "--whole", "--spread", "0", "--details"]) == 0
    assert "note: does not fit into memory: in runs, the job's own" in capsys.readouterr().out

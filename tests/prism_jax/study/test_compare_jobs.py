"""`prism-jax compare`, and probabilities of pairs."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from prism_jax.calibration.calibration import uncalibrated
from prism_jax.calibration.key import LevelFactor
from prism_jax.core.errors import DataError
from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.shell.app import main
from prism_jax.study.report import ComparisonReport
from prism_jax.study.table import paired_factors, paired_values, prob_least, prob_less, ratio_bands
from prism_jax.system import catalog
from prism_jax.variability.tree import Variability
from tests.support.jobs import MODEL, STATED

FEW = ["--samples", "64"]
JOB = """\
model: {n_layers: 2, hidden: 4096, n_heads: 32, ffn_hidden: 16384, vocab: 1000}
cluster: dgx-h100
plan: {micro_batch: 1, global_batch: 16, seq_len: 4096, dp: 8}
variability: none
framework: megatron-core
"""


@pytest.fixture
def jobs(tmp_path: Path) -> list[str]:
    """The same job, and it on devices that are better in every figure."""
    texts = {"h100": JOB, "h200": JOB.replace("dgx-h100", "h200")}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return [str(tmp_path / f"{name}.yaml") for name in texts]


def test_text_json_markdown_and_picture_tell_the_same(jobs: list[str], tmp_path: Path, capsys) -> None:
    picture = tmp_path / "jobs.svg"
    arguments = ["compare", *jobs, jobs[0], "--price", "h100-sxm=2", "--price", "h200=3", *FEW]
    assert main([*arguments, "--json", "--plot", str(picture)]) == 0
    report = ComparisonReport.from_dict(json.loads(capsys.readouterr().out))
    first, better, again = report.jobs
    assert better.is_best
    assert first.figures == again.figures
    assert first.figures.money_per_mtoken < better.figures.money_per_mtoken  # 10% faster at 1.5 times the price
    assert report.prob_less[1][0] > 0.6
    assert report.prob_less[1][0] == pytest.approx(report.prob_less[1][2])
    assert report.prob_less[0][1] + report.prob_less[1][0] == pytest.approx(1.0)
    assert first.ratio_low < first.relative < first.ratio_high
    assert picture.stat().st_size > 1000
    text = "\n".join(report.lines())
    assert "Probability that the job of the row" in text
    assert f"{100 * report.prob_less[1][0]:.0f}%" in text
    assert report.markdown()[0].startswith("|  | job |")
    card = report.card()
    assert card.verdict.startswith(f"{better.label} (")
    assert next(iter(card.facts)) == better.label, "the best stands first"
    assert report.figure().axes, "drawn from the report alone"


def test_overrides_apply_to_all_and_unlike_batches_compare_per_token(jobs: list[str], tmp_path: Path, capsys) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(JOB.replace("batch: 16", "batch: 32").replace("n_layers: 2", "n_layers: 3"))
    assert main(["compare", jobs[0], str(other), "--set", "plan.seq_len=1024", "--json", *FEW]) == 0
    report = ComparisonReport.from_dict(json.loads(capsys.readouterr().out))
    assert report.objective == "p95 GPU-hours per million tokens"
    assert [job.figures.tokens_per_step for job in report.jobs] == [16 * 1024, 32 * 1024]


def test_a_prediction_tells_money_where_a_price_is_given(jobs: list[str], capsys) -> None:
    assert main(["predict", jobs[0], "--price", "2", "--fast", "--json", *FEW]) == 0
    told = json.loads(capsys.readouterr().out)
    per_step = told["step_time_s"]["mean"] / 3600 * 8 * 2.0
    assert told["money"] == {
        "price_per_gpu_hour": 2.0,
        "per_step": pytest.approx(per_step),
        "per_mtoken": pytest.approx(per_step / (16 * 4096) * 1e6),
    }
    assert main(["predict", jobs[0], "--price", "inf"]) == 2
    assert "--price" in capsys.readouterr().err


# --- Paired probabilities: closed forms, and what jobs have in common cancels ----------------------------------------


PLAN = ParallelPlan(micro_batch=1, global_batch=16, seq_len=512, dp=8, software=STATED)
PAIRED_JOB = Job(MODEL, catalog.cluster("dgx-h100", 8), PLAN, Variability("none"))


def test_normal_errors_have_the_probability_of_their_difference():
    """100,000 draws: 4 standard errors of a share are 0.006."""
    rng = np.random.default_rng(0)
    shared, own = rng.normal(size=(100_000, 1)), rng.normal(size=(100_000, 3))
    factors = np.exp(0.5 * shared + 0.05 * own)
    measured = paired_values([1.0, 1.05, 1.1], [0.03, 0.0, 0.0], factors)
    won = prob_less(measured)
    assert won[0, 1] == pytest.approx(ndtr(np.log(1.05) / np.hypot(0.05 * np.sqrt(2.0), 0.03)), abs=0.006)
    assert won[1, 2] == pytest.approx(ndtr(np.log(1.1 / 1.05) / (0.05 * np.sqrt(2.0))), abs=0.006)
    assert won + won.T == pytest.approx(np.ones((3, 3)))
    assert prob_least(measured).sum() == pytest.approx(1.0)
    low, high = ratio_bands(measured, 1)[2]
    assert np.log([low, high]) == pytest.approx(
        np.log(1.1 / 1.05) + 0.05 * np.sqrt(2.0) * np.array([-1.645, 1.645]), abs=0.003
    )
    assert ratio_bands(measured, 1)[1] == pytest.approx([1.0, 1.0])


def test_equal_jobs_are_even_and_their_ratio_is_one():
    twins = paired_factors([PAIRED_JOB, PAIRED_JOB, replace(PAIRED_JOB, name="another name")], n_repeat=2)
    assert twins[:, 0] == pytest.approx(twins[:, 1], rel=1e-6)
    assert twins[:, 0] == pytest.approx(twins[:, 2], rel=1e-6)
    assert prob_less(np.ones((5, 2)))[0, 1] == 0.5


def test_pairs_of_unlike_devices_are_surer_than_two_bands():
    other = replace(PAIRED_JOB, cluster=catalog.cluster("dgx-a100", 8))
    logs = np.log(paired_factors([PAIRED_JOB, other], n_repeat=8))
    assert (logs[:, 0] - logs[:, 1]).std() < 0.8 * np.hypot(*logs.std(axis=0))


def test_the_level_of_a_log_is_all_that_is_open():
    level = LevelFactor(1.2, 0.05)
    logs = np.log(paired_factors([PAIRED_JOB, replace(PAIRED_JOB, level=level)]))
    assert logs[:, 1].std() == pytest.approx(0.05, rel=0.05)
    assert abs(np.corrcoef(logs.T)[0, 1]) < 0.07


def test_jobs_of_unlike_calibrations_are_refused():
    with pytest.raises(DataError, match="different calibrations"):
        paired_factors([PAIRED_JOB, replace(PAIRED_JOB, calibration=uncalibrated())])

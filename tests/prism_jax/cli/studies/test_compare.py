"""`prism-jax compare`: one answer on every way out, wrong options refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prism_jax.cli.app import main
from prism_jax.report.types.studies.comparison import ComparisonReport
from tests.support.job_texts import JOB

FEW = ["--samples", "64"]


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
    assert repr(first.figures) == repr(again.figures)
    assert first.figures.money_per_mtoken < better.figures.money_per_mtoken  # 10 % faster at 1.5 times the price
    assert report.prob_less[1][0] > 0.6
    assert report.prob_less[1][0] == pytest.approx(report.prob_less[1][2])
    assert report.prob_less[0][1] + report.prob_less[1][0] == pytest.approx(1.0)
    assert first.ratio_low < first.relative < first.ratio_high
    assert picture.stat().st_size > 1000
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "Probability that the job of the row" in text
    assert f"{100 * report.prob_less[1][0]:.0f}%" in text
    assert main([*arguments, "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("|  | job |")


def test_overrides_apply_to_all_and_unlike_batches_compare_per_token(jobs: list[str], capsys) -> None:
    assert main(["compare", jobs[0], "gpt3_175b_1024", "--set", "plan.seq_len=1024", "--json", *FEW]) == 0
    report = ComparisonReport.from_dict(json.loads(capsys.readouterr().out))
    assert report.objective == "p95 GPU-hours per million tokens"
    assert [job.figures.tokens_per_step for job in report.jobs] == [64 * 1024, 1536 * 1024]
    assert any("different models" in note for note in report.notes)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["absent.yaml"], "absent.yaml"),
        (["--set", "plan.micro_batch=5"], "micro_batch"),
        (["--price", "0"], "--price"),
        (["--price", "nan"], "--price"),
        (["--price", "2", "--price", "3"], "names no device"),
        (["--price", "h200=2", "--price", "H200=3"], "two prices"),
        (["--price", "tpu=2"], "unknown device"),
        (["--objective", "cost_per_mtoken"], "--price 2.5"),
        (["--objective", "cost_per_mtoken", "--price", "h200=3"], "h100-sxm"),
    ],
)
def test_wrong_options_are_one_line(jobs: list[str], arguments: list[str], told: str, capsys) -> None:
    assert main(["compare", *jobs, *arguments]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_one_job_is_no_comparison(jobs: list[str], capsys) -> None:
    assert main(["compare", jobs[0]]) == 2
    assert "2 to 26" in capsys.readouterr().err

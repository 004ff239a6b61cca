"""`prism-jax compare`: one answer on every way out, wrong options refused in one line."""

import json
from pathlib import Path

import pytest

from prism_jax.shell.app import main
from prism_jax.study.report import ComparisonReport

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
    assert first.figures.money_per_mtoken < better.figures.money_per_mtoken  # 10 % faster at 1.5 times the price
    assert report.prob_less[1][0] > 0.6
    assert report.prob_less[1][0] == pytest.approx(report.prob_less[1][2])
    assert report.prob_less[0][1] + report.prob_less[1][0] == pytest.approx(1.0)
    assert first.ratio_low < first.relative < first.ratio_high
    assert picture.stat().st_size > 1000
    text = "\n".join(report.lines())
    assert "Probability that the job of the row" in text
    assert f"{100 * report.prob_less[1][0]:.0f}%" in text
    assert report.markdown()[0].startswith("|  | job |")


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

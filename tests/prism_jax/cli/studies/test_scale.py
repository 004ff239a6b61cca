"""`prism-jax scale`: rows, changes and the target in text and JSON; wrong options refused."""

import json

import pytest

from prism_jax.shell.app import main
from prism_jax.study.scaling_report import ScalingReport

JOB = ["scale", "llama2_7b_fsdp_64", "--samples", "64"]


def test_rows_agree_with_the_text(capsys, tmp_path) -> None:
    arguments = [*JOB, "--gpus", "8,16,20", "--target", "p95<=1h", "--resume", str(tmp_path / "x.npz"), "--price", "2"]
    assert main([*arguments, "--json"]) == 0
    report = ScalingReport.from_dict(json.loads(capsys.readouterr().out))
    assert [row.n_devices for row in report.rows] == [8, 16, 20]
    first, second, _ = (row.figures for row in report.rows)
    assert first is not None
    assert second is not None
    assert second.tokens_per_step == 2.0 * first.tokens_per_step
    ratio = second.tokens_per_s_per_gpu / first.tokens_per_s_per_gpu
    assert report.rows[1].per_gpu_change == pytest.approx(ratio - 1.0)
    assert first.money_per_mtoken == pytest.approx(2.0 * 8 / 3600 * first.mean_s / first.tokens_per_step * 1e6)
    assert report.target is not None
    assert (report.target.n_devices, report.target.prob) == (8, 1.0)
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "p95<=1h: from 8 GPUs, with probability 100%" in text
    assert f"{100 * report.rows[1].per_gpu_change:+.1f}%" in text

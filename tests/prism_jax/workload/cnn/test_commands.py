"""Commands work on convolutional networks as on transformers."""

import json
from pathlib import Path

import pytest

from prism_jax.shell.app import main

JOB = """
model: resnet-18
cluster: {preset: dgx-a100, n_devices: 16}
plan: {dp: 16, micro_batch: 64, global_batch: 1024, dtype: fp16}
framework: fsdp
variability: a100-default
"""
BATCH = ["--set", "plan.global_batch=512", "--set", "cluster.n_devices=8"]
SPACE = (
    "{tp: [1], pp: [1, 2], cp: 1, micro_batch: [32, 64], schedule: 1f1b, recompute: [none, full], zero_stage: [0, 1]}"
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("cnn") / "job.yaml"
    file.write_text(JOB)
    (file.parent / "space.yaml").write_text(SPACE)
    (file.parent / "nodes.csv").write_text("host,slowdown\n0,1.0\n1,1.05\n")
    return str(file)


SLOW = [pytest.mark.slow]


@pytest.mark.parametrize(
    ("words", "schema"),
    [
        (["check", "{job}"], "check"),
        (["predict", "{job}", "--samples", "64"], "prediction"),
        pytest.param(["place", "{job}", "--slowdowns", "{slow}", "--set", "plan.dp=8", *BATCH], "place", marks=SLOW),
        pytest.param(["compare", "{job}", "{job}", "--samples", "64"], "comparison", marks=SLOW),
        pytest.param(["scale", "{job}", "--gpus", "8:32"], "scaling", marks=SLOW),
        pytest.param(["sweep", "{job}", "--set", "plan.micro_batch=32,64"], "sweep", marks=SLOW),
    ],
)
def test_commands_know_convolutional_networks(
    job: str, words: list[str], schema: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = str(Path(job).with_name("nodes.csv"))
    assert main([*(word.format(job=job, slow=slow) for word in words), "--json"]) == 0
    assert schema in json.loads(capsys.readouterr().out)["schema"]


def test_explanations_name_what_varies(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What varies is computing in products and in memory, and one model knows no tokens."""
    assert main(["predict", job, "--samples", "64"]) == 0
    said = capsys.readouterr().out
    assert "samples/s per GPU" in said
    assert "memory-bound" in said


def test_search_takes_only_plans_that_fit_and_the_best_is_not_slower(
    job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    space = str(Path(job).with_name("space.yaml"))
    assert main(["search", job, "--space", space, "--top", "3", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["best"]
    assert best["plan"]["tp"] == best["plan"]["cp"] == 1
    assert best["p50_s"] <= best["p95_s"]

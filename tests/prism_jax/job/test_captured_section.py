"""Captures in the place of job files, and of the model of one."""

from pathlib import Path

import pytest

from prism_jax import load_job, write_capture
from prism_jax.core.errors import ConfigError
from prism_jax.search.space import default_space
from prism_jax.shell.app import main
from prism_jax.workload.captured.model import CapturedModel
from tests.support.captured.programs import program


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    write_capture(tmp_path / "toy.capture.gz", program())
    return tmp_path / "toy.capture.gz"


def test_a_capture_is_a_job_once_a_cluster_is_named(capture: Path):
    job = load_job(capture, ["cluster=dgx-h100", "variability=h100-default"])
    assert isinstance(job.model, CapturedModel)
    assert (job.name, job.plan.n_devices, job.cluster.n_devices) == ("toy", 8, 8)
    assert job.variability.name == "h100-default"
    with pytest.raises(ConfigError, match="--cluster"):
        load_job(capture)


def test_fields_that_stay_free_are_set_like_those_of_any_job(capture: Path):
    job = load_job(capture, ["cluster=dgx-h100", "plan.dp=32", "plan.global_batch=128", "plan.schedule=gpipe"])
    assert job.plan.n_devices == 64
    wider = load_job(capture, ["cluster.preset=dgx-h100", "cluster.n_devices=16"])
    assert wider.plan.dp == 8


def test_fields_that_are_fixed_are_refused_by_name(capture: Path):
    with pytest.raises(ConfigError, match=r"plan.tp=1: 1, but .*captured with 2"):
        load_job(capture, ["cluster=dgx-h100", "plan.tp=1", "plan.dp=8"])


def test_a_job_file_names_a_capture_beside_it(capture: Path):
    file = capture.parent / "job.yaml"
    file.write_text("model: {capture: toy.capture.gz}\ncluster: dgx-h100\nplan: {global_batch: 32}\n")
    job = load_job(file)
    assert isinstance(job.model, CapturedModel)
    assert (job.plan.tp, job.plan.dp, job.plan.global_batch) == (2, 4, 32)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{capture: toy.capture.gz, hidden: 3}", "model.hidden: cannot be combined with capture"),
        ("{capture: 3}", "model.capture: 3"),
        ("{capture: gone.capture.gz}", "gone.capture.gz"),
    ],
)
def test_what_is_wrong_with_such_a_model_is_told(capture: Path, text: str, told: str):
    file = capture.parent / "job.yaml"
    file.write_text(f"model: {text}\ncluster: dgx-h100\nplan: {{}}\n")
    with pytest.raises(ConfigError, match=told.replace(".", r"\.")):
        load_job(file)


@pytest.mark.parametrize("job", ["llama2_7b_fsdp_64", "bert_large_1024"])
def test_measured_kernels_are_refused_where_the_model_is_no_capture(job: str, capsys: pytest.CaptureFixture[str]):
    assert main(["check", job, "--kernels", "profile.json"]) == 2
    told = capsys.readouterr().err
    assert "model.kernels" in told
    assert "the model of this job is none. Leave them out" in told


def test_a_search_leaves_fixed_fields_alone(capture: Path):
    job = load_job(capture, ["cluster=dgx-h100"])
    space = default_space(job)
    assert (space.tp, space.micro_batch, space.sharding, space.recompute) == ((2,), (1,), ("none",), ("none",))


def test_check_says_where_it_comes_from(capture: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check", str(capture), "--cluster", "dgx-h100", "--variability", "none", "--details"]) == 0
    told = capsys.readouterr()
    assert "tp 2" in told.out
    assert "fusion = eager" in told.out


def test_predict_explains_it(capture: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["predict", str(capture), "--cluster", "dgx-h100", "--samples", "64", "--fast"]) == 0
    assert "p95" in capsys.readouterr().out


def test_files_are_named_as_they_were_typed_or_from_where_a_job_is_kept(
    capture: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """No path that nobody typed, and a job that is kept elsewhere finds its files."""
    monkeypatch.chdir(capture.parent)
    for folder in ("sub", "out"):
        Path(folder).mkdir()
    typed = capture.rename("sub/toy.capture.gz").relative_to(".")
    Path("space.yaml").write_text("virtual_stages: [1]\n")
    options = ["--cluster", "dgx-h100", "--variability", "none", "--space", "space.yaml", "--top", "1", "--json"]
    assert main(["search", str(typed), *options, "-o", "out/best.yaml"]) == 0
    told, written = capsys.readouterr(), Path("out/best.yaml").read_text()
    assert "capture: ../sub/toy.capture.gz" in written
    assert load_job("out/best.yaml").model == load_job(typed, ["cluster=dgx-h100"]).model
    assert main(["check", str(typed), "--cluster", "dgx-h100", "--kernels", "gone.json"]) == 2
    refused = capsys.readouterr().err
    assert refused.startswith("gone.json: ")
    assert str(capture.parent) not in told.out + told.err + written + refused

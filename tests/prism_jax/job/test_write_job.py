"""Jobs on their way into files and back."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from prism_jax import check_job
from prism_jax.core.errors import ConfigError
from prism_jax.job.job import Job
from prism_jax.job.load_job import job_of, load_job
from prism_jax.job.reference import job_fields
from prism_jax.job.write_job import device_fields, model_fields, new_job_text
from prism_jax.system.catalog import device
from prism_jax.system.likeness import device_like
from prism_jax.tables.yaml_toml import read_yaml
from prism_jax.workload.transformer.sizes import AdapterSpec

FIELD = re.compile(r"^( *)# (\w+): ")
PLAN = {"micro_batch": 1, "global_batch": 128, "seq_len": 2048, "tp": 2, "pp": 2, "dp": "auto"}
JOBS = {
    "dense": {"model": {"preset": "llama-3-8b"}, "cluster": {"preset": "dgx-h100", "n_devices": 64}},
    "experts": {"model": {"preset": "deepseek-v3"}, "cluster": {"preset": "gb200-nvl72", "n_devices": 64}},
    "windows": {"model": {"preset": "gpt-oss-20b"}, "cluster": {"preset": "dgx-a100", "n_devices": 64}},
    "nanotron": {
        "model": {"preset": "llama-3-8b", "n_layers": 16},
        "cluster": {"preset": "dgx-h100", "n_devices": 64, "tiers": {"nvlink": {"bandwidth": "300 GB/s"}}},
        "framework": "nanotron",
    },
}


def read(text: str) -> Job:
    return job_of(read_yaml(text, "job.yaml"))


@pytest.fixture(params=JOBS)
def text(request) -> str:
    return new_job_text({"name": "new", **JOBS[request.param], "plan": PLAN}, "job.yaml")


@pytest.mark.parametrize("name", JOBS)
def test_the_file_is_the_job_of_its_sections(name):
    text = new_job_text({"name": "new", **JOBS[name], "plan": PLAN}, "job.yaml")
    job = read(text)
    assert job.name == "new"
    assert job.plan.dp == 16
    assert job.framework == JOBS[name].get("framework", "")
    assert job.cluster.n_devices == 64


def test_taking_a_comment_away_leaves_the_job_as_it_is(text):
    lines = text.splitlines()
    before, n_tried = read(text), 0
    for index, line in enumerate(lines):
        if FIELD.match(line):
            changed = [*lines[:index], line.replace("# ", "", 1), *lines[index + 1 :]]
            assert read("\n".join(changed)) == before, line
            n_tried += 1
    assert n_tried > 25


def test_taking_all_comments_away_leaves_the_job_as_it_is(text):
    assert read(re.sub(r"(?m)^( *)# (?=\w+: )", r"\1", text)) == read(text)


def test_every_field_has_one_line_and_its_words(text):
    section, found = "", []
    for line in text.splitlines():
        match = re.match(r"^( *)(?:##? )?(\w+): ", line)
        if match and not match[1]:
            section = match[2]
        if match:
            found.append((section, match[2]) if match[1] else (section,))
    expected = {path for path in (f.path for f in job_fields()) if len(path) <= 2 and path[:1] != ("variability",)}
    left_out = {("model", "hf_config"), ("model", "preset")} - set(found)  # of several sources one is there
    assert set(found) - {("variability",)} == expected - left_out
    assert [path for path in found if path != ("variability",)] == list(dict.fromkeys(found))[: len(found) - 2]
    for field in job_fields():
        if field.path in found:
            assert field.about in text


def test_sections_that_are_no_job_are_refused():
    with pytest.raises(ConfigError, match=r"plan.dp: no dp fills the cluster"):
        new_job_text({"name": "new", **JOBS["dense"], "plan": PLAN | {"pp": 3}}, "job.yaml")


# --- Adapters in job files: read beside a preset, refused with a remedy, written so that they read back --------------


JOB = """
model: {preset: llama3-8b, adapters: %s}
cluster: {preset: dgx-h100, n_devices: 1}
plan: {micro_batch: 1, global_batch: 1, seq_len: 4096}
"""


def written(folder: Path, adapters: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(JOB % adapters)
    return path


def test_a_preset_takes_adapters(tmp_path: Path):
    job = load_job(written(tmp_path, "{rank: 8, targets: [q_proj, v_proj], quantised: nf4, fused: true}"))
    assert vars(job.model)["adapters"] == AdapterSpec(8, ("q_proj", "v_proj"), quantised="nf4", fused=True)


def test_adapters_read_back_as_they_were(tmp_path: Path):
    model = load_job(written(tmp_path, "{rank: 8, targets: [linear_qkv], dropout: 0.1}")).model
    data = yaml.safe_load(JOB % "{rank: 1}") | {"model": model_fields(model)}
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(data))
    assert load_job(tmp_path / "again.yaml").model == model


@pytest.mark.parametrize(
    ("adapters", "message"),
    [
        ("{targets: [all]}", "rank"),
        ("{rank: 8, targets: [q_prj]}", "did you mean q_proj?"),
        ("{rank: 8, quantised: nf5}", "did you mean nf4?"),
        ("{rank: 8, targets: [q_a_proj]}", "no layer has target 'q_a_proj'. It has q_proj, k_proj"),
        ("{rank: 8, dropout: 1.5}", "model.adapters.dropout"),
    ],
)
def test_a_mistake_names_its_field(tmp_path: Path, adapters: str, message: str):
    with pytest.raises(ConfigError) as error:
        load_job(written(tmp_path, adapters))
    assert message in str(error.value)


# --- `device: {like: ...}` of a job file: the device it makes, the notes of it, and its way back into a file ---------


DEVICE_LIKE_PLAN = "plan: {micro_batch: 1, global_batch: 64, seq_len: 4096, dp: 64}\nmodel: llama-2-7b\n"


def device_like_written(folder: Path, cluster: str) -> str:
    file = folder / "job.yaml"
    file.write_text(DEVICE_LIKE_PLAN + f"cluster: {cluster}\n", encoding="utf-8")
    return str(file)


def test_a_file_makes_the_device_that_python_makes(tmp_path: Path) -> None:
    job = load_job(device_like_written(tmp_path, "{device: {like: H100, power: 500 W, hbm: 96 GB, name: capped}}"))
    assert job.cluster.device == device_like("h100-sxm", power_watts=500.0, hbm_bytes=96e9, name="capped")
    assert job.cluster.name == "dgx-h100"
    inside = load_job(device_like_written(tmp_path, "{preset: llama3-h100, device: {like: h100, power: 500 W}}"))
    assert (inside.cluster.name, inside.cluster.device.like) == ("llama3-h100", "h100-sxm")


def test_a_changed_preset_is_no_likeness(tmp_path: Path) -> None:
    found = load_job(device_like_written(tmp_path, "{device: {preset: h100, hbm: 96 GB, power: 800 W}}")).cluster.device
    assert (found.likeness_sd, found.peak("bf16")) == (0.0, device("h100").peak("bf16"))


def test_a_power_limit_of_a_preset_lowers_its_clock(tmp_path: Path) -> None:
    for text in ("{device: {preset: h100, power: 500 W}}", "{preset: llama3-h100, device: {power: 500 W}}"):
        found = load_job(device_like_written(tmp_path, text)).cluster.device
        assert found == device_like("h100-sxm", name="h100-sxm", power_watts=500.0)
        assert found.peak("bf16") < device("h100").peak("bf16")


@pytest.mark.parametrize("sd", [{}, {"likeness_sd": 0.0}])
def test_it_is_written_and_read_back(tmp_path: Path, sd: dict[str, Any]) -> None:
    made = device_like("mi300x", power_watts=550.0, **sd)
    text = yaml.safe_dump({"device": device_fields(made)}, default_flow_style=True, width=10_000)
    assert load_job(device_like_written(tmp_path, text)).cluster.device == made


def test_check_says_so(tmp_path: Path) -> None:
    notes = check_job(device_like_written(tmp_path, "{device: {like: h100, power: 500 W}}")).notes
    assert any(note.startswith("device like h100-sxm: interval widened by ") for note in notes)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{like: h100-smx}", r"unknown device 'h100-smx'. Did you mean h100-sxm .*like: h100-sxm"),
        ("{like: h100, preset: h200}", "cannot be combined with"),
        ("{like: h100, power_watts: 500}", "unknown field, did you mean power"),
        ("{like: h100, likeness_sd: -1}", "likeness_sd"),
        ("{like: 3}", "it must be a text"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, section: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_job(device_like_written(tmp_path, f"{{device: {section}}}"))

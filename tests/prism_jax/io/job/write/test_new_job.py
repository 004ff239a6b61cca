"""New job files: every field is in them, and what a comment says is what holds without it."""

import re

import pytest

from prism_jax.core.errors import ConfigError
from prism_jax.job.job import Job
from prism_jax.job.load_job import job_of
from prism_jax.job.reference import job_fields
from prism_jax.job.write_job import new_job_text
from prism_jax.tables.yaml_toml import read_yaml

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

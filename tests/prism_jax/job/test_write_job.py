"""Jobs on their way into files and back, and single fields of their text."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from prism_jax import check_job
from prism_jax.core.errors import ConfigError
from prism_jax.job.edit_job import with_field
from prism_jax.job.job import Job
from prism_jax.job.load_job import apply_overrides, job_of, load_job
from prism_jax.job.reference import job_fields
from prism_jax.job.write_job import device_fields, model_fields, new_job_text
from prism_jax.system.catalog import device
from prism_jax.system.likeness import device_like
from prism_jax.tables.streams import example_files
from prism_jax.tables.yaml_toml import read_yaml
from prism_jax.workload.transformer.sizes import AdapterSpec
from tests.support.job_texts import INLINE_CLUSTER, JOB as SMALL_JOB

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


# --- One field is set or removed in the text of a file: the text then says just that, and all comments are still there


TEXTS = {name: path.read_text() for name, path in example_files().items() if path.suffix == ".yaml"}
TEXTS |= {
    "inline": SMALL_JOB.replace("cluster:\n  preset: dgx-h100\n  n_devices: 64\n", INLINE_CLUSTER),
    "no end": SMALL_JOB.rstrip("\n"),
}
SECTIONS = {
    "model": {"preset": "llama-2-7b"},
    "cluster": {"preset": "dgx-h100", "n_devices": 8},
    "plan": {"micro_batch": 1, "global_batch": 8, "seq_len": 4096},
}
NEW_JOB = new_job_text(SECTIONS, "new.yaml")


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of all values."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from leaves(inner, (*path, key))
    if path and not items:
        yield path


def comments(text: str) -> list[str]:
    return sorted(line[line.index("#") :].strip() for line in text.split("\n") if "#" in line)


def data(text: str) -> dict[str, Any]:
    return read_yaml(text, "a.yaml").data


@pytest.mark.parametrize("name", TEXTS)
def test_every_field_of_every_job_can_be_set_and_the_rest_stays(name: str):
    text = TEXTS[name]
    for path in leaves(data(text)):
        changed = with_field(text, "a.yaml", path, "17 ms")
        wanted = apply_overrides(read_yaml(text, "a.yaml"), [f"{'.'.join(map(str, path))}=17 ms"])
        assert data(changed) == wanted.data
        assert comments(changed) == comments(text)
        assert len(set(text.split("\n")) - set(changed.split("\n"))) <= 1  # one line has changed


@pytest.mark.parametrize("name", TEXTS)
def test_a_field_that_is_added_and_removed_leaves_the_text_as_it_was(name: str):
    text = TEXTS[name]
    for path in (("plan", "host_threads"), ("zzz",)):
        longer = with_field(text, "a.yaml", path, "3")
        assert set(text.split("\n")) <= set(longer.split("\n"))
        assert data(with_field(longer, "a.yaml", path, None)) == data(text)


def test_fields_are_removed_with_their_line():
    assert with_field(SMALL_JOB, "a.yaml", ("plan", "tp"), None) == SMALL_JOB.replace("  tp: 2\n", "")
    assert with_field(SMALL_JOB, "a.yaml", ("plan", "ep"), None) == SMALL_JOB


def test_a_comment_of_a_new_job_file_becomes_the_field_that_it_names():
    for path, value, old in (
        (("plan", "etp"), "2", "## etp:"),
        (("model", "n_layers"), "30", "# n_layers:"),
        (("software", "norm"), "fused", "## norm:"),
        (("variability",), "none", "# variability:"),
    ):
        changed = with_field(NEW_JOB, "a.yaml", path, value)
        was, now = NEW_JOB.split("\n"), changed.split("\n")
        lines = [(a, b) for a, b in zip(was, now, strict=True) if a != b]
        assert len(lines) == 1
        assert lines[0][0].lstrip().startswith(old)
        assert lines[0][1].rpartition(" # ")[2] == lines[0][0].rpartition(" # ")[2]
        assert data(changed) == apply_overrides(read_yaml(NEW_JOB, "a.yaml"), [f"{'.'.join(path)}={value}"]).data


def test_a_preset_in_short_form_is_written_out():
    changed = with_field("model: llama-2-7b  # why\nplan:\n  tp: 2\n", "a.yaml", ("model", "n_layers"), "5")
    assert changed == "model:  # why\n  preset: llama-2-7b\n  n_layers: 5\nplan:\n  tp: 2\n"


def test_an_empty_text_is_begun():
    assert with_field("", "a.yaml", ("plan", "tp"), "2") == "plan:\n  tp: 2\n"
    assert with_field("# mine\n", "a.yaml", ("plan", "tp"), "2") == "# mine\nplan:\n  tp: 2\n"


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("a: &x {b: 1}\nc: *x\n", ("c", "b"), "2"),  # would change another field
        ("plan: {tp: [1", ("plan", "tp"), "2"),
        ("plan: {tp: 1}\n", ("plan", "tp"), "[1"),
        ("plan: {tp: 1}\n", ("plan", "tp", "x"), "1"),
        ("- 1\n", ("plan", "tp"), "1"),
    ],
)
def test_what_cannot_be_changed_by_itself_is_refused(text: str, path: tuple[str, ...], value: str):
    with pytest.raises(ConfigError):
        with_field(text, "a.yaml", path, value)


def test_texts_that_are_no_plain_words_are_quoted(tmp_path: Path):
    for value in ('"a: b"', "'#x'", "[1, 2]", "{a: 1}", "1e30", "~", "x  y"):
        changed = with_field(SMALL_JOB, "a.yaml", ("name",), value)
        assert data(changed)["name"] == data(f"name: {value}")["name"]

"""`device: {like: ...}` of a job file: the device it makes, the notes of it, and its way back into a file."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from prism_jax import check_job
from prism_jax.core.errors import ConfigError
from prism_jax.job.load_job import load_job
from prism_jax.job.write_job import device_fields
from prism_jax.system.catalog import device
from prism_jax.system.likeness import device_like

PLAN = "plan: {micro_batch: 1, global_batch: 64, seq_len: 4096, dp: 64}\nmodel: llama-2-7b\n"


def written(folder: Path, cluster: str) -> str:
    file = folder / "job.yaml"
    file.write_text(PLAN + f"cluster: {cluster}\n", encoding="utf-8")
    return str(file)


def test_a_file_makes_the_device_that_python_makes(tmp_path: Path) -> None:
    job = load_job(written(tmp_path, "{device: {like: H100, power: 500 W, hbm: 96 GB, name: capped}}"))
    assert job.cluster.device == device_like("h100-sxm", power_watts=500.0, hbm_bytes=96e9, name="capped")
    assert job.cluster.name == "dgx-h100"
    inside = load_job(written(tmp_path, "{preset: llama3-h100, device: {like: h100, power: 500 W}}"))
    assert (inside.cluster.name, inside.cluster.device.like) == ("llama3-h100", "h100-sxm")


def test_a_changed_preset_is_no_likeness(tmp_path: Path) -> None:
    found = load_job(written(tmp_path, "{device: {preset: h100, hbm: 96 GB, power: 800 W}}")).cluster.device
    assert (found.likeness_sd, found.peak("bf16")) == (0.0, device("h100").peak("bf16"))


def test_a_power_limit_of_a_preset_lowers_its_clock(tmp_path: Path) -> None:
    for text in ("{device: {preset: h100, power: 500 W}}", "{preset: llama3-h100, device: {power: 500 W}}"):
        found = load_job(written(tmp_path, text)).cluster.device
        assert found == device_like("h100-sxm", name="h100-sxm", power_watts=500.0)
        assert found.peak("bf16") < device("h100").peak("bf16")


@pytest.mark.parametrize("sd", [{}, {"likeness_sd": 0.0}])
def test_it_is_written_and_read_back(tmp_path: Path, sd: dict[str, Any]) -> None:
    made = device_like("mi300x", power_watts=550.0, **sd)
    text = yaml.safe_dump({"device": device_fields(made)}, default_flow_style=True, width=10_000)
    assert load_job(written(tmp_path, text)).cluster.device == made


def test_check_says_so(tmp_path: Path) -> None:
    notes = check_job(written(tmp_path, "{device: {like: h100, power: 500 W}}")).notes
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
        load_job(written(tmp_path, f"{{device: {section}}}"))

"""Adapters in job files: read beside a preset, refused with a remedy, written so that they read back."""

from pathlib import Path

import pytest
import yaml

from prism_jax.core.errors import ConfigError
from prism_jax.job.load_job import load_job
from prism_jax.job.write_job import model_fields
from prism_jax.workload.transformer.sizes import AdapterSpec

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

"""Published figures of a job file."""

from dataclasses import replace
from pathlib import Path

import pytest

from prism_jax.core.errors import ConfigError
from prism_jax.job.load_job import load_job

JOB = """
model: llama-3-8b
cluster: {preset: dgx-h100, n_devices: 8}
plan: {dp: 8, micro_batch: 1, global_batch: 8, seq_len: 8192}
published: {mfu: 1.5}
"""


def test_a_job_file_states_what_was_published(tmp_path: Path) -> None:
    """It changes no job: neither its content nor its prediction."""
    job = load_job("llama3_405b_16384")
    assert job.published is not None
    assert job.published.figures == {"tflops_per_gpu": 400.0, "mfu": 0.41}
    assert job == replace(job, published=None)
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    with pytest.raises(ConfigError, match="published.mfu"):
        load_job(file)

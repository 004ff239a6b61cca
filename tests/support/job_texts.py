"""Texts of small jobs, and what is wrong with a file."""

import pytest

from prism_jax.core.errors import ConfigError
from prism_jax.job.load_job import load_job

JOB = """\
name: small
model: llama-2-7b
cluster:
  preset: dgx-h100
  n_devices: 64
plan:
  micro_batch: 1
  global_batch: 64
  seq_len: 4096
  tp: 2
  pp: 4
  dp: 8
variability: none
"""
INLINE_CLUSTER = """\
cluster:
  device: h100-sxm
  n_devices: 64
  tiers:
    - {name: nvlink, n_devices: 8, bandwidth: 450 GB/s, latency: 2 us, in_switch: true}
    - {name: spine, bandwidth: 400 Gbit/s, latency: 12 us, oversubscription: 7}
"""
PRESET_CLUSTER = "cluster:\n  preset: dgx-h100\n  n_devices: 64\n"


def mistakes_of(path, overrides=()):
    with pytest.raises(ConfigError) as error:
        load_job(path, overrides)
    return [str(mistake) for mistake in error.value.mistakes]

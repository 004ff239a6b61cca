"""The shipped jobs are the published ones: sizes, plans, and whether they fit."""

from pathlib import Path

import pytest

from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.prediction.check import check_job
from prism_jax.schedule.registry import make_schedule
from prism_jax.tables.streams import example_files

# devices, tokens per step, billion parameters; sources in the files
SIZES = {
    "dlrm_dcnv2_64": (64, 0, 26.15),
    "resnet50_64": (64, 0, 0.02556),
    "vit_h_14_64": (64, 0, 0.632),
    "dit_xl_2_32": (32, 0, 0.675),
    "t5_11b_256": (256, 2048 * 512, 11.3),
    "bert_large_1024": (1024, 8192 * 512, 0.336),
    "deepseek_v3_2048": (2048, 15360 * 4096, 671),
    "gpt3_175b_1024": (1024, 1536 * 2048, 175),
    "llama2_7b_fsdp_64": (64, 128 * 4096, 6.7),
    "llama3_405b_16384": (16384, 2**24, 406),
    "llama3_405b_16384_131k": (16384, 2**24, 406),
    "llama3_405b_65536": (65536, 2**26, 406),
    "llama3_405b_8192": (8192, 2**24, 406),
}
MOST_NOT_FIT_PROB = 0.2  # of jobs that ran


@pytest.fixture(params=sorted(SIZES))
def example(request: pytest.FixtureRequest) -> Job:
    return load_job(example_files()[request.param])


def test_every_promised_job_is_shipped():
    assert set(example_files()) == set(SIZES)


def test_devices_tokens_and_parameters_are_the_published_ones(example: Job):
    n_devices, n_tokens, n_billion = SIZES[example.name]
    assert example.plan.n_devices == example.cluster.n_devices == n_devices
    assert example.plan.global_batch * example.plan.seq_len == n_tokens
    assert example.model.n_params() / 1e9 == pytest.approx(n_billion, rel=0.01)


def test_jobs_vary_and_their_schedules_exist(example: Job):
    plan = example.plan
    assert not example.variability.is_zero
    assert make_schedule(plan.schedule, plan.pp, plan.n_micro_batch, plan.virtual_stages).n_chunk == plan.n_chunk


def test_what_ran_is_not_said_not_to_fit(example: Job):
    found = check_job(example).memory_bytes_per_gpu
    assert found.headroom >= 0.0
    assert found.not_fit_prob <= MOST_NOT_FIT_PROB


def test_every_job_cites_what_it_repeats(examples: Path):
    for file in example_files().values():
        assert file.parent == examples
        comment = "".join(line for line in file.read_text().splitlines() if line.startswith("#"))
        assert "arXiv" in comment or "README.md" in comment or "llama3_405b_16384.yaml" in comment

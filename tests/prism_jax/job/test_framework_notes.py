"""What a job's framework says of its plan."""

from typing import Any

import pytest

from prism_jax.core.errors import ConfigError
from prism_jax.framework.frameworks import EITHER, FRAMEWORKS, RUNS_ON, runs_on
from prism_jax.job.framework_notes import framework_notes
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job


def job(framework: str = "", model: str = "llama-3-70b", **plan: object) -> Job:
    fields = {"tp": 8, "pp": 4, "dp": 2, "micro_batch": 1, "global_batch": 64, "seq_len": 4096, **plan}
    data = {"model": model, "cluster": "dgx-h100", "plan": fields}
    return load_job({**data, "framework": framework} if framework else data)


def test_every_name_stands_for_a_framework_of_ours_and_none_is_one() -> None:
    assert set(RUNS_ON.values()) <= set(FRAMEWORKS.names)
    assert not (set(RUNS_ON) | EITHER) & set(FRAMEWORKS.names)
    assert not set(RUNS_ON) & EITHER


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("torchtitan", "fsdp"),
        ("TorchTitan", "fsdp"),
        ("ddp", "fsdp"),
        ("PyTorch DDP", "fsdp"),
        ("fsdp2", "fsdp"),
        ("nemo", "megatron-core"),
        ("Megatron-LM", "megatron-core"),
        ("megatron_bridge", "megatron-core"),
        ("maxtext", "jax"),
        ("Levanter", "jax"),
        ("GPT-NeoX", "megatron-deepspeed"),
    ],
)
def test_software_is_taken_for_what_it_runs_on_and_that_is_said(name: str, framework: str) -> None:
    own = job(name)
    assert own.framework == framework
    assert own == job(framework)
    (note,) = (note for note in framework_notes(own) if note.startswith("assumed framework"))
    assert f"assumed framework: {framework}, which {name} runs on" in note
    assert not any(note.startswith("assumed") for note in framework_notes(job(framework)))


@pytest.mark.parametrize("name", sorted(EITHER))
def test_trainers_run_on_deepspeed_where_the_plan_has_a_zero_stage(name: str) -> None:
    assert (runs_on(name), runs_on(name, 2)) == ("fsdp", "deepspeed")
    assert job(name, tp=1, pp=1, dp=8, zero_stage=3, model="llama-3-8b").framework == "deepspeed"


def test_unknown_software_is_refused() -> None:
    with pytest.raises(ConfigError, match="'bogus' must be one of megatron-core"):
        job("bogus")


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (
            {"framework": "megatron-core", "zero_stage": 2, "pp": 1},
            "zero_stage = 2, but framework megatron-core has 0, 1",
        ),
        ({"framework": "nemo", "zero_stage": 3, "pp": 1}, "zero_stage = 3, but framework megatron-core has 0, 1"),
        (
            {"framework": "nanotron", "schedule": "interleaved", "virtual_stages": 2},
            "schedule = interleaved, but framework nanotron",
        ),
        ({"framework": "deepspeed"}, "tp = 8, but framework deepspeed has at most 1"),
        ({"framework": "deepspeed", "tp": 1}, "schedule = 1f1b, but framework deepspeed has no pipelines"),
        (
            {"framework": "megatron-2021", "sequence_parallel": True},
            "framework megatron-2021 has no sequence parallelism",
        ),
        ({"pp": 3, "dp": 2}, "80 layers are not divided by pp = 3: chunks of 26 and 27 layers are assumed"),
        (
            {"framework": "megatron-core", "schedule": "interleaved", "virtual_stages": 3},
            "80 layers are not divided by pp x virtual_stages = 12, and framework megatron-core refuses that",
        ),
        ({"tp": 16, "dp": 1}, "tp = 16 is more than the 8 KV heads of model llama-3-70b: 2 GPUs hold each"),
        ({"tp": 1, "sequence_parallel": True}, "sequence_parallel is without effect at tp = 1"),
        ({"dp": 1, "zero_stage": 1}, "zero_stage = 1 is without effect at dp = 1"),
    ],
)
def test_what_a_framework_does_not_have_and_splits_that_are_uneven_are_said(plan: dict[str, Any], said: str) -> None:
    found = framework_notes(job(**plan))
    assert any(said in note for note in found), found


def test_a_plan_that_comes_out_even_has_nothing_to_say() -> None:
    assert framework_notes(job("megatron-core", zero_stage=1, sequence_parallel=True)) == ()
    split = (20, 20, 20, 20)
    assert framework_notes(job("megatron-core", layer_split=list(split))) == ()

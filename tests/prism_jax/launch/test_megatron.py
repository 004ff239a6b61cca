"""Arguments of Megatron-LM as fields of a job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from prism_jax.core.errors import DataError
from prism_jax.launch.head_job import HeadJob, NoDeviceError, job_of_head, rank_parameters
from prism_jax.launch.read_heads import read_heads

from .heads import GPT_2021, LLAMA, megatron_block


def model_of(found: HeadJob) -> Any:
    return cast(Any, found.job.model)


def job_from(
    tmp_path: Path, arguments: Mapping[str, object], *more: str, device: str | None = "h100-sxm", overrides=()
):
    path = tmp_path / "train.log"
    path.write_text("\n".join([*megatron_block(arguments), *more]) + "\n")
    [head] = read_heads(path)
    return job_of_head(head, str(path), device, overrides)


def test_a_llama_of_megatron_core_is_the_shipped_one(tmp_path):
    assert job_from(tmp_path, LLAMA).job.model.n_params() == 8_030_261_248  # Llama 3 8B (arXiv 2407.21783)


def test_degrees_and_batch_are_read(tmp_path):
    plan = job_from(tmp_path, LLAMA).job.plan
    assert (plan.tp, plan.pp, plan.cp, plan.dp) == (2, 1, 1, 8)
    assert (plan.micro_batch, plan.global_batch, plan.seq_len) == (1, 64, 8192)
    assert plan.sequence_parallel
    assert plan.zero_stage == 1
    assert plan.dtype == "bf16"
    assert plan.recompute == "none"


def test_query_groups_count_only_with_grouped_attention(tmp_path):
    found = job_from(tmp_path, {**LLAMA, "group_query_attention": False, "num_query_groups": 1})
    assert model_of(found).n_kv_heads in (0, 32)


def test_megatron_of_2021_has_its_own_framework_and_defaults(tmp_path):
    found = job_from(
        tmp_path, GPT_2021, " > padded vocab (size: 50257) with 431 dummy tokens (new size: 50688)", device="v100"
    )
    job = found.job
    assert job.framework == "megatron-2021"
    model = model_of(found)
    assert model.vocab == 50688
    assert (model.norm, model.position, model.gated, model.tied_embeddings) == (
        "layer",
        "learned",
        False,
        True,
    )
    assert job.plan.recompute == "full"
    assert job.plan.software.attention == "fused_softmax"


def test_a_bf16_optimizer_of_deepspeed_shards_at_stage_0(tmp_path):
    arguments = {
        **GPT_2021,
        "bf16": True,
        "fp16": False,
        "zero_stage": 0,
        "deepspeed": True,
        "padded_vocab_size": 50688,
    }
    job = job_from(tmp_path, arguments, device="a100").job
    assert job.framework == "megatron-deepspeed"
    assert job.plan.zero_stage == 1


def test_one_expert_is_no_expert(tmp_path):
    job = job_from(tmp_path, {**LLAMA, "num_experts": [1], "topk": 1}).job
    assert not job.model.has_experts


def test_experts_are_read(tmp_path):
    arguments = {
        **LLAMA,
        "num_experts": 8,
        "moe_router_topk": 2,
        "moe_ffn_hidden_size": 1024,
        "expert_model_parallel_size": 4,
        "expert_tensor_parallel_size": 1,
        "moe_token_dispatcher_type": "alltoall",
        "moe_layer_freq": "([0]*2+[1]*30)",
    }
    with_text = job_from(tmp_path, arguments)
    assert [one.name for one in with_text.stated.not_modelled] == ["moe_layer_freq"]
    arguments["moe_layer_freq"] = str([0] * 2 + [1] * 30)
    found = job_from(tmp_path, arguments)
    job, moe = found.job, model_of(found).moe
    assert (moe.n_experts, moe.top_k, moe.n_dense_first) == (8, 2, 2)
    assert (job.plan.ep, job.plan.etp, job.plan.software.dispatcher) == (4, 1, "alltoall")


def test_layers_of_another_kind_are_refused_by_name(tmp_path):
    with pytest.raises(DataError, match="hybrid_override_pattern = M-M"):
        job_from(tmp_path, {**LLAMA, "hybrid_override_pattern": "M-M-M*-M"})


def test_a_vocabulary_follows_from_the_number_of_parameters(tmp_path):
    whole = job_from(tmp_path, LLAMA)
    count = rank_parameters(whole.job.model, whole.job.plan, 0)
    arguments = {name: value for name, value in LLAMA.items() if name != "padded_vocab_size"}
    line = f" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): {count}"
    assert model_of(job_from(tmp_path, arguments, line)).vocab == 128256


def test_a_bias_that_the_head_does_not_say_follows_from_the_number_of_parameters(tmp_path):
    arguments = {**LLAMA}
    with_bias = job_from(tmp_path, arguments, overrides=["model.qkv_bias=true"])
    count = rank_parameters(with_bias.job.model, with_bias.job.plan, 0)
    line = f" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): {count}"
    found = job_from(tmp_path, arguments, line)
    assert model_of(found).qkv_bias is True
    assert not found.stated.notes


def test_sizes_that_do_not_match_the_number_of_parameters_are_said(tmp_path):
    line = " > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 1234567890"
    found = job_from(tmp_path, LLAMA, line)
    assert "1,234,567,890" in found.stated.notes[0]


def test_a_device_is_asked_for_once_and_ruled_down(tmp_path):
    line = "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1.0 | max allocated: 100000.0 | reserved: 1.0"
    with pytest.raises(NoDeviceError, match="--device") as raised:
        job_from(tmp_path, LLAMA, line, device=None)
    assert "b200" in str(raised.value)
    assert "h100-sxm," not in str(raised.value)


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ("|   0  Tesla V100-SXM2...  Off  | 00000000:1A:00.0 Off |                    0 |", "v100-32gb"),
        ("|   0  NVIDIA A100-SXM4-40GB          On  | 00000000:07:00.0 Off |                    0 |", "a100-40gb"),
        ("|   0  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |                    0 |", "h100-sxm"),
        ("|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |                  Off |", "rtx-4090"),
        ("|   0  NVIDIA GH200 120GB             On  |   00000009:01:00.0 Off |                    0 |", "gh200"),
    ],
)
def test_nvidia_smi_names_the_device(row, name, tmp_path):
    arguments = {**LLAMA, "bf16": False, "fp16": True}
    assert job_from(tmp_path, arguments, row, device=None).job.cluster.device.name == name


def test_bf16_on_volta_is_said_and_not_refused(tmp_path):
    found = job_from(tmp_path, LLAMA, device="v100-32gb")
    assert "bf16 on v100-32gb" in found.stated.notes[0]
    assert found.job.cluster.device.peak_flops_per_s["bf16"] == pytest.approx(15.7e12)


def test_mistakes_name_the_line_of_the_log(tmp_path):
    with pytest.raises(DataError, match=r"line \d+: num_layers = 'many'"):
        job_from(tmp_path, {**LLAMA, "num_layers": "many"})


def test_set_mends_a_field(tmp_path):
    assert job_from(tmp_path, LLAMA, overrides=["plan.micro_batch=2"]).job.plan.micro_batch == 2


def test_a_learned_softmax_may_have_no_fused_kernel(tmp_path):
    stated = job_from(tmp_path, {**LLAMA, "softmax_type": "learnable"}).stated
    assert stated.get("model.attention_sinks") is True
    assert stated.either == [("attention", "eager")]

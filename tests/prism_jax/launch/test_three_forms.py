"""Twelve jobs, each as the head of a log, as a script and as a configuration: imported alike, but for what a form cannot say."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from prism_jax.launch.import_job import import_job
from tests.prism_jax.launch import heads

CORE = ["model.n_layers", "model.hidden", "model.ffn_hidden", "model.n_heads", "model.vocab", "plan.seq_len",
        "plan.micro_batch", "plan.global_batch", "plan.dp", "cluster.n_devices", "plan.dtype", "plan.recompute"]  # fmt: skip
Texts = Mapping[str, str]


@dataclass(frozen=True)
class Forms:
    """A job in the forms of its trainer: names of files and their texts; the first file of each form is imported."""

    log: Texts
    script: Texts
    config: Texts
    gpus: int


def flags(values: Mapping[str, Any], join: str = " ") -> str:
    return " \\\n  ".join(f"--{name}{join}{value}" if value != "" else f"--{name}" for name, value in values.items())


def yaml(values: Mapping[str, Any]) -> str:
    return "".join(f"{name}: {value}\n" for name, value in values.items())


def megatron(tp: int, pp: int, batch: int, **more: Any) -> Forms:
    own = heads.stated(
        "num_layers=32 hidden_size=4096 num_attention_heads=32 ffn_hidden_size=14336 seq_length=4096 "
        f"max_position_embeddings=4096 micro_batch_size=2 global_batch_size={batch} tensor_model_parallel_size={tp} "
        f"pipeline_model_parallel_size={pp} padded_vocab_size=128256 num_query_groups=8"
    )
    text = {"position_embedding_type": "rope", "normalization": "RMSNorm", **more}
    sets = [
        "swiglu",
        "group_query_attention",
        "bf16",
        "untie_embeddings_and_output_weights",
        "use_distributed_optimizer",
    ]
    block = {**own, **text, **dict.fromkeys(sets, True), "add_bias_linear": False, "world_size": 32}
    block |= {"sequence_parallel": tp > 1, "transformer_impl": "transformer_engine"}
    flagged = [*sets, "disable_bias_linear", *(["sequence_parallel"] if tp > 1 else [])]
    words = {name.replace("_", "-"): value for name, value in {**own, **text, **dict.fromkeys(flagged, "")}.items()}
    script = f"torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py {flags(words)}\n"
    rows = "".join(f"  --{name}: {True if value == '' else value}\n" for name, value in words.items())
    return Forms(
        {"train.log": "\n".join([*heads.megatron_block(block), *heads.megatron_steps([3.0] * 12)])},
        {"run.sh": script},
        {"model.yaml": f"ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\nMODEL_ARGS:\n{rows}"},
        32,
    )


BASE = heads.stated(
    "run_name=a steps=10 model_name=default base_emb_dim=4096 base_num_query_heads=32 base_num_kv_heads=8 base_mlp_dim=14336 "
    "base_num_decoder_layers=32 head_dim=128 mlp_activations=['silu','linear'] vocab_size=128256 logits_via_embedding=False "
    "num_experts=1 dtype=bfloat16 dcn_data_parallelism=-1"
)


def maxtext(**own: Any) -> Forms:
    values = heads.stated("per_device_batch_size=2 max_target_length=4096 remat_policy=full ici_fsdp_parallelism=-1")
    every = {**BASE, **values, **own}
    head = "".join(f"I0506 1 pyconfig.py:99] Config param {name}: {value}\n" for name, value in every.items())
    words = " ".join(f"{name}={value}" for name, value in every.items() if name != "mlp_activations")
    return Forms(
        {"train.log": f"{head}Num_devices: 16, shape (1, 1, 16)\n{heads.maxtext_steps(3.0)}"},
        {"run.sh": f"python3 -m MaxText.train MaxText/configs/base.yml {words}\n"},
        {"base.yml": yaml(every)},
        16,
    )


def titan(tp: int, mode: str, local: int) -> Forms:
    dp = 16 // tp
    applied = (
        "" if mode == "none" else f"[titan] - root - INFO - Applied {mode} activation checkpointing to the model\n"
    )
    log = f"""[titan] - root - INFO - Building device mesh with parallelism: pp=1, dp_replicate=1, \
dp_shard={dp}, cp=1, tp={tp}, ep=1
[titan] - root - INFO - Building llama3 8B
{applied}[titan] - root - INFO - Trainer is initialized with local batch size {local}, \
global batch size {local * dp}, gradient accumulation steps 1, sequence length 4096, total steps 10 (warmup 2)
{heads.titan_steps(3.0)}"""
    toml = f"""[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = {local}
seq_len = 4096
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = {tp}
[activation_checkpoint]
mode = "{mode}"
selective_ac_option = "op"
"""
    words = {"training.local_batch_size": local, "training.seq_len": 4096, "parallelism.tensor_parallel_degree": tp}
    words |= {"parallelism.data_parallel_shard_degree": dp, "activation_checkpoint.mode": mode}
    run = f"torchrun --nproc_per_node 16 -m torchtitan.train --module llama3 --config llama3_8b {flags(words)}\n"
    return Forms({"train.log": log}, {"run.sh": run}, {"llama3.toml": toml}, 16)


def factory(micro: int, stage: int, length: int, method: str = "full") -> Forms:
    deepspeed = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": stage, "overlap_comm": True}}
    deepspeed |= {"bf16": {"enabled": "auto"}}
    values = heads.stated(
        f"model_name_or_path=Qwen/Qwen2.5-7B stage=sft do_train=true finetuning_type={method} dataset=a cutoff_len={length} "
        f"per_device_train_batch_size={micro} gradient_accumulation_steps=4 bf16=true deepspeed=ds_z{stage}_config.json "
        + ("lora_rank=8 lora_target=all" if method == "lora" else "")
    )
    adapters = ", lora_rank=8, lora_target=all, finetuning_type=lora" if method == "lora" else ""
    log = heads.LLAMA_FACTORY.replace("= 64", f"= {micro * 32}").replace("device = 2", f"device = {micro}")
    log = log.replace('"train_micro_batch_size_per_gpu": 2', f'"train_micro_batch_size_per_gpu": {micro}')
    log = log.replace('"stage": 3', f'"stage": {stage}')
    log = log.replace("_stage ...... 3", f"_stage ...... {stage}")
    log = f"Seq2SeqTrainingArguments(\ncutoff_len={length}{adapters},\n)\n{log}"
    others = {f"ds_z{stage}_config.json": json.dumps(deepspeed)}
    run = f"torchrun --nproc_per_node 8 src/train.py {flags(values)}\n"
    config = {"train.yaml": yaml(values), **others}
    return Forms({"train.log": log + heads.bars(3.0)}, {"run.sh": run, **others}, config, 8)


JOBS = {
    "Megatron-LM": megatron(1, 1, 64),
    "Megatron-LM of stages": megatron(4, 2, 128),
    "Megatron-LM that computes again": megatron(
        2, 1, 128, recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1
    ),
    "MaxText": maxtext(),
    "MaxText with tensors": maxtext(ici_tensor_parallelism=4, per_device_batch_size=1),
    "MaxText of less": maxtext(remat_policy="minimal", max_target_length=2048, gradient_accumulation_steps=2),
    "torchtitan": titan(2, "selective", 2),
    "torchtitan in full": titan(4, "full", 4),
    "torchtitan without": titan(1, "none", 1),
    "LLaMA-Factory": factory(2, 3, 2048),
    "LLaMA-Factory of stage 2": factory(4, 2, 1024),
    "LLaMA-Factory with adapters": factory(1, 2, 4096, "lora"),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_job_is_the_same_in_its_three_forms(name: str, tmp_path: Path) -> None:
    forms = JOBS[name]
    found: dict[str, dict[str, str]] = {}
    for kind in ("log", "script", "config"):
        texts: Texts = getattr(forms, kind)
        folder = tmp_path / kind
        folder.mkdir()
        for file, text in texts.items():
            (folder / file).write_text(text)
        options: dict[str, Any] = {} if kind == "log" else {"n_devices": forms.gpus}
        report = import_job(folder / next(iter(texts)), device="h100-sxm", **options)
        found[kind] = {one.path: one.value for one in report.read}
    log, script, config = (found[kind] for kind in ("log", "script", "config"))
    for other in (script, config):
        assert log.keys() & other.keys() >= set(CORE)
        both = (log.keys() & other.keys()) - {"model.name"}
        assert {path: other[path] for path in both} == {path: log[path] for path in both}
    only = (log.keys() ^ script.keys()) | (log.keys() ^ config.keys())
    assert not {path for path in only if path.startswith("plan.") and path not in UNSAID}


# What a form leaves to the trainer, and another one prints.
UNSAID = ["plan.overlap.dp", "plan.sequence_parallel", "plan.zero_stage", "plan.pp", "plan.cp", "plan.ep", "plan.etp",
          "plan.tp"]  # fmt: skip

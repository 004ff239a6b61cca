"""torchtitan: TOML of 2024 and 2025, the JSON that it saves, and command lines."""

from collections.abc import Mapping
from typing import Any

from ..heads import stated
from .case import Case

TOML = """# torchtitan Config.toml
# NOTE: this toml config is a preset for 64 A100 GPUs.
[job]
dump_folder = "./outputs"
description = "Llama 3 8B training"

[profiling]
enable_profiling = true
profile_freq = 100

[model]
name = "llama3"
flavor = "8B"
tokenizer_path = "./assets/tokenizer/original/tokenizer.model"
# converters = ["float8"]

[optimizer]
name = "AdamW"
lr = 3e-4

[training]
local_batch_size = 2
seq_len = 8192
max_norm = 1.0  # grad norm clipping
steps = 1000
dataset = "c4"

[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
pipeline_parallel_degree = 1
context_parallel_degree = 1

[checkpoint]
enable = false

[activation_checkpoint]
mode = "selective"  # ["none", "selective", "full"]
selective_ac_option = "op"  # "int" = ac every positive int layer or "op"

[compile]
enable = false
components = ["model", "loss"]
"""
OLD = """[model]
name = "llama3"
flavor = "70B"
norm_type = "rmsnorm"
[optimizer]
name = "AdamW"
[training]
batch_size = 8
seq_len = 4096
warmup_steps = 200
data_parallel_degree = -1
tensor_parallel_degree = 8
compile = true
[experimental]
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "1F1B"
pipeline_parallel_microbatches = 4
enable_async_tensor_parallel = false
[activation_checkpoint]
mode = "full"
[float8]
enable_float8_linear = true
"""
JSON = """{"model_spec": {"name": "qwen3", "flavor": "30B-A3B"}, "hf_assets_path": "./x", "dump_folder": "outputs",
 "optimizer": {"name": "AdamW", "lr": 0.0008},
 "training": {"num_tokens_per_microbatch_per_dp_rank": 8192, "max_context_length": 4096, "num_tokens_per_train_step": 1048576,
  "steps": 10, "dtype": "float32", "mixed_precision_param": "bfloat16"},
 "parallelism": {"data_parallel_replicate_degree": 1, "data_parallel_shard_degree": 16, "fsdp_reshard_after_forward": "default",
  "tensor_parallel_degree": 2, "pipeline_parallel_degree": 1, "context_parallel_degree": 1, "expert_parallel_degree": 8,
  "pipeline_parallel_schedule": "1F1B", "num_pp_microbatches": 1},
 "activation_checkpoint": {"_target_": "torchtitan.distributed.activation_checkpoint.FullAC.Config"},
 "compile": {"enable": true, "components": ["model", "loss"]}}
"""
DIMS = """{"model": {"dim": 2048, "n_layers": 16, "n_heads": 32, "n_kv_heads": 8, "hidden_dim": 8192, "vocab_size": 128256, "name": "mine",
 "flavor": "1B"}, "training": {"local_batch_size": 4, "seq_len": 2048, "global_batch_size": 64},
 "parallelism": {"data_parallel_shard_degree": 8, "data_parallel_replicate_degree": 1}, "activation_checkpoint": {"mode": "none"}}
"""
RUN = 'NGPU=16 CONFIG_FILE="./train_configs/llama3_8b.toml" ./run_train.sh --training.seq_len 4096 --parallelism.tensor_parallel_degree=4\n'
SLURM = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks=4
#SBATCH --gpus-per-task=8
export NCCL_DEBUG=WARN
CONFIG_FILE=${CONFIG_FILE:-"./train_configs/llama3_8b.toml"}
srun torchrun --nnodes 4 --nproc_per_node 8 --rdzv_id 101 --rdzv_backend c10d -m torchtitan.train --job.config_file ${CONFIG_FILE}
"""
NEW = """MODULE=llama3 CONFIG=llama3_8b NGPU=8 ./run_train.sh --training.num-tokens-per-microbatch-per-dp-rank=16384 \\
  --training.max-context-length=8192 --parallelism.data_parallel_shard_degree=4 --parallelism.tensor_parallel_degree=2 --compile.enable
"""
BASE = stated(
    "layers=32 hidden=4096 ffn=14336 heads=32 kv=8 seq=8192 micro=2 batch=64 tp=2 dp=32 gpus=64 dtype=bf16 "
    "recompute=selective_op zero=3 plan.sharding=fsdp"
)
OF_OLD = stated("layers=80 hidden=8192 tp=8 pp=2 dp=4 gpus=64 micro=2 batch=32 seq=4096 dtype=fp8")
OF_JSON = stated("layers=48 experts=128 top_k=8 tp=2 ep=8 dp=16 gpus=32 micro=2 batch=256 seq=4096")
TOMLS = {"train_configs/llama3_8b.toml": TOML}


def _case(name: str, more: Mapping[str, Any], *changes: tuple[str, str], **rest: Any) -> Case:
    text = TOML
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    rest = {"options": {"n_devices": 64}} | rest
    return Case(name, text, {**BASE, **more}, "llama3.toml", **rest)


CASES = [
    _case("as it stands", {}),
    _case("GPUs are asked for", {}, options={}, refused="--gpus N"),
    _case(
        "degrees say the GPUs",
        {"gpus": 16, "dp": 8, "batch": 16},
        ("shard_degree = -1", "shard_degree = 8"),
        options={},
    ),
    _case("replicas", {"plan.sharding": "hsdp", "plan.dp_shard": 8}, ("replicate_degree = 1", "replicate_degree = 4")),
    _case("context", {"cp": 4, "dp": 8, "batch": 16}, ("context_parallel_degree = 1", "context_parallel_degree = 4")),
    _case(
        "stages",
        {"pp": 4, "dp": 8, "micro": 1, "batch": 128, "zero": 2, "plan.schedule": "1f1b"},
        (
            "pipeline_parallel_degree = 1",
            'pipeline_parallel_degree = 4\npipeline_parallel_schedule = "1F1B"\nfsdp_reshard_after_forward = "default"',
        ),
        ("local_batch_size = 2", "local_batch_size = 16"),
    ),
    _case(
        "interleaved",
        {"pp": 2, "dp": 16, "micro": 2, "batch": 256, "vpp": 2, "plan.schedule": "interleaved"},
        (
            "pipeline_parallel_degree = 1",
            'pipeline_parallel_degree = 2\npipeline_parallel_schedule = "Interleaved1F1B"\n'
            "pipeline_parallel_microbatch_size = 2",
        ),
        ("local_batch_size = 2", "local_batch_size = 16"),
    ),
    _case("whole layers", {"recompute": "full"}, ('mode = "selective"', 'mode = "full"')),
    _case(
        "every second layer",
        {"recompute": "full", "plan.recompute_num_layers": 16, "plan.recompute_method": "block"},
        ('option = "op"', 'option = "2"'),
    ),
    _case("no checkpointing", {"recompute": "none"}, ('mode = "selective"', 'mode = "none"')),
    _case("a global batch", {"batch": 512}, ("seq_len = 8192", "seq_len = 8192\nglobal_batch_size = 512")),
    _case(
        "float8",
        {"dtype": "fp8", "software.compile": True},
        ("# converters", "converters"),
        ("enable = false\ncomp", "enable = true\ncomp"),
    ),
    _case("mxfp8", {"dtype": "mxfp8"}, ('# converters = ["float8"]', 'converters = ["quantize.linear.mx"]')),
    _case("defaults", {"seq": 2048, "micro": 8, "batch": 256}, ("local_batch_size = 2\nseq_len = 8192\n", "")),
    _case(
        "experts",
        {"layers": 48, "hidden": 2048, "ffn": 6144, "kv": 4, "experts": 128, "top_k": 8, "ep": 8},
        ('"llama3"', '"qwen3"'),
        ('"8B"', '"30B-A3B"'),
        ("context_parallel_degree = 1", "context_parallel_degree = 1\nexpert_parallel_degree = 8"),
    ),
    _case(
        "a flavour that is no preset",
        {"layers": 61, "hidden": 7168, "ffn": 18432, "heads": 128, "kv": 1, "experts": 256},
        ('"llama3"', '"deepseek_v3"'),
        ('"8B"', '"671B"'),
    ),
    _case("an unknown flavour", {}, ('"8B"', '"debugmodel"'), refused="llama3-debugmodel"),
    _case(
        "values behind the file",
        {"seq": 4096, "tp": 8, "dp": 8, "batch": 16},
        arguments=["--training.seq_len=4096", "parallelism.tensor_parallel_degree=8"],
    ),
    Case(
        "of 2024", OLD, OF_OLD | {"recompute": "full", "software.compile": True}, "old.toml", options={"n_devices": 64}
    ),
    Case("json", JSON, OF_JSON | {"recompute": "full", "software.compile": True}, "config.json"),
    Case(
        "json with sizes",
        DIMS,
        {"layers": 16, "hidden": 2048, "ffn": 8192, "kv": 8, "micro": 4, "batch": 64, "gpus": 8, "recompute": "none"},
        "c.json",
    ),
    Case("run_train", RUN, BASE | {"seq": 4096, "tp": 4, "dp": 4, "gpus": 16, "batch": 8}, others=TOMLS),
    Case(
        "run_train on eight",
        RUN.replace("NGPU=16 ", ""),
        BASE | {"seq": 4096, "tp": 4, "dp": 2, "gpus": 8, "batch": 4},
        others=TOMLS,
    ),
    Case("slurm", SLURM, BASE | {"gpus": 32, "dp": 16, "batch": 32}, others=TOMLS),
    Case("a configuration that is not there", SLURM, refused=r"llama3_8b\.toml, which is not there"),
    Case(
        "configurations in Python",
        NEW,
        {"layers": 32, "seq": 8192, "micro": 2, "batch": 8, "tp": 2, "dp": 4, "gpus": 8, "software.compile": True},
    ),
    Case(
        "of Python without a batch",
        "CONFIG=llama3_8b NGPU=8 ./run_train.sh --parallelism.tensor_parallel_degree 2",
        refused=r"plan\.seq_len, plan\.micro_batch",
    ),
]

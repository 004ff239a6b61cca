"""LLaMA-Factory: YAML, alone, with a DeepSpeed JSON or an accelerate YAML, and on a command line."""

from collections.abc import Mapping
from typing import Any

from ..heads import stated
from .case import Case

LORA = """### model
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
trust_remote_code: true

### method
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all

### dataset
dataset: identity,alpaca_en_demo
template: llama3
cutoff_len: 2048
max_samples: 1000

### output
output_dir: saves/llama3-8b/lora/sft
logging_steps: 10
report_to: none  # choices: [none, wandb, tensorboard, swanlab, mlflow]

### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
bf16: true
ddp_timeout: 180000000
resume_from_checkpoint: null

### eval
# per_device_eval_batch_size: 1
"""
FULL = LORA.replace(
    "finetuning_type: lora\nlora_rank: 8\nlora_target: all",
    "finetuning_type: full\ndeepspeed: examples/deepspeed/ds_z3_config.json",
)
Z3 = """{
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto",
  "zero_allow_untested_optimizer": true,
  "fp16": {"enabled": "auto", "loss_scale": 0},
  "bf16": {"enabled": "auto"},
  "zero_optimization": {
    "stage": 3,
    "overlap_comm": false,
    "reduce_bucket_size": "auto",
    "stage3_max_live_parameters": 1e9
  }
}
"""
Z2 = Z3.replace('"stage": 3', '"stage": 2')
OFFLOAD = Z3.replace(
    '"stage": 3,', '"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"},'
)
FSDP = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_version: 2
mixed_precision: bf16  # or fp16
num_machines: 1  # the number of nodes
num_processes: 4  # the number of GPUs in all nodes
"""
MOE = """model_name_or_path: Qwen/Qwen3-30B-A3B-Instruct-2507
# GPU memory: 8 * 78GB
do_train: true
stage: sft
finetuning_type: full # only support full for now
dataset: alpaca_en_demo
cutoff_len: 4096
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
tensor_model_parallel_size: 1
pipeline_model_parallel_size: 4
use_distributed_optimizer: true
expert_model_parallel_size: 2
recompute_granularity: full
"""
V1 = """model: Qwen/Qwen3-0.6B
model_class: llm
flash_attn: flash_attention_2
dist_config:
  name: fsdp2
  dcp_path: null
cp_mode: ulysses
cp_size: 2
train_dataset: data/v1_sft_demo.yaml
micro_batch_size: 1
cutoff_len: 2048
bf16: true
"""
BASE = stated(
    "layers=32 hidden=4096 ffn=14336 heads=32 kv=8 seq=2048 micro=1 batch=64 gpus=8 dtype=bf16 recompute=full"
)
OF_LORA = BASE | {"model.adapters.rank": 8, "model.adapters.targets": "['all']"}
OF_FULL = BASE | {"zero": 3, "model.adapters.rank": 1}
EIGHT = {"n_devices": 8}
FILE = "llama3.yaml"


def _case(name: str, text: str, expected: Mapping[str, Any], **rest: Any) -> Case:
    rest = {"options": EIGHT, "file": FILE} | rest
    return Case(name, text, expected, **rest)


def _lora(name: str, old: str, new: str, more: Mapping[str, Any]) -> Case:
    assert old in LORA
    return _case(name, LORA.replace(old, new), {**OF_LORA, **more})


CASES = [
    _case("lora", LORA, OF_LORA),
    _case("stage by the name of a file that is not there", FULL, OF_FULL),
    _case("deepspeed given", FULL, OF_FULL, others={"ds_z3_config.json": Z3}, arguments=["ds_z3_config.json"]),
    _case("deepspeed first", Z3, OF_FULL, file="ds_z3_config.json", others={FILE: FULL}, arguments=[FILE]),
    _case(
        "deepspeed followed",
        FULL.replace("ds_z3_config", "of_mine"),
        OF_FULL | {"zero": 2},
        others={"examples/deepspeed/of_mine.json": Z2},
    ),
    _case(
        "deepspeed below another folder",
        FULL.replace("ds_z3_config", "of_mine"),
        OF_FULL | {"zero": 2},
        file="examples/train_full/a.yaml",
        others={"examples/deepspeed/of_mine.json": Z2},
        options=EIGHT | {"root": "."},
    ),
    _case(
        "offload",
        FULL,
        OF_FULL | {"plan.offload_optimizer": "1.0", "plan.offload_parameters": True},
        others={"examples/deepspeed/ds_z3_config.json": OFFLOAD},
    ),
    _case(
        "a stage that nobody says",
        FULL.replace("ds_z3_config", "mine"),
        {},
        refused=r"mine\.json, which is not there.*plan\.zero_stage=N",
    ),
    _case(
        "deepspeed within",
        FULL.replace("deepspeed: examples/deepspeed/ds_z3_config.json", "deepspeed: {zero_optimization: {stage: 1}}"),
        OF_FULL | {"zero": 1},
    ),
    _case(
        "accelerate",
        FULL.replace("deepspeed: examples/deepspeed/ds_z3_config.json\n", ""),
        OF_FULL | {"gpus": 4, "batch": 32, "plan.sharding": "fsdp"},
        others={"fsdp.yaml": FSDP},
        arguments=["fsdp.yaml"],
        options={},
    ),
    _case(
        "values behind the file",
        LORA,
        OF_LORA | {"micro": 2, "batch": 32, "seq": 1024},
        options=EIGHT,
        arguments=["per_device_train_batch_size=2", "gradient_accumulation_steps=2", "cutoff_len=1024"],
    ),
    _lora("default rank and length", "lora_rank: 8\n", "", {}),
    _lora("no length", "cutoff_len: 2048\n", "", {}),
    _lora("no batch", "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8", "", {"micro": 8, "batch": 64}),
    _lora(
        "some targets",
        "lora_target: all",
        "lora_target: q_proj,v_proj",
        {"model.adapters.targets": "['q_proj', 'v_proj']"},
    ),
    _lora("four bits", "lora_rank: 8", "lora_rank: 8\nquantization_bit: 4", {"model.adapters.quantised": "nf4"}),
    _lora("no checkpointing", "bf16: true", "bf16: true\ndisable_gradient_checkpointing: true", {"recompute": "none"}),
    _lora("fp16", "bf16: true", "fp16: true", {"dtype": "fp16"}),
    _case(
        "mcore",
        MOE,
        stated("layers=48 experts=128 top_k=8 tp=1 pp=4 ep=2 dp=2 micro=1 batch=16 zero=1 seq=4096 recompute=full"),
    ),
    _case(
        "version 1",
        V1,
        stated("layers=28 cp=2 dp=4 micro=1 batch=4 seq=2048 zero=3 plan.sharding=fsdp software.attention=flash2"),
    ),
    _case("GPUs are asked for", LORA, {}, options={}, refused="--gpus N"),
    _case(
        "a model that is not known",
        LORA.replace("Meta-Llama-3-8B-Instruct", "Other-9B"),
        {},
        refused=r"line 2: .*Other-9B",
    ),
    _case(
        "inference",
        "model_name_or_path: Qwen/Qwen3-8B\ntemplate: qwen3\ninfer_backend: huggingface\n",
        {},
        refused="no training",
    ),
    _case(
        "export",
        "model_name_or_path: Qwen/Qwen3-8B\nadapter_name_or_path: a\ntemplate: qwen3\nfinetuning_type: lora\nexport_dir: b\n",
        {},
        refused="no training",
    ),
    _case(
        "command line",
        "FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=8 llamafactory-cli train examples/train_full/llama3.yaml\n",
        OF_FULL | {"gpus": 16, "batch": 128},
        file="run.sh",
        options={},
        others={"examples/train_full/llama3.yaml": FULL, "examples/deepspeed/ds_z3_config.json": Z3},
    ),
    _case(
        "command line of the file beside",
        "CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train llama3.yaml cutoff_len=512\n",
        OF_LORA | {"gpus": 2, "batch": 16, "seq": 512},
        file="run.sh",
        options={},
        others={FILE: LORA},
    ),
    _case(
        "command line of a file that is not there",
        "llamafactory-cli train configs/x.yaml\n",
        {},
        file="run.sh",
        refused=r"configs/x\.yaml, which",
    ),
]
WRITTEN = """MODEL=meta-llama/Meta-Llama-3-8B-Instruct
cat > lf-sft.yaml <<EOL
model_name_or_path: ${MODEL}
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
dataset: a
cutoff_len: 1024
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
fp16: true
EOL
if [ "${NNODES}" -gt 1 ]; then
    echo "deepspeed: ds-z3-config.json" >> lf-sft.yaml
    FORCE_TORCHRUN=1 llamafactory-cli train lf-sft.yaml
else
    unset NNODES
    CUDA_VISIBLE_DEVICES=0 llamafactory-cli train lf-sft.yaml
fi
"""
CASES += [
    Case(
        "a file that the script writes",
        WRITTEN,
        OF_LORA | {"seq": 1024, "micro": 4, "batch": 8, "gpus": 1, "dtype": "fp16"},
        variables={"NNODES": "1"},
    ),
    Case(
        "json of its own",
        "llamafactory-cli train a.json",
        BASE | {"gpus": 2, "batch": 16},
        options={"n_devices": 2},
        others={
            "a.json": '{"model_name_or_path": "meta-llama/Meta-Llama-3-8B", "stage": "pt", "do_train": true, "finetuning_type": "full",'
            ' "cutoff_len": 2048, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "bf16": true}'
        },
    ),
]
V1_LORA = (
    V1.replace("cp_mode: ulysses\ncp_size: 2\n", "")
    + """sample_backend: hf
max_new_tokens: 128
peft_config:
  name: lora
  r: 16
  target_modules: all
quant_config:
  name: bnb
  quantization_bit: 4
"""
)
CASES += [
    _case(
        "version 1 with adapters of four bits",
        V1_LORA,
        {"layers": 28, "micro": 1, "batch": 8, "model.adapters.rank": 16, "model.adapters.quantised": "nf4"},
    ),
    _case(
        "workers of ray",
        LORA + "ray_num_workers: 4  # Number of GPUs to use.\n",
        OF_LORA | {"gpus": 4, "batch": 32},
        options={},
    ),
    _case(
        "mcore without recomputation",
        MOE.replace("recompute_granularity: full", "virtual_pipeline_model_parallel_size: 2\nsequence_parallel: false"),
        {"recompute": "none", "pp": 4, "vpp": 2, "plan.schedule": "interleaved"},
    ),
    _case("fp8", LORA + "fp8: true\nfp8_backend: te\n", OF_LORA | {"dtype": "fp8"}),
]

"""MaxText: command lines in scripts, inside of xpk, and its YAML."""

from collections.abc import Mapping
from typing import Any

from ..heads import stated
from .case import Case

TPU = """# Llama2 7B model.
# bash llama2_7b.sh RUN_NAME="<your_run_name>" OUTPUT_PATH="gs://<your_output_path>"
set -e
export EXECUTABLE="train" # or train_compile
export DATASET_TYPE="synthetic"
for ARGUMENT in "$@"; do
    IFS='=' read -r KEY VALUE <<< "$ARGUMENT"
    export "$KEY"="$VALUE"
done
if [ -n "$RUN_NAME" ];
then
    export M_RUN_NAME=$RUN_NAME
fi
export LIBTPU_INIT_ARGS="--xla_tpu_enable_data_parallel_all_reduce_opt=true --xla_enable_async_all_gather=true"
python3 -m maxtext.trainers.pre_train.$EXECUTABLE "${MAXTEXT_CONFIGS_DIR:-${MAXTEXT_REPO_ROOT:-$PWD}/configs}"//base.yml \\
  model_name=llama2-7b\\
  base_output_directory=$OUTPUT_PATH dataset_path=${DATASET_PATH}\\
  tokenizer_path=assets/tokenizer.llama2 remat_policy=minimal per_device_batch_size=4\\
  steps=30 enable_checkpointing=false max_target_length=4096\\
  dataset_type=$DATASET_TYPE reuse_example_batch=1
"""
OF_7B = stated(
    "layers=32 hidden=4096 ffn=11008 heads=32 kv=32 seq=4096 micro=4 batch=1024 gpus=256 dtype=bf16 "
    "recompute=selective_op plan.sharding=fsdp"
)
GPU = """#!/bin/bash
set -ex
export OUTPUT_PATH="gs://maxtext-experiments"
export RUN_NAME="llama-31-$(date +%Y-%m-%d-%H-%M)"
export XLA_FLAGS="--xla_dump_to=$OUTPUT_PATH/$RUN_NAME/HLO_dumps/
--xla_gpu_enable_latency_hiding_scheduler=true
--xla_gpu_all_reduce_combine_threshold_bytes=134217728"
python3 MaxText/train.py MaxText/configs/base.yml run_name=$RUN_NAME hardware=gpu steps=10 model_name=llama3.1-405b \\
    attention=cudnn_flash_te remat_policy=full use_iota_embed=True scan_layers=True dataset_type=synthetic \\
    per_device_batch_size=1.0 max_target_length=8192 dcn_fsdp_parallelism=128 ici_fsdp_parallelism=8 \\
    base_output_directory=$OUTPUT_PATH profiler=xplane
"""
OF_GPU = stated("layers=126 hidden=16384 kv=8 seq=8192 micro=1 batch=1024 gpus=1024 recompute=full")
SEVERAL = """set -ex
idx=$(date +%Y-%m-%d-%H-%M)
python3 -m MaxText.llama_or_mistral_ckpt --base-model-path /tmp/ckpt --model-size llama2-7b
python3 -m MaxText.train MaxText/configs/base.yml run_name=direct_${idx} per_device_batch_size=1 model_name='llama2-7b' \\
  ici_tensor_parallelism=4 steps=10 max_target_length=1024 weight_dtype=bfloat16
python3 -m MaxText.decode MaxText/configs/base.yml run_name=x model_name='llama2-7b' per_device_batch_size=2 max_target_length=16
"""
XPK = """export MODEL=mixtral-8x7b
xpk workload create --cluster $CLUSTER --workload $USER-run --tpu-type=v5p-256 --num-slices=2 \\
  --command "export LIBTPU_INIT_ARGS='--xla_tpu_x=true'; python3 -m MaxText.train MaxText/configs/base.yml model_name=${MODEL} \
 per_device_batch_size=8 max_target_length=2048 ici_fsdp_parallelism=32 ici_expert_parallelism=4 \
dcn_data_parallelism=2 remat_policy=full"
"""
SIZES = """model_params=" base_emb_dim=384 base_num_query_heads=8 base_num_kv_heads=4"
model_params+=" base_mlp_dim=192 base_num_decoder_layers=8 head_dim=128"
CMD1="python3 -m maxtext.trainers.pre_train.train ${MAXTEXT_REPO_ROOT:-$PWD}/configs/base.yml run_name=$1\\
    steps=5 max_target_length=128 per_device_batch_size=1 async_checkpointing=false"
CMD1+=$model_params
$CMD1
"""
PIPELINE = """python -m MaxText.train MaxText/configs/base.yml model_name=llama2-70b per_device_batch_size=2 \\
  max_target_length=2048 \\
 ici_pipeline_parallelism=4 ici_fsdp_parallelism=16 num_pipeline_microbatches=8 num_layers_per_pipeline_stage=20
"""
MODEL = """base_emb_dim: 4096
base_num_query_heads: 32
base_num_kv_heads: 8
base_num_decoder_layers: 32
base_mlp_dim: 14336
head_dim: 128
mlp_activations: ["silu","linear"]
vocab_size: 128_256
enable_dropout: False
logits_via_embedding: False
decoder_block: "llama2"
"""
EXPERTS = MODEL + "num_experts: 8\nnum_experts_per_tok: 2\nbase_moe_mlp_dim: 14336\n"
LATENT = """base_emb_dim: 7168
base_num_query_heads: 128
base_num_kv_heads: 128
base_mlp_dim: 18432
base_moe_mlp_dim: 2048
base_num_decoder_layers: 61
first_num_dense_layers: 3
mlp_activations: ["silu","linear"]
vocab_size: 129280
logits_via_embedding: False
num_experts: 256
num_experts_per_tok: 8
shared_experts: 1
decoder_block: "deepseek"
attention_type: "mla"
q_lora_rank: 1536
kv_lora_rank: 512
qk_nope_head_dim: 128
qk_rope_head_dim: 64
v_head_dim: 128
"""
BASE = """run_name: ""
model_name: "default"
base_emb_dim: 2048
base_num_query_heads: 16
base_num_kv_heads: 16
base_mlp_dim: 7168
base_num_decoder_layers: 16
head_dim: 128
mlp_activations: ["silu", "linear"]
vocab_size: 32_000
num_experts: 1
dtype: "bfloat16"
quantization: ""
remat_policy: 'full'
per_device_batch_size: 12.0
max_target_length: 2048
dcn_data_parallelism: -1  # recommended DCN axis to be auto-sharded
dcn_fsdp_parallelism: 1
ici_data_parallelism: 1
ici_fsdp_parallelism: -1 # recommended ICI axis to be auto-sharded
ici_tensor_parallelism: 1
steps: 150_001
"""
OF_MODEL = {"layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "kv": 8, "vocab": 128256}
MOE = {"experts": 8, "top_k": 2}


def _n(n: int) -> Mapping[str, Any]:
    return {"n_devices": n}


CASES = [
    Case("tpu", TPU, OF_7B, options=_n(256)),
    Case("GPUs are asked for", TPU, refused=r"Give --gpus N"),
    Case(
        "topology of a compilation",
        TPU.replace("reuse", "compile_topology=v5p-512 compile_topology_num_slices=2 reuse"),
        OF_7B | {"gpus": 512, "batch": 2048, "plan.sharding": "hsdp", "cluster.device": "tpu-v5p"},
        options={"device": None},
    ),
    Case("program by its argument", TPU, OF_7B, arguments=["EXECUTABLE=train_compile"], options=_n(256)),
    Case("gpu", GPU, OF_GPU),
    Case(
        "tensor",
        GPU.replace(
            "dcn_fsdp_parallelism=128 ici_fsdp_parallelism=8", "dcn_data_parallelism=4 ici_tensor_parallelism=8"
        ),
        {"tp": 8, "gpus": 32, "dp": 4, "micro": 8, "batch": 32, "seq": 8192},
        options=_n(32),
    ),
    Case("accumulation", GPU.replace("steps=10", "steps=10 gradient_accumulation_steps=4"), OF_GPU | {"batch": 4096}),
    Case("fp8", GPU.replace("steps=10", "steps=10 quantization=fp8"), OF_GPU | {"dtype": "fp8"}),
    Case(
        "the last that trains",
        SEVERAL,
        {"tp": 4, "gpus": 8, "dp": 2, "micro": 4, "batch": 8, "seq": 1024, "layers": 32, "recompute": "full"},
        options=_n(8),
    ),
    Case("decoding alone", SEVERAL.replace("MaxText.train", "MaxText.decode"), refused="no training"),
    Case(
        "xpk",
        XPK,
        stated(
            "gpus=256 ep=4 experts=8 top_k=2 micro=8 batch=2048 seq=2048 kv=8 plan.sharding=hsdp cluster.device=tpu-v5p"
        ),
        options={"device": None},
    ),
    Case(
        "sizes on the command line",
        SIZES,
        stated("layers=8 hidden=384 heads=8 kv=4 ffn=192 seq=128 micro=1 batch=4 vocab=32000 model.gated=True"),
        arguments=["x"],
        options=_n(4),
    ),
    Case(
        "override of a model",
        TPU.replace("steps=30", "steps=30 override_model_config=True base_num_decoder_layers=4"),
        OF_7B | {"layers": 4},
        options=_n(256),
    ),
    Case("pipeline", PIPELINE, {"pp": 4, "gpus": 64, "dp": 16, "micro": 1, "batch": 128, "kv": 8}),
    Case(
        "global scale",
        "python3 -m MaxText.train MaxText/configs/base.yml global_parameter_scale=16 per_device_batch_size=4 run_name=a",
        {"layers": 32, "hidden": 4096, "heads": 64, "ffn": 28672, "seq": 2048, "micro": 4},
        options=_n(8),
    ),
    Case(
        "sizes of MaxText's own",
        TPU.replace("llama2-7b", "gpt3-22b"),
        stated("layers=48 hidden=6144 heads=24 ffn=24576 model.head_dim=256 model.gated=False model.norm=layer"),
        options=_n(256),
    ),
    Case("unknown model", TPU.replace("llama2-7b", "olmo9-1b"), options=_n(8), refused="olmo9-1b is not known here"),
    Case(
        "windows",
        TPU.replace("llama2-7b", "gemma3-4b"),
        {"layers": 34, "hidden": 2560, "heads": 8, "kv": 4, "ffn": 10240},
        options=_n(8),
    ),
    Case(
        "base and model",
        BASE,
        OF_MODEL | {"seq": 2048, "micro": 12, "batch": 96, "recompute": "full"},
        "base.yml",
        {"llama.yml": MODEL},
        ["llama.yml"],
        options=_n(8),
    ),
    Case(
        "model first",
        MODEL,
        OF_MODEL | {"seq": 4096, "micro": 2, "batch": 16},
        "llama.yml",
        {"base.yml": BASE},
        ["base.yml", "max_target_length=4096", "per_device_batch_size=2"],
        options=_n(8),
    ),
    Case(
        "base alone",
        BASE,
        {"layers": 16, "hidden": 2048, "heads": 16, "ffn": 7168, "micro": 12, "batch": 96},
        "base.yml",
        options=_n(8),
    ),
    Case(
        "base with a name",
        BASE,
        {"layers": 80, "hidden": 8192, "kv": 8, "ffn": 28672, "tp": 4, "micro": 4, "batch": 64, "dp": 16},
        "base.yml",
        arguments=["model_name=llama2-70b", "per_device_batch_size=1", "ici_tensor_parallelism=4"],
        options=_n(64),
    ),
    Case(
        "experts",
        EXPERTS,
        OF_MODEL | MOE | {"ep": 8, "gpus": 16, "batch": 32},
        "m.yml",
        arguments=["per_device_batch_size=2", "ici_expert_parallelism=8", "ici_fsdp_parallelism=2"],
    ),
    Case(
        "latent attention",
        LATENT,
        stated(
            "layers=61 hidden=7168 experts=256 top_k=8 model.mla.kv_lora_rank=512 model.moe.n_dense_first=3 "
            "model.moe.n_shared=1 model.moe.ffn_hidden=2048"
        ),
        "deepseek.yml",
        arguments=["per_device_batch_size=4"],
        options=_n(256),
    ),
    Case(
        "configuration of a run",
        'base_config: "base.yml"\nper_device_batch_size: 3\nmodel_name: "llama2-7b"\nrun_name: a\n',
        {"layers": 32, "micro": 3, "batch": 24, "seq": 2048},
        "run.yml",
        {"base.yml": BASE},
        options=_n(8),
    ),
    Case(
        "tensor parallelism in the file",
        BASE.replace("ici_tensor_parallelism: 1", "ici_tensor_parallelism: 4"),
        {"layers": 16, "tp": 4, "dp": 4, "gpus": 16, "micro": 48, "batch": 192, "zero": 3},
        "base.yml",
        options=_n(16),
    ),
    Case(
        "fp8 and no recomputation",
        BASE.replace('quantization: ""', 'quantization: "fp8"').replace("'full'", "none"),
        {"layers": 16, "dtype": "fp8", "recompute": "none", "seq": 2048},
        "base.yml",
        options=_n(8),
    ),
    Case(
        "accumulation in the file",
        BASE + "gradient_accumulation_steps: 4\n",
        {"micro": 12, "batch": 384, "gpus": 8},
        "base.yml",
        options=_n(8),
    ),
    Case(
        "context parallelism in the file",
        BASE.replace("12.0", "1") + "ici_context_parallelism: 2\n",
        {"cp": 2, "dp": 4, "micro": 2, "batch": 8},
        "base.yml",
        options=_n(8),
    ),
    Case(
        "stated axes give the GPUs",
        BASE.replace("dcn_data_parallelism: -1", "dcn_data_parallelism: 2").replace(
            "ici_fsdp_parallelism: -1", "ici_fsdp_parallelism: 16"
        ),
        {"gpus": 32, "dp": 32, "micro": 12, "batch": 384},
        "base.yml",
    ),
]

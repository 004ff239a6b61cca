"""verl: overrides of Hydra in scripts, and YAML."""

from .case import Case, but

MEGATRON = """set -x
NODES=4
max_prompt_length=1024
max_response_length=$((1024 * 3))
OFFLOAD=${OFFLOAD:-True}
python3 -m verl.trainer.main_ppo --config-path=config --config-name='ppo_megatron_trainer.yaml' \\
    algorithm.adv_estimator=grpo \\
    data.train_batch_size=256 \\
    data.max_prompt_length=$max_prompt_length \\
    data.max_response_length=$max_response_length \\
    actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B \\
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \\
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 \\
    actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 \\
    actor_rollout_ref.actor.megatron.expert_model_parallel_size=4 \\
    +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full \\
    +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_method=uniform \\
    +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_num_layers=1 \\
    actor_rollout_ref.actor.megatron.optimizer_offload=${OFFLOAD} \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=8 \\
    actor_rollout_ref.rollout.n=8 \\
    trainer.n_gpus_per_node=8 \\
    trainer.nnodes=$NODES $@
"""
BASE = Case(
    "megatron",
    MEGATRON,
    {"layers": 48, "hidden": 2048, "heads": 32, "kv": 4, "experts": 128, "top_k": 8, "seq": 4096, "micro": 2, "batch": 512,
     "tp": 2, "pp": 2, "ep": 4, "dp": 8, "gpus": 32, "recompute": "full", "zero": 1, "dtype": "bf16"},
)  # fmt: skip
FSDP = """set -x
MODEL_PATH=${MODEL_PATH:-Qwen/Qwen2.5-7B-Instruct}
ARGS=(
    data.train_batch_size=1024
    data.max_prompt_length=1024
    data.max_response_length=2048
)
PYTHONUNBUFFERED=1 python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=gae "${ARGS[@]}" \\
    actor_rollout_ref.model.path="$MODEL_PATH" \\
    actor_rollout_ref.model.use_remove_padding=True \\
    actor_rollout_ref.model.enable_gradient_checkpointing=True \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \\
    actor_rollout_ref.actor.fsdp_config.param_offload=False \\
    actor_rollout_ref.actor.fsdp_config.optimizer_offload=False \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.4 \\
    actor_rollout_ref.rollout.n=1 \\
    critic.model.path=deepseek-ai/deepseek-llm-7b-chat \\
    critic.ppo_micro_batch_size_per_gpu=32 \\
    trainer.n_gpus_per_node=8 \\
    trainer.nnodes=1 \\
    trainer.total_epochs=15 "$@"
"""
DENSE = Case(
    "fsdp",
    FSDP,
    {"layers": 28, "hidden": 3584, "ffn": 18944, "heads": 28, "kv": 4, "seq": 3072, "micro": 8, "batch": 256, "tp": 1, "pp": 1, "cp": 1,
     "gpus": 8, "dtype": "bf16", "recompute": "full", "zero": 3},
)  # fmt: skip
YAML = """actor_rollout_ref:
  hybrid_engine: true
  model:
    path: meta-llama/Llama-3.1-8B
    enable_gradient_checkpointing: false
  actor:
    strategy: fsdp
    ppo_mini_batch_size: 128
    ppo_micro_batch_size_per_gpu: 4
    ulysses_sequence_parallel_size: 2
  rollout:
    n: 4
data:
  max_prompt_length: 512
  max_response_length: ${oc.select:data.max_prompt_length,1024}
  train_batch_size: 256
trainer:
  nnodes: 2
  n_gpus_per_node: 8
"""
FILE = Case(
    "yaml", YAML,
    {"layers": 32, "hidden": 4096, "heads": 32, "kv": 8, "seq": 1024, "micro": 4, "batch": 512, "cp": 2, "dp": 8, "gpus": 16, "zero": 3,
     "recompute": "none"},
    file="ppo.yaml",
)  # fmt: skip
SFT = """set -x
nproc_per_node=$1
shift 1
torchrun --standalone --nnodes=1 --nproc_per_node=$nproc_per_node \\
    -m verl.trainer.fsdp_sft_trainer \\
    data.train_batch_size=128 \\
    data.max_length=2048 \\
    data.micro_batch_size_per_gpu=4 \\
    model.partial_pretrain=Qwen/Qwen2.5-1.5B \\
    ulysses_sequence_parallel_size=2 \\
    trainer.total_epochs=4 $@
"""
MICRO = "    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \\\n"
TOKENS = "    actor_rollout_ref.actor.use_dynamic_bsz=True \\\n    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=6144 \\\n"
CASES = [
    BASE,
    DENSE,
    FILE,
    but(BASE, "given offload", variables={"OFFLOAD": "False"}),
    but(BASE, "ends", ("granularity=full", "granularity=selective"), ("recompute_num_layers=1", "num_layers_in_first_pipeline_stage=22"),
        expected={"recompute": "selective", "split": "[22, 26]"}),
    but(BASE, "engine in a word", ("--config-path=config --config-name='ppo_megatron_trainer.yaml'", "model_engine=megatron")),
    but(BASE, "context and chunks", ("    actor_rollout_ref.rollout.n=8", "    actor_rollout_ref.actor.megatron.context_parallel_size=2 \\\n"
        "    actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size=2 \\\n    actor_rollout_ref.rollout.n=8"),
        expected={"cp": 2, "vpp": 2, "dp": 4}),
    but(BASE, "open nodes", ("NODES=4\n", ""), refused=r"\$NODES \(line \d+"),
    but(BASE, "given nodes", ("NODES=4\n", ""), variables={"NODES": "8"}, expected={"gpus": 64, "dp": 16}),
    but(DENSE, "filled by tokens", (MICRO, TOKENS), expected={"micro": 2}),
    but(DENSE, "filled by fewer tokens", (MICRO, TOKENS.replace("6144", "4096")), expected={"micro": 1}),
    but(DENSE, "ulysses", ("actor_rollout_ref.rollout.n=1", "actor_rollout_ref.actor.ulysses_sequence_parallel_size=4"), expected={"cp": 4, "dp": 2}),
    but(DENSE, "responses", ("rollout.n=1", "rollout.n=8"), expected={"batch": 2048}),
    but(DENSE, "model by env", variables={"MODEL_PATH": "/models/Qwen3-8B"}, expected={"layers": 36, "hidden": 4096, "ffn": 12288, "heads": 32, "kv": 8}),
    but(DENSE, "unknown model", variables={"MODEL_PATH": "/models/secret-9b"}, refused=r"secret-9b.*--model config.json"),
    but(DENSE, "usual nodes", ("    trainer.nnodes=1 \\\n", ""), ("    trainer.n_gpus_per_node=8 \\\n", "")),
    but(DENSE, "arguments behind", arguments=("trainer.nnodes=2",), expected={"gpus": 16}),
    but(DENSE, "no recomputation", ("checkpointing=True", "checkpointing=False"), expected={"recompute": "none"}),
    but(FILE, "words behind the file", arguments=("trainer.nnodes=4", "actor_rollout_ref.rollout.n=8"), expected={"gpus": 32, "batch": 1024, "dp": 16}),
    Case("supervised", SFT, {"layers": 28, "hidden": 1536, "seq": 2048, "micro": 4, "batch": 128, "cp": 2, "dp": 4, "gpus": 8, "zero": 3},
         arguments=("8",)),
    Case("generation is no training", "python3 -m verl.trainer.main_generation data.path=x actor_rollout_ref.model.path=y\n",
         refused="no command line|no training"),
]  # fmt: skip

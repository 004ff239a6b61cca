"""verl: overrides of Hydra in scripts, and YAML."""

from .case import Case

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
CASES = [
    Case(
        "megatron",
        MEGATRON,
        {"layers": 48, "hidden": 2048, "heads": 32, "kv": 4, "experts": 128, "top_k": 8, "seq": 4096, "micro": 2, "batch": 512,
         "tp": 2, "pp": 2, "ep": 4, "dp": 8, "gpus": 32, "recompute": "full", "zero": 1, "dtype": "bf16"},
    ),
]  # fmt: skip

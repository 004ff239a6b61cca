"""Heads of logs as trainers write them, of jobs that nobody ran: for tests."""

# ruff: noqa: E501  (lines as trainers write them)

from __future__ import annotations

from collections.abc import Mapping, Sequence


def stated(text: str) -> dict[str, str]:
    """Values by name, of a text such as "layers=48 tp=8"."""
    return dict(word.split("=", 1) for word in text.split())


def megatron_block(arguments: Mapping[str, object], prefix: str = "") -> list[str]:
    """A block of arguments of Megatron-LM."""
    rows = [f"{prefix}  {name} {'.' * max(48 - len(name), 3)} {value}" for name, value in arguments.items()]
    first, last = (
        "------------------------ arguments ------------------------",
        "-------------------- end of arguments ---------------------",
    )
    return [prefix + first, *rows, prefix + last]


def megatron_steps(step_s: Sequence[float], prefix: str = "", every: int = 1) -> list[str]:
    """Lines of steps of Megatron-LM."""
    return [
        f"{prefix} iteration {every * (n + 1):8d}/    1000 | consumed samples: {64 * (n + 1):12d} | elapsed time per iteration "
        f"(ms): {1e3 * seconds:.1f} | learning rate: 1.000E-04 | global batch size:    64 | lm loss: 2.000000E+00 |"
        for n, seconds in enumerate(step_s)
    ]


LLAMA: dict[str, object] = {
    **stated(
        "add_bias_linear=False attention_backend=AttnBackend.auto attention_dropout=0.0 bf16=True "
        "context_parallel_size=1 expert_model_parallel_size=1 ffn_hidden_size=14336 fp16=False fp8=None "
        "global_batch_size=64 group_query_attention=True hidden_dropout=0.0 hidden_size=4096 kv_channels=128 "
        "make_vocab_size_divisible_by=128 max_position_embeddings=8192 micro_batch_size=1 normalization=RMSNorm "
        "num_attention_heads=32 num_experts=None num_layers=32 num_query_groups=8 optimizer=adam "
        "overlap_grad_reduce=True padded_vocab_size=128256 pipeline_model_parallel_size=1 "
        "position_embedding_type=rope recompute_granularity=None seq_length=8192 sequence_parallel=True "
        "softmax_type=vanilla swiglu=True tensor_model_parallel_size=2 transformer_impl=transformer_engine "
        "untie_embeddings_and_output_weights=True use_distributed_optimizer=True world_size=16"
    )
}  # Megatron-Core

GPT_2021: dict[str, object] = {
    **stated(
        "bf16=False checkpoint_activations=True DDP_impl=local encoder_seq_length=1024 ffn_hidden_size=8192 "
        "fp16=True global_batch_size=64 hidden_dropout=0.1 hidden_size=2048 kv_channels=128 "
        "masked_softmax_fusion=True max_position_embeddings=1024 micro_batch_size=4 num_attention_heads=16 "
        "num_layers=24 params_dtype=torch.float16 pipeline_model_parallel_size=1 seq_length=1024 "
        "tensor_model_parallel_size=1 world_size=8"
    )
}  # before sequence parallelism: names that came later are absent


def neox_block(arguments: Mapping[str, object]) -> str:
    """A block of arguments of GPT-NeoX, which says of every value whether it is its default."""
    rows = [f"  {name} {'.' * (32 - len(name))} {value}" for name, value in arguments.items()]
    rows = [f"{row}{'.' * (64 - len(row))}updated" for row in rows]
    return "\n".join(
        [
            "-------------------- arguments --------------------",
            *rows,
            "---------------- end of arguments ----------------\n",
        ]
    )


NEOX = {
    "attention_config": "['flash', 'flash']",
    "checkpoint_activations": True,
    "global_num_gpus": 32,
    "hidden_size": 2048,
    "max_position_embeddings": 2048,
    "model_parallel_size": 2,
    "no_weight_tying": True,
    "num_attention_heads": 16,
    "num_layers": 24,
    "optimizer_type": "Adam",
    "padded_vocab_size": 50432,
    "pipe_parallel_size": 1,
    "pos_emb": "rotary",
    "precision": "fp16",
    "seq_length": 2048,
    "train_batch_size": 256,
    "train_micro_batch_size_per_gpu": 8,
    "zero_stage": 1,
}

TITAN = """\
+ torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config llama3_8b --training.steps=10
[rank0]:[titan] 2031-05-06 07:08:09,000 - root - INFO - Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=1
[rank0]:[titan] 2031-05-06 07:08:10,000 - root - INFO - Building llama3 8B
[rank0]:[titan] 2031-05-06 07:08:10,000 - root - INFO - CUDA capacity: NVIDIA H100 80GB HBM3 with 79.11GiB memory
[rank0]:[titan] 2031-05-06 07:08:11,000 - root - INFO - \x1b[34mModel llama3 8B \x1b[31msize: 8,030,261,248 total parameters\x1b[39m
[rank0]:[titan] 2031-05-06 07:08:11,000 - root - INFO - Applied selective activation checkpointing to the model
[rank0]:[titan] 2031-05-06 07:08:12,000 - root - INFO - Compiling each TransformerBlock with torch.compile
[rank0]:[titan] 2031-05-06 07:08:13,000 - root - INFO - Trainer is initialized with local batch size 2, global batch size 8, \
gradient accumulation steps 1, sequence length 8192, total steps 10 (warmup 2)
"""

TITAN_2024 = """\
[rank0]:2031-05-06 07:08:09,000 - root - INFO - Starting job: Llama 3 8B training
[rank0]:2031-05-06 07:08:09,000 - root - INFO - Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]
[rank0]:2031-05-06 07:08:10,000 - root - INFO - Building llama3 8B with ModelArgs(dim=4096, n_layers=32, n_heads=32, n_kv_heads=8, \
vocab_size=128256, multiple_of=1024, ffn_dim_multiplier=1.3, norm_eps=1e-05, rope_theta=500000, max_seq_len=8192)
[rank0]:2031-05-06 07:08:10,000 - root - INFO - GPU capacity: NVIDIA H100 80GB HBM3 (0) with 79.11GiB memory
[rank0]:2031-05-06 07:08:11,000 - root - INFO - Applied full activation checkpointing to the model
[rank0]:2031-05-06 07:08:13,000 - root - INFO - Trainer initialized. Training starts at step 1, with local batch size 2, \
global batch size 8, sequence length 8192, total steps 10 (warmup 2)
"""


def titan_steps(step_s: float, n: int = 10) -> str:
    """Steps of torchtitan, by the clock."""
    rows = []
    for one in range(1, n + 1):
        seconds = 20.0 + one * step_s
        clock = f"07:{int(9 + seconds // 60):02d}:{seconds % 60:06.3f}".replace(".", ",")
        rows.append(
            f"[rank0]:[titan] 2031-05-06 {clock} - root - INFO - \x1b[31mstep: {one:2d}  \x1b[32mloss:  2.5  "
            f"\x1b[33mmemory: 60.00GiB(75.84%)  \x1b[34mtps: {16384 / step_s / 2:,.0f}  \x1b[36mtflops: 300.00  \x1b[35mmfu: 30.00%\x1b[39m"
        )
    return "\n".join(rows) + "\n"


MAXTEXT = (
    "\n".join(
        f"I0506 07:08:09.000000 1 pyconfig.py:99] Config param {name}: {value}"
        for name, value in {
            "attention": "cudnn_flash_te",
            "base_emb_dim": 4096,
            "base_mlp_dim": 14336,
            "base_num_decoder_layers": 32,
            "base_num_kv_heads": 8,
            "base_num_query_heads": 32,
            "dcn_data_parallelism": -1,
            "dtype": "bfloat16",
            "head_dim": 128,
            "ici_fsdp_parallelism": 8,
            "ici_tensor_parallelism": 1,
            "logits_via_embedding": False,
            "max_target_length": 8192,
            "mlp_activations": "['silu', 'linear']",
            "model_name": "llama3-8b",
            "num_experts": 1,
            "per_device_batch_size": 2.0,
            "quantization": "",
            "remat_policy": "full",
            "vocab_size": 128256,
        }.items()
    )
    + "\nNum_devices: 16, shape (2, 1, 8, 1, 1)\nnumber parameters: 8.030 billion\n"
)


def maxtext_steps(step_s: float, n: int = 12) -> str:
    """Steps of MaxText."""
    return "".join(
        f"completed step: {one}, seconds: {step_s:.3f}, TFLOP/s/device: 250.1, Tokens/s/device: 5000.0, total_weights: 262144, loss: 2.5\n"
        for one in range(n)
    )


QWEN = """\
[INFO|configuration_utils.py:768] 2031-05-06 07:08:09,000 >> Model config Qwen2Config {
  "architectures": [
    "Qwen2ForCausalLM"
  ],
  "hidden_act": "silu",
  "hidden_size": 3584,
  "intermediate_size": 18944,
  "max_position_embeddings": 32768,
  "model_type": "qwen2",
  "num_attention_heads": 28,
  "num_hidden_layers": 28,
  "num_key_value_heads": 4,
  "tie_word_embeddings": false,
  "torch_dtype": "bfloat16",
  "use_sliding_window": false,
  "vocab_size": 152064
}
"""
TRAINING = """\
[INFO|trainer.py:2414] 2031-05-06 07:09:09,000 >> ***** Running training *****
[INFO|trainer.py:2415] 2031-05-06 07:09:09,000 >>   Num examples = 10,000
[INFO|trainer.py:2418] 2031-05-06 07:09:09,000 >>   Instantaneous batch size per device = 2
[INFO|trainer.py:2421] 2031-05-06 07:09:09,000 >>   Total train batch size (w. parallel, distributed & accumulation) = 64
[INFO|trainer.py:2422] 2031-05-06 07:09:09,000 >>   Gradient Accumulation steps = 4
"""
DEEPSPEED = """\
[2031-05-06 07:08:20,000] [INFO] [config.py:1007:print]   zero_optimization_stage ...... 3
[2031-05-06 07:08:20,000] [INFO] [config.py:993:print_user_config]   json = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": true
    },
    "bf16": {
        "enabled": true
    }
}
"""
HUGGING_FACE = (
    "INFO:__main__:Training/evaluation parameters TrainingArguments(bf16=True, deepspeed=ds_config_zero3.json, fp16=False, "
    "gradient_accumulation_steps=4, gradient_checkpointing=True, optim=OptimizerNames.ADAMW_TORCH_FUSED, "
    "per_device_train_batch_size=2)\n" + QWEN + DEEPSPEED + TRAINING
)
LLAMA_FACTORY = (
    "[INFO|2031-05-06 07:08:01] llamafactory.hparams.parser:401 >> Process rank: 0, world size: 8, device: cuda:0, "
    "distributed training: True, compute dtype: torch.bfloat16\n"
    + QWEN
    + "[INFO|2031-05-06 07:08:01] llamafactory.model.model_utils.checkpointing:143 >> Gradient checkpointing enabled.\n"
    + DEEPSPEED
    + TRAINING
)
SWIFT = (
    "run sh: `python -m torch.distributed.run --nproc_per_node 8 swift/cli/sft.py --model Qwen/Qwen2.5-7B-Instruct --train_type full "
    "--torch_dtype bfloat16 --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --max_length 4096 --deepspeed zero3 "
    "--gradient_checkpointing true`\n[INFO:swift] rank: 0, local_rank: 0, world_size: 8, local_world_size: 8\n"
    "[INFO:swift] Setting torch_dtype: torch.bfloat16\n"
)


NEMO = """\
[NeMo W 2031-05-06 07:08:08 nemo_logging:349] /usr/lib/hydra/main.py:90: UserWarning: config
[NeMo I 2031-05-06 07:08:09 megatron_gpt_pretraining:34]

    ************** Experiment configuration ***********
[NeMo I 2031-05-06 07:08:09 megatron_gpt_pretraining:35]
    name: megatron_gpt
    trainer:
      devices: 8
      num_nodes: 2
      precision: bf16
      max_steps: 100
    exp_manager:
      create_checkpoint_callback: false
    model:
      micro_batch_size: 2
      global_batch_size: 128
      tensor_model_parallel_size: 4
      pipeline_model_parallel_size: 1
      encoder_seq_length: 4096
      max_position_embeddings: 4096
      num_layers: 32
      hidden_size: 4096
      ffn_hidden_size: 14336
      num_attention_heads: 32
      num_query_groups: 8
      activation: fast-swiglu
      normalization: rmsnorm
      bias: false
      position_embedding_type: rope
      share_embeddings_and_output_weights: false
      sequence_parallel: true
      activations_checkpoint_granularity: full
      activations_checkpoint_method: uniform
      activations_checkpoint_num_layers: 1
      tokenizer:
        library: huggingface
        type: meta-llama/Llama-2-7b-hf
      vocab_size: 32000
      data:
        data_prefix:
        - 1.0
        - x
        seq_length: 4096
      optim:
        name: distributed_fused_adam
        lr: 0.0001
[NeMo I 2031-05-06 07:08:10 exp_manager:400] Experiments will be logged
"""
LITGPT = """\
{'checkpoint_dir': PosixPath('checkpoints/mistralai/Mistral-7B-v0.1'),
 'data': Alpaca2k(mask_prompt=False,
                  val_split_fraction=0.05,
                  num_workers=4),
 'devices': 4,
 'eval': EvalArgs(interval=100, max_new_tokens=100, max_iters=100),
 'lora_head': False,
 'lora_key': False,
 'lora_mlp': False,
 'lora_projection': True,
 'lora_query': True,
 'lora_r': 16,
 'lora_value': True,
 'num_nodes': 1,
 'precision': 'bf16-true',
 'quantize': None,
 'train': TrainArgs(save_interval=800,
                    global_batch_size=32,
                    micro_batch_size=2,
                    max_seq_length=1024,
                    max_norm=None)}
Seed set to 1337
Number of trainable parameters: 12,226,560
"""
AXOLOTL = (
    "[2031-05-06 07:08:02,000] [INFO] [axolotl.cli.config.load_cfg:248] [PID:64] [RANK:0] config:\n"
    + """\
{
  "adapter": "lora",
  "axolotl_config_path": "cfg.yml",
  "base_model": "NousResearch/Meta-Llama-3-8B",
  "bf16": true,
  "datasets": [
    {
      "path": "tatsu-lab/alpaca",
      "type": "alpaca"
    }
  ],
  "flash_attention": true,
  "fsdp": [
    "full_shard",
    "auto_wrap"
  ],
  "fsdp_config": {
    "fsdp_offload_params": false,
    "fsdp_sharding_strategy": "FULL_SHARD"
  },
  "gradient_accumulation_steps": 4,
  "gradient_checkpointing": true,
  "lora_r": 32,
  "lora_target_linear": true,
  "micro_batch_size": 2,
  "sample_packing": true,
  "sequence_len": 4096,
  "world_size": 8
}
"""
)


def bars(step_s: float, n: int = 12, title: str = "") -> str:
    """A bar of tqdm, over itself."""
    rows = []
    for one in range(1, n + 1):
        clock = int(one * step_s)
        rows.append(
            f"\r{title}{one / n:4.0%}|####      | {one}/{n} [{clock // 60:02d}:{clock % 60:02d}<10:00, {step_s:.2f}s/it]"
        )
    return "".join(rows) + "\n"


NANOCHAT = """\
Autodetected device type: cuda
Vocab size: 65,536
num_layers: 20
model_dim: 1280
num_heads: 10
num_kv_heads: 10
Tokens / micro-batch / rank: 32 x 2048 = 65,536
Tokens / micro-batch: 524,288
Total batch size 524,288 => gradient accumulation steps: 1
Number of parameters: 560,988,160
Estimated FLOPs per token: 3.491758e+09
"""


def nanochat_steps(step_s: float, n: int = 12) -> str:
    """Steps of nanochat."""
    return "".join(
        f"step {one:05d}/21400 ({one / 214:.2f}%) | loss: 8.1 | lrm: 1.00 | dt: {1e3 * step_s:.2f}ms | tok/sec: 1,092,000 | mfu: 48.20 | "
        "total time: 0.10m\n"
        for one in range(n)
    )


MODDED = """\
import os
    train_seq_len = 48*1024
model: nn.Module = GPT(vocab_size=50257, num_layers=12, num_heads=6, model_dim=768, max_seq_len=max(args.train_seq_len, 1))
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |                    0 |
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:3B:00.0 Off |                    0 |
"""


def modded_steps(step_s: float, n: int = 30) -> str:
    """Steps of modded-nanogpt: the time since the start."""
    rows = (
        f"step:{one}/1770 train_time:{1e3 * one * step_s:.0f}ms step_avg:{1e3 * step_s:.2f}ms\n"
        for one in range(1, n + 1)
    )
    return "".join(rows)


RAY = "\x1b[36m(main_task pid=64)\x1b[0m "
VERL = (
    "\n".join(
        RAY + line
        for line in """\
{'actor_rollout_ref': {'actor': {'clip_ratio': 0.2,
                                 'fsdp_config': {'optimizer_offload': False,
                                                 'param_offload': False},
                                 'ppo_micro_batch_size_per_gpu': 4,
                                 'ppo_mini_batch_size': 128,
                                 'strategy': 'fsdp',
                                 'ulysses_sequence_parallel_size': 2},
                       'model': {'enable_gradient_checkpointing': True,
                                 'path': 'Qwen/Qwen2.5-7B-Instruct'},
                       'rollout': {'dtype': 'bfloat16',
                                   'n': 4}},
 'data': {'max_prompt_length': 1024,
          'max_response_length': 2048},
 'trainer': {'n_gpus_per_node': 8,
             'nnodes': 2}}""".splitlines()
    )
    + "\n"
)


def verl_steps(step_s: float, n: int = 12, number: str = "{}") -> str:
    """Steps of verl, with numbers as Python or as NumPy prints them."""
    return "".join(
        f"{RAY}step:{one} - timing_s/gen:10.0 - timing_s/update_actor:{number.format(20.0)} - "
        f"timing_s/step:{number.format(step_s)}\n"
        for one in range(n)
    )

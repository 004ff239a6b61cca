"""Heads of logs as trainers write them, of jobs that nobody ran: for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


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


LLAMA = {
    "add_bias_linear": False,
    "attention_backend": "AttnBackend.auto",
    "attention_dropout": 0.0,
    "bf16": True,
    "context_parallel_size": 1,
    "expert_model_parallel_size": 1,
    "ffn_hidden_size": 14336,
    "fp16": False,
    "fp8": None,
    "global_batch_size": 64,
    "group_query_attention": True,
    "hidden_dropout": 0.0,
    "hidden_size": 4096,
    "kv_channels": 128,
    "make_vocab_size_divisible_by": 128,
    "max_position_embeddings": 8192,
    "micro_batch_size": 1,
    "normalization": "RMSNorm",
    "num_attention_heads": 32,
    "num_experts": None,
    "num_layers": 32,
    "num_query_groups": 8,
    "optimizer": "adam",
    "overlap_grad_reduce": True,
    "padded_vocab_size": 128256,
    "pipeline_model_parallel_size": 1,
    "position_embedding_type": "rope",
    "recompute_granularity": None,
    "seq_length": 8192,
    "sequence_parallel": True,
    "softmax_type": "vanilla",
    "swiglu": True,
    "tensor_model_parallel_size": 2,
    "transformer_impl": "transformer_engine",
    "untie_embeddings_and_output_weights": True,
    "use_distributed_optimizer": True,
    "world_size": 16,
}  # Megatron-Core

GPT_2021 = {
    "bf16": False,
    "checkpoint_activations": True,
    "DDP_impl": "local",
    "encoder_seq_length": 1024,
    "ffn_hidden_size": 8192,
    "fp16": True,
    "global_batch_size": 64,
    "hidden_dropout": 0.1,
    "hidden_size": 2048,
    "kv_channels": 128,
    "masked_softmax_fusion": True,
    "max_position_embeddings": 1024,
    "micro_batch_size": 4,
    "num_attention_heads": 16,
    "num_layers": 24,
    "params_dtype": "torch.float16",
    "pipeline_model_parallel_size": 1,
    "seq_length": 1024,
    "tensor_model_parallel_size": 1,
    "world_size": 8,
}  # before sequence parallelism: names that came later are absent

"""Did-you-mean for names in job files, including the names other tools use."""

from __future__ import annotations

from collections.abc import Iterable

from ...hints import nearest

# Names from Megatron-LM, DeepSpeed and Hugging Face configurations -> ours.
ELSEWHERE = {
    "tensor_parallel": "tp",
    "tensor_model_parallel_size": "tp",
    "tensor_parallel_size": "tp",
    "pipeline_parallel": "pp",
    "pipeline_model_parallel_size": "pp",
    "pipeline_parallel_size": "pp",
    "data_parallel": "dp",
    "data_parallel_size": "dp",
    "context_parallel": "cp",
    "context_parallel_size": "cp",
    "expert_parallel": "ep",
    "expert_model_parallel_size": "ep",
    "mbs": "micro_batch",
    "gbs": "global_batch",
    "sequence_length": "seq_len",
    "activation_checkpointing": "recompute",
    "zero": "zero_stage",
    "vpp": "virtual_stages",
    "interleave": "virtual_stages",
    "precision": "dtype",
    "num_hidden_layers": "n_layers",
    "num_layers": "n_layers",
    "hidden_size": "hidden",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "intermediate_size": "ffn_hidden",
    "ffn_hidden_size": "ffn_hidden",
    "vocab_size": "vocab",
    "gpus": "n_devices",
    "n_gpus": "n_devices",
    "world_size": "n_devices",
}


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Text to append to a refused name: ", did you mean tp?", or nothing if no known name is near."""
    names = list(known)
    lowered = str(name).lower()
    if ELSEWHERE.get(lowered) in names:
        return f", did you mean {ELSEWHERE[lowered]}?"
    near = nearest(lowered, names)
    return f", did you mean {near}?" if near else ""

"""Hints for misspelt names, including the names that other tools use."""

from __future__ import annotations

from collections.abc import Iterable

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


def did_you_mean(name: object, known: Iterable[str], otherwise: str | None = None) -> str:
    """Text to append to "unknown ...": the nearest known name; where none is near `otherwise`, by default all of them."""
    names = list(known)
    close = nearest(name, names)
    if close:
        return f", did you mean {close}?"
    return f"; known are {', '.join(names)}" if otherwise is None else otherwise


def nearest(name: object, known: Iterable[str]) -> str | None:
    """The known name that is meant by `name` elsewhere, or most like it, in its own case or in small letters, if one is near."""
    from difflib import get_close_matches  # only where something is wrong

    text, names = str(name), list(known)
    lowered = text.lower()
    if ELSEWHERE.get(lowered) in names:
        return ELSEWHERE[lowered]
    return next(
        (close[0] for word in (text, lowered) if (close := get_close_matches(word, names, n=1, cutoff=0.6))), None
    )

"""Counts and FLOPs of cross attention, and of the ends of an encoder-decoder.

Source: `T5ForConditionalGeneration` of Hugging Face transformers, whose counts these are.
"""

from __future__ import annotations

from ...plan.plan import ParallelPlan
from ...plan.recomputation import recomputed_modules, share_of_layers
from ..transformer.params import (
    attention_out_params,
    attention_qkv_params,
    embedding_params,
    head_params,
    norm_params,
)
from ..transformer.sizes import TransformerSizes


def cross_params(sizes: TransformerSizes) -> int:
    """Projections and norm of one layer's attention to the encoder."""
    return attention_qkv_params(sizes) + attention_out_params(sizes) + norm_params(sizes)


def end_params(sizes: TransformerSizes) -> int:
    """Embedding of both stacks, their final norms, head."""
    return embedding_params(sizes) + 2 * norm_params(sizes) + head_params(sizes)


def cross_flops(sizes: TransformerSizes, own: ParallelPlan, memory: ParallelPlan, *, recomputed: bool) -> float:
    """FLOPs of one sample in one layer's attention to the encoder: forward and backward, and what is computed again.

    Args:
        sizes: of the decoder.
        own: plan with the length of the decoder's sequence.
        memory: plan with the length of the encoder's.
    """
    q_and_out = 2.0 * own.seq_len * sizes.hidden * (sizes.q_dim + sizes.attention_out_dim)
    key_value = 2.0 * memory.seq_len * sizes.hidden * 2 * sizes.kv_dim
    scores = 4.0 * own.seq_len * memory.seq_len * sizes.q_dim
    forward = q_and_out + key_value + scores
    if not recomputed:
        return 3.0 * forward
    if own.recompute in ("full", "selective_layer"):
        return (3.0 + share_of_layers(own, sizes.n_layers)) * forward
    is_selective = own.recompute == "selective" and "core_attn" in recomputed_modules(own)
    return 3.0 * forward + (scores if is_selective else 0.0)

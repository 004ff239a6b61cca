"""GLM-4.5 and 4.6: leading dense layers, shared experts, biases on queries, keys and values, partial rotary embedding.

Source: arXiv 2508.06471 table 1; Hugging Face transformers, models/glm4_moe.
"""

from __future__ import annotations

from typing import Any

from ...transformer.spec import MoESpec
from ..architecture import Architecture
from ..fields import Fields
from .llama import llama_sizes


def _glm4_moe(f: Fields) -> dict[str, Any]:
    moe = MoESpec(
        n_experts=f.count("n_routed_experts"),
        top_k=f.count("num_experts_per_tok"),
        ffn_hidden=f.count("moe_intermediate_size"),
        n_shared=f.count("n_shared_experts", default=0),
        n_dense_first=f.count("first_k_dense_replace", default=0),
        router_bias=True,
    )
    own = {"moe": moe, "n_mtp": f.count("num_nextn_predict_layers", default=0)}
    norm = {"qk_norm": f.flag("use_qk_norm", default=False)}
    return llama_sizes(f) | own | norm | {"qkv_bias": f.flag("attention_bias", default=False)}


ARCHITECTURES = (Architecture("glm4_moe", _glm4_moe),)

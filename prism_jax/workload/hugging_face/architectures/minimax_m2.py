"""MiniMax-M2: full attention and experts in every layer, one norm over all queries and one over all keys.

Source: Hugging Face MiniMaxAI/MiniMax-M2, modeling_minimax_m2.py.
"""

from __future__ import annotations

from typing import Any

from ...transformer.spec import MoESpec
from ..architecture import Architecture
from ..fields import Fields
from .llama import llama_sizes


def _minimax_m2(f: Fields) -> dict[str, Any]:
    if any(kind != 1 for kind in f.items("attn_type_list")):
        f.fail("attn_type_list", f.items("attn_type_list"), "lightning attention (0) is not modelled, only 1 is")
    f.require("shared_intermediate_size", 0, default=0)
    norm_type = f.get("qk_norm_type", default="per_layer")
    moe = MoESpec(
        n_experts=f.count("num_local_experts"),
        top_k=f.count("num_experts_per_tok"),
        ffn_hidden=f.count("intermediate_size"),
        router_bias=f.flag("use_routing_bias", default=True),
    )
    norm = {
        "qk_norm": f.flag("use_qk_norm", default=True),
        "qk_norm_weight": "all" if norm_type == "per_layer" else "head",
    }
    return llama_sizes(f) | norm | {"moe": moe}


ARCHITECTURES = (Architecture("minimax_m2", _minimax_m2),)

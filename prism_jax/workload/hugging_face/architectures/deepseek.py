"""DeepSeek-V2 and V3 (latent attention, leading dense layers, shared experts), and Kimi K2, which is V3 with other counts."""

from __future__ import annotations

from typing import Any

from ...transformer.spec import MLASpec, MoESpec
from ..architecture import Architecture
from ..fields import Fields
from .llama import llama_sizes


def _deepseek(f: Fields) -> dict[str, Any]:
    f.require("moe_layer_freq", 1, default=1)
    f.require("attention_bias", False, default=False)
    sizes = llama_sizes(f)
    mla = MLASpec(
        q_lora_rank=f.count("q_lora_rank", default=0),
        kv_lora_rank=f.count("kv_lora_rank"),
        qk_nope_head_dim=f.count("qk_nope_head_dim"),
        qk_rope_head_dim=f.count("qk_rope_head_dim"),
        v_head_dim=f.count("v_head_dim"),
    )
    is_v3 = f.kind != "deepseek_v2"
    n_experts = f.count("n_routed_experts", default=0)
    moe = None
    if n_experts:
        moe = MoESpec(
            n_experts=n_experts,
            top_k=f.count("num_experts_per_tok"),
            ffn_hidden=f.count("moe_intermediate_size"),
            n_shared=f.count("n_shared_experts", default=0),
            n_dense_first=f.count("first_k_dense_replace", default=0),
            router_bias=is_v3 and f.get("topk_method", default="noaux_tc") == "noaux_tc",
        )
    n_mtp = f.count("num_nextn_predict_layers", default=0) if is_v3 else 0
    # MLA expands keys and values to every head, and the rope part makes head_dim meaningless.
    return sizes | {"n_kv_heads": 0, "head_dim": 0, "mla": mla, "moe": moe, "n_mtp": n_mtp}


ARCHITECTURES = tuple(Architecture(name, _deepseek) for name in ("deepseek_v2", "deepseek_v3", "kimi_k2"))

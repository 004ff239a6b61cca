"""gpt-oss: experts in every layer, sliding windows in every second, attention sinks, biases everywhere.

Source: arXiv 2508.10925 section 2 and table 1.
"""

from __future__ import annotations

from typing import Any

from ...transformer.spec import MoESpec
from ..architecture import Architecture
from ..fields import Fields
from ..windows import full_every, window
from .llama import llama_sizes


def _gpt_oss(f: Fields) -> dict[str, Any]:
    moe = MoESpec(
        n_experts=f.count("num_local_experts", default=f.count("num_experts", default=128)),
        top_k=f.count("num_experts_per_tok", default=4),
        ffn_hidden=f.count("intermediate_size"),
        router_bias=True,
    )
    own = {"moe": moe, "bias": f.flag("attention_bias", default=True), "mlp_bias": True, "attention_sinks": True}
    return llama_sizes(f) | own | {"window": window(f, full_every(2), size=128)}


ARCHITECTURES = (Architecture("gpt_oss", _gpt_oss),)

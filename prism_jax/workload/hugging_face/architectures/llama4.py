"""Llama 4: chunked attention in all layers but every fourth, experts in every or every second layer, one shared expert.

`intermediate_size` is the width of an expert, `intermediate_size_mlp` that of a dense layer. Layers without chunks have no rotary
embedding; query and key norms have no weights.

Source: Hugging Face transformers, models/llama4 (configuration and modeling).
"""

from __future__ import annotations

from typing import Any

from ....bounds import MOST_LAYERS
from ...transformer.spec import MoESpec, WindowSpec
from ...transformer.window import CHUNKED, FULL
from ..architecture import Architecture
from ..fields import Fields
from ..windows import full_every, window
from .llama import llama_sizes


def _llama4(f: Fields) -> dict[str, Any]:
    width = f.count("intermediate_size")
    moe = MoESpec(
        n_experts=f.count("num_local_experts"),
        top_k=f.count("num_experts_per_tok", default=1),
        ffn_hidden=width,
        n_shared=1,
        every=_moe_step(f),
    )
    own = {"moe": moe, "ffn_hidden": f.count("intermediate_size_mlp", default=16384), "window": _window(f)}
    norm = {"qk_norm": f.flag("use_qk_norm", default=True), "qk_norm_weight": "none"}
    return llama_sizes(f) | own | norm | {"bias": f.flag("attention_bias", default=False), "mlp_bias": False}


def _moe_step(f: Fields) -> int:
    """Distance of layers with experts; `moe_layers` may only repeat it."""
    step, n_layers = f.count("interleave_moe_layer_step", default=1), f.count("num_hidden_layers")
    named = f.items("moe_layers")
    if named and (step == 0 or named != list(range(step - 1, min(n_layers, MOST_LAYERS), step))):
        f.fail("moe_layers", named, f"only every {step}. layer (interleave_moe_layer_step) is modelled")
    return step


def _window(f: Fields) -> WindowSpec | None:
    """Layers without rotary embedding attend to everything, the others to their chunk."""
    with_rope = f.items("no_rope_layers")  # 1: has a rotary embedding
    pattern = [CHUNKED if flag else FULL for flag in with_rope]
    every = full_every(f.count("no_rope_layer_interval", default=4), CHUNKED)
    return window(f, pattern or every, size_key="attention_chunk_size", size=8192)


ARCHITECTURES = (Architecture("llama4_text", _llama4),)

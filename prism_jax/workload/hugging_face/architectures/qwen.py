"""Qwen 2, 2.5 and 3, dense and with experts, and the language models of Qwen-VL."""

from __future__ import annotations

from typing import Any

from ....bounds import MOST_LAYERS
from ...transformer.spec import MoESpec, WindowSpec
from ...transformer.window import FULL, SLIDING
from ..architecture import Architecture
from ..fields import Fields
from ..windows import window
from .llama import llama_sizes


def _qwen2(f: Fields) -> dict[str, Any]:
    return llama_sizes(f) | {"qkv_bias": True, "window": _window(f)}


def _qwen3(f: Fields) -> dict[str, Any]:
    own = {"qk_norm": True, "bias": f.flag("attention_bias", default=False), "mlp_bias": False, "window": _window(f)}
    return llama_sizes(f) | own | {"head_dim": f.count("head_dim", default=128)}


def _qwen2_moe(f: Fields) -> dict[str, Any]:
    shared = {"n_shared": 1, "shared_ffn_hidden": f.count("shared_expert_intermediate_size"), "shared_gate": True}
    return _qwen2(f) | {"moe": _moe(f, **shared)}


def _qwen3_moe(f: Fields) -> dict[str, Any]:
    return _qwen3(f) | {"moe": _moe(f)}


def _moe(f: Fields, **shared: Any) -> MoESpec:
    """Experts in every `decoder_sparse_step`-th layer; dense layers that are named must be leading ones."""
    dense = f.items("mlp_only_layers")
    if sorted(map(str, dense)) != sorted(map(str, range(len(dense)))):
        f.fail("mlp_only_layers", dense, "only leading dense layers are modelled, such as [] or [0, 1]")
    return MoESpec(
        n_experts=f.count("num_experts"),
        top_k=f.count("num_experts_per_tok"),
        ffn_hidden=f.count("moe_intermediate_size"),
        n_dense_first=len(dense),
        every=f.count("decoder_sparse_step", default=1),
        **shared,
    )


def _window(f: Fields) -> WindowSpec | None:
    """Layers from `max_window_layers` on, if `use_sliding_window` says so; no published model does."""
    first, n_layers = f.count("max_window_layers", default=28), min(f.count("num_hidden_layers"), MOST_LAYERS)
    found = window(f, [SLIDING if layer >= first else FULL for layer in range(n_layers)])
    return found if f.flag("use_sliding_window", default=False) else None


ARCHITECTURES = (
    Architecture("qwen2", _qwen2),
    Architecture("qwen2_moe", _qwen2_moe),
    Architecture("qwen3", _qwen3),
    Architecture("qwen3_moe", _qwen3_moe),
    *(Architecture(name, _qwen2) for name in ("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text")),
    Architecture("qwen3_vl_text", _qwen3),
    Architecture("qwen3_vl_moe_text", _qwen3_moe),
)

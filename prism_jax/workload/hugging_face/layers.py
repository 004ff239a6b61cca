"""Windows, states in place of attention and experts of a decoder's layers, by the keys that state them.

| key | what it says |
|---|---|
| `layer_types`, `layers_block_type` | attention (full, sliding, chunked, linear), Mamba, MLP or experts, layer by layer |
| `hybrid_override_pattern` | the same in letters: `M` Mamba, `*` attention, `-` MLP, `E` experts |
| `sliding_window`, `sliding_window_pattern`, `use_sliding_window`, `max_window_layers` | windows |
| `attention_chunk_size`, `no_rope_layers` | chunks (Llama 4) |
| `index_topk` | keys that sparse attention picks: as many as a window of that size sees |
| `first_k_dense_replace`, `mlp_only_layers`, `moe_layer_freq`, `moe_layers` | which layers have experts |
| `decoder_sparse_step`, `mlp_layer_types` | the same |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.bounds import MOST_LAYERS
from ..transformer.mixers import (
    ATTENTION,
    ATTENTION_ALONE,
    CHUNKED,
    FULL,
    GATED_LINEAR,
    MIXER,
    MIXER_ALONE,
    SLIDING,
    MixerSpec,
    WindowSpec,
)
from ..transformer.sizes import MoESpec
from .fields import Fields

_REACHES = {
    "full_attention": FULL,
    "attention": FULL,
    "sliding_attention": SLIDING,
    "chunked_attention": CHUNKED,
    "linear_attention": "linear",
    "mamba": "mamba",
    "mamba2": "mamba",
    "mlp": "mlp",
    "moe": "moe",
}
_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_MIXERS, _MLPS = ("linear", "mamba"), ("mlp", "moe")
_FLA_CHUNK = 64  # tokens that the kernels of flash-linear-attention take at once


def layer_sorts(f: Fields) -> list[str]:
    """Returns the kind of every layer in the configuration's list of layers; empty where it has none.

    Raises:
        SpecError: a sort that is not modelled, or another number of layers than `num_hidden_layers` says.
    """
    key, names = "layer_types", f.items("layer_types")
    if letters := f.get("hybrid_override_pattern", ""):
        key, names = "hybrid_override_pattern", [_LETTERS.get(letter, letter) for letter in str(letters)]
    for name in map(str, names):
        if name not in _REACHES:
            f.fail(key, names, f"{name!r} is not modelled, only {', '.join(_REACHES)} are")
    if names and len(names) != min(f.count("num_hidden_layers", len(names)), MOST_LAYERS):
        f.fail(key, names, f"it names {len(names)} layers, and num_hidden_layers is another number")
    sorts = [_REACHES[str(name)] for name in names]
    if not sorts and f.count("linear_num_value_heads", 0):
        every, n_layers = f.count("full_attention_interval", 4), _n_layers(f)
        sorts = [FULL if every and (layer + 1) % every == 0 else "linear" for layer in range(n_layers)]
    if not sorts and f.items("attn_layer_indices"):
        attends = set(map(str, f.items("attn_layer_indices")))
        sorts = [FULL if str(layer) in attends else "mamba" for layer in range(_n_layers(f))]
    return sorts


def _n_layers(f: Fields) -> int:
    return min(f.count("num_hidden_layers"), MOST_LAYERS)


def paired(f: Fields, sorts: Sequence[str]) -> tuple[list[tuple[str, str]], bool]:
    """Layers as pairs (what mixes, MLP behind it), and whether the configuration lists MLPs as layers of their own.

    A mixing layer that is listed takes the MLP that follows it; one that none follows stands alone (MLP is "").
    """
    if not any(sort in _MLPS for sort in sorts):
        return [(sort, "mlp") for sort in sorts], False
    pairs: list[tuple[str, str]] = []
    for sort in sorts:
        if sort not in _MLPS:
            pairs.append((sort, ""))
        elif not pairs or pairs[-1][1]:
            f.fail("layer_types", list(sorts), f"{sort} without attention or Mamba in front of it is not modelled")
        else:
            pairs[-1] = pairs[-1][0], sort
    return pairs, True


def mixer(f: Fields, pairs: Sequence[tuple[str, str]]) -> MixerSpec | None:
    """Layers with a state, None where there are none.

    Source: Hugging Face transformers, `Qwen3NextGatedDeltaNet`, `NemotronHMamba2Mixer`, `BambaMixer`.
    """
    if not any(mixes in _MIXERS for mixes, _ in pairs):
        return None
    places = {
        (True, True): MIXER,
        (True, False): MIXER_ALONE,
        (False, True): ATTENTION,
        (False, False): ATTENTION_ALONE,
    }
    pattern = shortest([places[mixes in _MIXERS, bool(mlp)] for mixes, mlp in pairs])
    if any(mixes == "linear" for mixes, _ in pairs):
        f.read.add("full_attention_interval")
        gated: dict[str, Any] = f.counts(
            n_heads="linear_num_value_heads",
            head_dim="linear_value_head_dim",
            n_groups="linear_num_key_heads",
            state="linear_key_head_dim",
            conv=("linear_conv_kernel_dim", 4),
        )
        return MixerSpec(**gated, kind=GATED_LINEAR, chunk=_FLA_CHUNK, pattern=pattern)
    f.read.update(("mamba_expand", "mamba_d_inner"))  # follow from the heads
    sizes: dict[str, Any] = f.counts(
        n_heads="mamba_num_heads",
        head_dim=("mamba_head_dim", 64),
        n_groups=("mamba_n_groups", 1),
        state=("ssm_state_size", 128),
        conv=("conv_kernel", 4),
        chunk=("mamba_chunk_size", 256),
    )
    return MixerSpec(**sizes, pattern=pattern)


def window(f: Fields, sorts: Sequence[str]) -> WindowSpec | None:
    """Returns the window of the layers that attend to a part of the sequence, None where none does."""
    if n_picked := f.count("index_topk", 0):
        return WindowSpec(n_picked)
    chunk = f.count("attention_chunk_size", 0)
    size = chunk if f.has("no_rope_layers", "no_rope_layer_interval") or CHUNKED in sorts else _window_size(f)
    if not f.flag("use_sliding_window", default=True):
        return None
    reaches = [FULL if sort not in (SLIDING, CHUNKED) else sort for sort in sorts] or _reaches(f)
    has_window = any(reach != FULL for reach in reaches)
    return WindowSpec(size, shortest(reaches)) if size and has_window else None


def _window_size(f: Fields) -> int:
    """Tokens; 0 and -1 switch windows off."""
    return 0 if f.get("sliding_window", 0) == -1 else f.count("sliding_window", 0)


def _reaches(f: Fields) -> Sequence[str]:
    """Returns the attention span of each layer where no list of layers states it."""
    if f.has("no_rope_layers", "no_rope_layer_interval"):  # without rotary embedding: everything; 1 has one
        stated = [CHUNKED if flag else FULL for flag in f.items("no_rope_layers")]
        return stated or full_every(f.count("no_rope_layer_interval", 4), CHUNKED)
    if stated := f.items("hybrid_layer_pattern"):  # MiMo-V2: 1 has a window
        return [SLIDING if flag == 1 else FULL for flag in stated]
    if f.has("use_sliding_window"):  # Qwen: from a layer on
        first = f.count("max_window_layers", default=28)
        return [SLIDING if layer >= first else FULL for layer in range(_n_layers(f))]
    pattern = f.get("sliding_window_pattern", 0)
    if isinstance(pattern, str):  # EXAONE 4: LLLG
        return [SLIDING if letter == "L" else FULL for letter in pattern] or [FULL]
    return full_every(f.count("sliding_window_pattern", 0))


def full_every(n: int, other: str = SLIDING) -> tuple[str, ...]:
    """Every `n`-th layer attends to everything; 0: no layer does, 1: every layer."""
    return (*[other] * (min(n, MOST_LAYERS + 1) - 1), FULL) if n else (other,)


def shortest(pattern: Sequence[str]) -> tuple[str, ...]:
    """The shortest pattern that repeats to `pattern`, whose last repetition may be cut."""
    whole = tuple(pattern)
    period = next(n for n in range(1, len(whole) + 1) if whole[n:] == whole[: len(whole) - n])
    return whole[:period]


def experts(f: Fields, pairs: Sequence[tuple[str, str]], lists_mlps: bool) -> MoESpec | None:
    """The experts of a decoder; None for a dense one (no experts, or one).

    Raises:
        SpecError: layers with experts that are not every n-th one behind leading dense layers.
    """
    n_experts = f.count("num_experts", default=0)
    top_k = f.count("num_experts_per_tok", default=0)
    width = f.count("moe_intermediate_size", f.count("intermediate_size", 0))
    if n_experts <= 1:
        for key in _PLACES:  # under all spellings
            f.get(key, None)
        return None
    first, every = _places(f, pairs, lists_mlps)
    return MoESpec(
        n_experts=n_experts,
        top_k=top_k or f.count("num_experts_per_tok"),
        ffn_hidden=width,
        n_dense_first=first,
        every=every,
        latent=f.count("moe_latent_size", 0),
        router_bias=_has_router_bias(f),
        **_shared(f),
    )


def _shared(f: Fields) -> dict[str, Any]:
    n_shared, width = f.count("n_shared_experts", 0), f.count("shared_expert_intermediate_size", 0)
    has_gate = width > 0 and "shared_expert_intermediate_size" in f.config
    return {"n_shared": n_shared or int(width > 0), "shared_ffn_hidden": width, "shared_gate": has_gate}


def _has_router_bias(f: Fields) -> bool:
    """A bias per expert that balances load: said, or by the scores that go with it."""
    stated = f.get("use_routing_bias", f.get("moe_router_enable_expert_bias", f.get("use_expert_bias", None)))
    if isinstance(stated, bool):
        return stated
    return f.get("topk_method", None) == "noaux_tc"


_PLACES = ("mlp_only_layers", "first_k_dense_replace", "moe_layers", "moe_layer_freq", "decoder_sparse_step",
    "mlp_layer_types", "moe_layer_end_index")  # fmt: skip


def _places(f: Fields, pairs: Sequence[tuple[str, str]], lists_mlps: bool) -> tuple[int, int]:
    """(leading dense layers, every how many layers experts stand)."""
    if lists_mlps:
        known = [(layer, mlp == "moe") for layer, (_, mlp) in enumerate(pairs) if mlp]
        return _fitted(f, "layer_types", len(pairs), known)
    n_layers = _n_layers(f)
    key = "decoder_sparse_step"
    step, first = f.count("decoder_sparse_step", 1), f.count("first_k_dense_replace", 0)
    has = [layer >= first and step > 0 and (layer + 1) % step == 0 for layer in range(n_layers)]
    if isinstance(freq := f.get("moe_layer_freq", 1), list):
        key, has = "moe_layer_freq", [bool(one) for one in freq]
    elif f.count("moe_layer_freq", 1) > 1:
        key, has = "moe_layer_freq", [layer >= first and layer % freq == 0 for layer in range(n_layers)]
    if dense := f.items("mlp_only_layers"):
        names = set(map(str, dense))
        key, has = "mlp_only_layers", [is_there and str(layer) not in names for layer, is_there in enumerate(has)]
    if kinds := f.items("mlp_layer_types"):
        key, has = "mlp_layer_types", [kind == "sparse" for kind in kinds]
    if named := f.items("moe_layers"):
        names = set(map(str, named))
        key, has = "moe_layers", [str(layer) in names for layer in range(n_layers)]
    f.get("moe_layer_end_index", 0)
    return _fitted(f, key, n_layers, list(enumerate(has)))


def _fitted(f: Fields, key: str, n_layers: int, known: Sequence[tuple[int, bool]]) -> tuple[int, int]:
    """The pair of `_places` that has experts exactly in the layers of `known` that are true.

    Raises:
        SpecError: there is none.
    """
    there = [layer for layer, has in known if has]
    if there:
        first = there[0]
        for every in range(1, min(first, len(known)) + 2):
            n_dense = 0 if first == every - 1 else first
            if all(has == (layer >= n_dense and (layer + 1) % every == 0) for layer, has in known):
                return n_dense, every
    value = f.get(key, "...")
    return f.fail(
        key, value, f"only experts in every n-th layer behind leading dense layers are modelled ({n_layers} layers)"
    )

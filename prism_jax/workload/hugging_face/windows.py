"""Windows of a Hugging Face configuration: `sliding_window`, `attention_chunk_size` and `layer_types`."""

from __future__ import annotations

from collections.abc import Sequence

from ...bounds import MOST_LAYERS
from ..transformer.window import CHUNKED, FULL, SLIDING, WindowSpec
from .fields import Fields

_REACH_OF_TYPE = {"full_attention": FULL, "sliding_attention": SLIDING, "chunked_attention": CHUNKED}


def window(f: Fields, pattern: Sequence[str], *, size_key: str = "sliding_window", size: int = 0) -> WindowSpec | None:
    """The window of an architecture, None where no layer has one.

    Args:
        pattern: what the layers attend to where `layer_types` does not say it; repeats.
        size_key: where the tokens of a window stand.
        size: of configurations that leave them out; 0: these have no window.
    """
    n_token = f.count(size_key, default=size)
    pattern = _stated(f) or pattern
    has_window = any(reach != FULL for reach in pattern)
    return WindowSpec(n_token, shortest(pattern)) if n_token and has_window else None


def full_every(n: int, other: str = SLIDING) -> tuple[str, ...]:
    """Every `n`-th layer attends to everything; 0: every layer does."""
    return (*[other] * (min(n, MOST_LAYERS + 1) - 1), FULL)


def shortest(pattern: Sequence[str]) -> tuple[str, ...]:
    """The shortest pattern that repeats to `pattern`, whose last repetition may be cut."""
    whole = tuple(pattern)
    period = next(n for n in range(1, len(whole) + 1) if whole[n:] == whole[: len(whole) - n])
    return whole[:period]


def _stated(f: Fields) -> list[str]:
    """What `layer_types` says of every layer; empty where it is absent."""
    types = f.items("layer_types")
    for name in map(str, types):
        if name not in _REACH_OF_TYPE:
            f.fail("layer_types", types, f"{name!r} is not modelled, only {', '.join(_REACH_OF_TYPE)} are")
    if types and len(types) != min(f.count("num_hidden_layers"), MOST_LAYERS):
        f.fail("layer_types", types, f"it names {len(types)} layers, and num_hidden_layers is another number")
    return [_REACH_OF_TYPE[str(name)] for name in types]

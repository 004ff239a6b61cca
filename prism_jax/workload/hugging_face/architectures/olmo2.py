"""OLMo 2 and 3: norms after attention and MLP, and one over all queries and all keys; OLMo 3 has sliding windows, too.

Source: arXiv 2501.00656 section 3; Hugging Face transformers, models/olmo2 and models/olmo3.
"""

from __future__ import annotations

from typing import Any

from ..architecture import Architecture
from ..fields import Fields
from ..windows import full_every, window
from .llama import llama_sizes


def _olmo2(f: Fields) -> dict[str, Any]:
    bias = f.flag("attention_bias", default=False)
    return llama_sizes(f) | {"qk_norm": True, "qk_norm_weight": "all", "bias": bias, "mlp_bias": False}


def _olmo3(f: Fields) -> dict[str, Any]:
    return _olmo2(f) | {"window": window(f, full_every(4), size=4096)}


ARCHITECTURES = (Architecture("olmo2", _olmo2), Architecture("olmo3", _olmo3))

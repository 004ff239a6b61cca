"""Every `model_type` that can be read: one file per architecture, and one line here."""

from __future__ import annotations

from ...._core.registry import Registry
from ..architecture import Architecture
from ..other_kinds.bert import ARCHITECTURES as BERT
from ..other_kinds.t5 import ARCHITECTURES as T5
from ..other_kinds.vit import ARCHITECTURES as VIT
from .deepseek import ARCHITECTURES as DEEPSEEK
from .gemma import ARCHITECTURES as GEMMA
from .glm4_moe import ARCHITECTURES as GLM4_MOE
from .gpt2 import ARCHITECTURES as GPT2
from .gpt_neox import ARCHITECTURES as GPT_NEOX
from .gpt_oss import ARCHITECTURES as GPT_OSS
from .llama import ARCHITECTURES as LLAMA
from .llama4 import ARCHITECTURES as LLAMA4
from .minimax_m2 import ARCHITECTURES as MINIMAX_M2
from .mpt import ARCHITECTURES as MPT
from .olmo2 import ARCHITECTURES as OLMO2
from .opt import ARCHITECTURES as OPT
from .qwen import ARCHITECTURES as QWEN

_SHIPPED = (
    *LLAMA,
    *QWEN,
    *DEEPSEEK,
    *GEMMA,
    *GPT_OSS,
    *LLAMA4,
    *GLM4_MOE,
    *OLMO2,
    *MINIMAX_M2,
    *GPT2,
    *GPT_NEOX,
    *MPT,
    *OPT,
    *BERT,
    *T5,
    *VIT,
)


ARCHITECTURES: Registry[Architecture] = Registry("model_type", lambda: _SHIPPED)

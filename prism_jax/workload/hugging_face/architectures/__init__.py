"""Every `model_type` that can be read: one file per architecture, and one line here."""

from __future__ import annotations

from collections.abc import Iterator

from ...._core.registry import Registry
from ..architecture import Architecture
from ..other_kinds import bert, t5, vit
from . import deepseek, gemma, glm4_moe, gpt2, gpt_neox, gpt_oss, llama, llama4, minimax_m2, mpt, olmo2, opt, qwen

_FILES = (
    llama,
    qwen,
    deepseek,
    gemma,
    gpt_oss,
    llama4,
    glm4_moe,
    olmo2,
    minimax_m2,
    gpt2,
    gpt_neox,
    mpt,
    opt,
    bert,
    t5,
    vit,
)


def _shipped() -> Iterator[Architecture]:
    for file in _FILES:
        yield from file.ARCHITECTURES


ARCHITECTURES: Registry[Architecture] = Registry("model_type", _shipped)

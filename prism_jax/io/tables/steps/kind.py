"""Which rows of a steps table train a transformer, or adapters of one, on the accelerators: what can be simulated.

The others are no failure of the loader: they measure something else, and the share of supported rows is counted without them.
"""

from __future__ import annotations

import re

from .offload import offloads_optimizer
from .record import StepRecord


class UnsupportedRowError(Exception):
    """The row describes something that cannot be simulated; the text says what, without the row's own numbers."""


_NOT_DECODER = "not a decoder-only transformer"
_HYBRID = "hybrid architecture (state-space or linear attention layers)"
_OFFLOAD = "offload to the host"  # of more than the optimizer
_RELATIVE = "published for relative comparison only"
NO_NUMBER = "no time, token rate or FLOP rate"

OTHER_KINDS = (_NOT_DECODER, _HYBRID, _OFFLOAD, _RELATIVE, NO_NUMBER)

_BY_NAME = (
    (r"\b(bert|roberta|deberta|m?t5|ul2|bart|vit|whisper|wan\d[\d.]*|flux|unet|dlrm|resnet)\b|diffusion", _NOT_DECODER),
    (
        r"nemotron[\s_-]*(3[\s_-]+(\d[\s_-]+)?[a-z]|h\b|nano)|qwen3[\s_-]*next|qwen3\.5|deepseek[\s_-]*v4|mamba|jamba|zamba|bamba"
        r"|rwkv|falcon[\s_-]*h1|kimi[\s_-]*linear|minimax[\s_-]*(01|text)",
        _HYBRID,
    ),
)
_BY_NOTES = (
    (r"\bencoder(\(?-decoder\)?)? model", _NOT_DECODER),
    (r"(?<!no )(?<!without )\boff-?load(?!\s*[:=]\s*(?:no|none|off|false)\b)", _OFFLOAD),
    (r"\buse for relative \w+ only|\busable only as", _RELATIVE),
)


def refuse_other_kinds(record: StepRecord, *, is_encoder: bool = False) -> None:
    """Refuses what is no transformer that is known; `is_encoder`: the row trains an encoder or an encoder-decoder that is.

    Raises:
        UnsupportedRowError: with one of `OTHER_KINDS`, if the row's name or notes say so.
    """
    for rules, text in ((_BY_NAME, record.model_name), (_BY_NOTES, record.notes)):
        for pattern, reason in rules:
            if is_encoder and reason == _NOT_DECODER:
                continue
            if re.search(pattern, text, re.IGNORECASE) and not (reason == _OFFLOAD and offloads_optimizer(record)):
                raise UnsupportedRowError(reason)

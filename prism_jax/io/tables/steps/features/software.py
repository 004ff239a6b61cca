"""What a row of a steps table says of the kernels it ran with; fields it says nothing of stay open."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .....software.choices import EAGER, FUSED, TYPICAL, VENDOR, Software
from ..record import StepRecord

Words = Sequence[tuple[str, Any]]  # regular expressions and what each means; the first found decides

_ATTENTION: Words = (
    (r"fused[\s_-]*softmax|unfused \(megatron", "fused_softmax"),
    (r"unfused|^eager", "eager"),
    (r"flash3|flash-?attention-?3|\bfa3\b|cudnn attention|sdpa cudnn|^te\b|transformer ?engine|aiter", "flash3"),
    (r"flash1|flash-?attention-1|xformers|triton flash", "flash1"),
    (r"flash2|flash-?attention-?2|flash-attention varlen|ring flash", "flash2"),
)
_NORM: Words = ((r"^(eager|false|no)\b", EAGER), (r"\w", FUSED))
_COMPILE: Words = ((r"^none|^no\b|^false", False), (r"^unknown", None), (r"\w", True))
_GRAPHS: Words = ((r"^(no|none|false)\b", "none"), (r"sink|full|step|iteration", "step"), (r"\w", "layers"))
_ROPE: Words = ((r"fused_rope", FUSED),)
_CROSS_ENTROPY: Words = ((r"fused_cross_entropy|fused_linear_cross_entropy|chunked_cross_entropy", FUSED),)
_ACTIVATION: Words = ((r"fused_mlp|fused_dense|fused_swiglu", FUSED),)
_ARXIV = re.compile(r"\b(\d\d)(\d\d)\.\d{5}")
# Results of those who make the device, or who submit its benchmarks with them.
_VENDORS = re.compile(
    r"mlcommons|mlperf|nvidia|nemotron|megatron-moe|2104\.04473|2205\.05198|1909\.08053|2201\.11990|maxtext|tpu-recipes|amd-agi|intel\.com|habana|neuron",
    re.IGNORECASE,
)
_COMPILED_IN_NOTES = re.compile(r"\btorch\.?compile\b(?! (off|disabled|=? ?false))", re.IGNORECASE)


def software_of_record(record: StepRecord) -> Software:
    """Kernels, compilation, graphs and date as the row states them."""
    compiled = _meaning(_COMPILE, record.compile)
    if compiled is None and not record.compile and _COMPILED_IN_NOTES.search(record.notes):
        compiled = True
    return Software(
        attention=_meaning(_ATTENTION, record.attention_kernel),
        norm=_meaning(_NORM, record.norm_fused),
        activation=_meaning(_ACTIVATION, record.features),
        rope=_meaning(_ROPE, record.features),
        cross_entropy=_meaning(_CROSS_ENTROPY, record.features),
        compile=compiled,
        cuda_graphs=_meaning(_GRAPHS, record.cuda_graphs),
        tuning=VENDOR if _VENDORS.search(record.source) else TYPICAL,
        date=_date(record),
    )


def _meaning(words: Words, text: str) -> Any:
    return next((value for pattern, value in words if re.search(pattern, text, re.IGNORECASE)), None)


def _date(record: StepRecord) -> str:
    """Year and month: as stated, else those of the paper."""
    found = _ARXIV.search(record.source)
    return record.date[:7] if record.date else f"20{found[1]}-{found[2]}" if found else ""

"""What a row of a steps table recomputes in the backward pass: its own column, corrected by what its notes say or count."""

from __future__ import annotations

import re

from .record import StepRecord

_WORDS = (
    (r"activation checkpointing=(full ac|true)\b|recompute modules: full\b|full (activation )?recompute", "full"),
    (r"activation checkpointing=(no ac|false)\b|recompute modules: -", "none"),
    (r"(activation|gradient) checkpointing on\b", "full"),
)
_HFU = re.compile(r"\bHFU (\d{1,12}(?:\.\d{1,12})?)")
_MODULES = re.compile(r"recompute modules:?\s{0,9}(\[[^\]]{0,200}\]|[\w, ]{1,200})", re.IGNORECASE)
# Modules whose forward pass is memory-bound or a few per cent of a layer: running them again costs next to nothing.
_CHEAP = {"norm", "layernorm", "act", "moe_act", "mla_up_proj"}
# Recomputing every layer adds a forward pass to forward and backward: HFU/MFU = 4/3; one layer's attention core adds 2 to 5 %.
_FULL_RATIO, _NONE_RATIO = 1.2, 1.015


def recompute_of_record(record: StepRecord) -> str:
    """`none`, `selective` or `full`.

    Notes:
        Words of the notes decide first, then the ratio of HFU to MFU where both are given, then the column. Selective
        recomputation of nothing but norms, activation functions and the up-projection of latent attention counts as none.
        What is unknown is none, on TPU full, which is MaxText's default (`remat_policy: full`).
    """
    for pattern, kind in _WORDS:
        if re.search(pattern, record.notes, re.IGNORECASE):
            return kind
    ratio = _hfu_over_mfu(record)
    if ratio is not None:
        return "full" if ratio > _FULL_RATIO else "none" if ratio < _NONE_RATIO else "selective"
    if record.recompute == "selective" and _recomputes_only_cheap(record.notes):
        return "none"
    if record.recompute in ("none", "selective", "full"):
        return record.recompute
    return "full" if record.gpu.lower().startswith("tpu") else "none"


def _hfu_over_mfu(record: StepRecord) -> float | None:
    found = _HFU.search(record.notes)
    if not found or not record.mfu:
        return None
    hfu = float(found[1])
    return (hfu / 100.0 if hfu > 1.5 else hfu) / record.mfu  # sources print either per cent or fractions


def _recomputes_only_cheap(notes: str) -> bool:
    found = _MODULES.search(notes)
    modules = set(re.findall(r"[a-z_]+", found[1])) if found else set()
    return bool(modules) and modules <= _CHEAP

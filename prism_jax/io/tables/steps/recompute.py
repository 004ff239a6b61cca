"""What a row of a steps table recomputes in the backward pass: its own column, corrected by what its notes say or count."""

from __future__ import annotations

import re

from ....software.usual import Odds, usual_recompute
from .framework import framework_of_record
from .record import StepRecord

_WORDS = (
    (r"activation checkpointing=(full ac|true)\b|recompute modules: full\b|full (activation )?recompute", "full"),
    (r"activation checkpointing=(no ac|false)\b|recompute modules: -", "none"),
    (r"(activation|gradient) checkpointing on\b", "full"),
    (r"\bper-op selective ac\b", "selective_op"),
)
STATED = ("none", "selective", "full")  # what the column says where it says something
_HFU = re.compile(r"\bHFU (\d{1,12}(?:\.\d{1,12})?)")
_MODULES = re.compile(r"recompute modules:?\s{0,9}(\[[^\]]{0,200}\]|[\w, ]{1,200})", re.IGNORECASE)
# Modules whose forward pass is memory-bound or a few per cent of a layer: running them again costs next to nothing.
_CHEAP = {"norm", "layernorm", "act", "moe_act", "mla_up_proj"}
# Recomputing every layer adds a forward pass to forward and backward: HFU/MFU = 4/3; one layer's attention core adds 2 to 5 %.
_FULL_RATIO, _NONE_RATIO = 1.2, 1.015


def recompute_of_record(record: StepRecord) -> str:
    """`none`, `selective`, `selective_op` or `full`.

    Notes:
        Words of the notes decide first, then the ratio of HFU to MFU where both are given, then the column. Selective
        recomputation of nothing but norms, activation functions and the up-projection of latent attention counts as none.
        What is unknown is none, on TPU full, which is MaxText's default (`remat_policy: full`); see `open_recompute`.
    """
    for pattern, kind in _WORDS:
        if re.search(pattern, record.notes, re.IGNORECASE):
            return kind
    ratio = _hfu_over_mfu(record)
    if ratio is not None:
        return "full" if ratio > _FULL_RATIO else "none" if ratio < _NONE_RATIO else "selective"
    if record.recompute == "selective" and _recomputes_only_cheap(record.notes):
        return "none"
    if record.recompute in STATED:
        return record.recompute
    return "full" if _is_tpu(record) else usual_recompute(framework_of_record(record))[0][0]


def open_recompute(record: StepRecord) -> Odds:
    """What it may be where the row says nothing, most likely first; empty where something is said, or nothing else is likely.

    Notes:
        On TPU, and where the source's rates fix it, it is taken as known.
    """
    is_said = any(re.search(pattern, record.notes, re.IGNORECASE) for pattern, _ in _WORDS)
    if is_said or record.recompute in STATED or _is_tpu(record) or _hfu_over_mfu(record) is not None:
        return ()
    odds = usual_recompute(framework_of_record(record))
    return odds if len(odds) > 1 else ()


def _is_tpu(record: StepRecord) -> bool:
    return record.gpu.lower().startswith("tpu")


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

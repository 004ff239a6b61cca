"""Whether a row keeps its optimizer on the host, by the words of its notes."""

from __future__ import annotations

import re

from .record import StepRecord

_OPTIMIZER = re.compile(
    r"zero-offload|optimizer offload\b|offloaded adamw?|cpu offload: yes|cpu offload with fused optimizer",
    re.IGNORECASE,
)
_MORE = re.compile(
    r"param(eter)?s? (cpu )?offload|activations?(/optimizer)?( cpu)? off-?load|may be offloaded", re.IGNORECASE
)


def offloads_optimizer(record: StepRecord) -> bool:
    """The optimizer, and neither parameters nor activations, which are not modelled."""
    return bool(_OPTIMIZER.search(record.notes)) and not _MORE.search(record.notes)

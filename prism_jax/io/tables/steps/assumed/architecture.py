"""An architecture that nobody published, from the number of parameters: the shape that models of that size usually have."""

from __future__ import annotations

import re
from math import log

from ..model import preset_named
from ..record import StepRecord
from .assumption import Assumption, assuming

# 10^9 parameters, hidden size. Source: arXiv 2005.14165 table 2.1 (below 1.5), arXiv 2104.04473 table 1.
SHAPES = (
    (0.125, 768), (0.35, 1024), (0.76, 1536), (1.7, 2304), (3.6, 3072), (7.5, 4096), (18.4, 6144), (39.1, 8192),
    (76.1, 10240), (145.6, 12288), (310.1, 16384), (529.6, 20480), (1008.0, 25600),
)  # fmt: skip
HEAD_DIM = 128
DENSE = 0.6
_EXPERTS = re.compile(r"-a\d{1,9}(\.\d{1,9})?b\b|moe|\dx\d{1,9}(\.\d{1,9})?b|\b\d{1,9}e\b", re.IGNORECASE)
_SIZE = re.compile(r"(?<![\w.])(\d{1,9}(?:\.\d{1,9})?)([mbt])\b", re.IGNORECASE)
_SCALE = {"m": 1e-3, "b": 1.0, "t": 1e3}


def with_architecture(record: StepRecord) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The record with layers, hidden size and heads, if it has none and its number of parameters is known.

    Notes:
        The hidden size is that of the nearest size in `SHAPES`; layers follow from 12 hidden^2 parameters each (attention
        4, plain MLP 8), as a multiple of the pipeline stages. Models with experts are left as they are: by their name, or because
        what a token takes (FLOP/s over tokens/s) is less than `DENSE` of a dense model's 6 FLOPs per parameter.
    """
    size = record.params_b or _size_of(record.model_name)
    is_known = record.n_layers is not None and record.hidden is not None
    if is_known or not size or preset_named(record.model_name) is not None or _has_experts(record, size):
        return record, ()
    hidden = min(SHAPES, key=lambda shape: abs(log(shape[0] / size)))[1]
    stages = record.pp or 1
    n_layers = max(1, round(1e9 * size / (12 * hidden**2 * stages))) * stages
    shape = {"n_layers": n_layers, "hidden": hidden, "ffn": 4 * hidden, "n_heads": max(1, hidden // HEAD_DIM)}
    return assuming(record, f"usual shape of {size:g} billion parameters", shape)


def _has_experts(record: StepRecord, size: float) -> bool:
    return bool(record.n_experts) or bool(_EXPERTS.search(record.model_name)) or _is_sparse(record, size)


def _is_sparse(record: StepRecord, size: float) -> bool:
    if not (record.tflops_per_gpu and record.tokens_per_s_per_gpu):
        return False
    return record.tflops_per_gpu * 1e12 / record.tokens_per_s_per_gpu < DENSE * 6e9 * size


def _size_of(name: str) -> float | None:
    found = _SIZE.search(name.replace("-", " ").replace("_", " "))
    return float(found[1]) * _SCALE[found[2].lower()] if found else None

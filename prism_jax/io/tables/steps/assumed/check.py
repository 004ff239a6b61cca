"""Whether what was assumed agrees with the rates that a row states."""

from __future__ import annotations

from math import exp, log

from .....workload.transformer.spec import TransformerSpec
from ..record import StepRecord

MOST = 1.4  # factor between the FLOPs of a token by the row's two rates and by the model


def rates_disagree(record: StepRecord, model: TransformerSpec) -> str:
    """What is wrong, in words: FLOP/s over tokens/s is no token of this model in any convention; empty if it is one, or unknown.

    Notes:
        Conventions: attention counted whole or causal, with or without a second forward pass.
    """
    if not (record.tflops_per_gpu and record.tokens_per_s_per_gpu and record.seq_len):
        return ""
    stated = record.tflops_per_gpu * 1e12 / record.tokens_per_s_per_gpu
    ratios = [
        log(stated / model.train_flops_per_token(record.seq_len, causal=causal, recompute=recompute))
        for causal in (True, False)
        for recompute in ("none", "full")
    ]
    nearest = min(ratios, key=abs)
    if abs(nearest) <= log(MOST):
        return ""
    return f"FLOP/s over tokens/s is {exp(nearest):.2f} times what a token of the assumed model takes"

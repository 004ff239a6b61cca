"""Words that a person reads for the keys of an Explanation; plain data, no JAX."""

from __future__ import annotations

from ..kernels import KERNEL_CLASSES

_WORDS = {
    "tp_comm": "tp communication",
    "cp_comm": "cp communication",
    "ep_comm": "ep communication",
    "dp_comm": "dp communication",
    "pp_comm": "pp communication",
    "bubble": "pipeline bubble",
    "waiting_for_stragglers": "waiting for stragglers",
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "p2p": "send/receive",
    "useful": "useful steps",
    "failure": "failures, until noticed and nodes are back",
    "rework": "rework of lost steps",
    "restart": "restart, load, warm-up",
    "gemm+attention+memory": "GPUs (all compute)",
}


def words(key: str) -> str:
    """Name of a part of the step, an op class or an owner of variance; classes joined by "+" are named one by one.

    Example:
        >>> words("gemm+memory")
        'GEMM + memory-bound'
    """
    if key in _WORDS:
        return _WORDS[key]
    return " + ".join(_word(part) for part in key.split("+"))


def _word(key: str) -> str:
    if key in KERNEL_CLASSES and (stated := KERNEL_CLASSES.named(key).words):
        return stated
    return _WORDS.get(key, key.replace("_", " "))


def percent(prob: float) -> str:
    """A probability; never 0 or 1, which draws cannot show."""
    return "<1%" if prob < 0.005 else ">99%" if prob > 0.995 else f"{100 * prob:.0f}%"

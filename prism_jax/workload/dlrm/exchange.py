"""How many bytes an all-to-all of pooled vectors moves where devices hold unlike tables: the three size rules.

Device i sends `s_i = (B / n) sum_t D_t bytes` to every other device, and receives
what all others send, `S - s_i` with S their sum.

Source: universal multi-GPU performance model (arXiv 2404.12674), message sizes of unequal all-to-alls.
"""

from __future__ import annotations

from enum import StrEnum

from ..._core.arrays import Values, namespace


class SizeRule(StrEnum):
    """Which bytes decide the time."""

    MAX_OF_MAX = "max_of_max"  # max over devices of the larger of received and sent: links carry both ways at once
    MAX_OF_SUM = "max_of_sum"  # max over devices of received plus sent
    SUM = "sum"  # everything that is sent, shared evenly


def exchange_bytes(own_bytes: Values, rule: SizeRule = SizeRule.MAX_OF_MAX) -> Values:
    """[...] bytes that one device sends to everybody, itself included, in an even all-to-all that takes as long.

    Args:
        own_bytes: [..., device] `s_i`, bytes that the device sends to one other.

    Notes:
        Of an even exchange all three rules give `n s`: `n_bytes` of an all-to-all as `system.network.base` counts it, of which
        (n - 1) / n cross. Both directions of max-of-sum are halved for the same reason.
    """
    xp = namespace(own_bytes)
    own = xp.asarray(own_bytes, dtype=float)
    n = own.shape[-1]
    if n == 1:
        return own[..., 0]
    sent = (n - 1) * own
    received = own.sum(axis=-1, keepdims=True) - own
    match rule:
        case SizeRule.MAX_OF_MAX:
            crossing = xp.maximum(sent, received).max(axis=-1)
        case SizeRule.MAX_OF_SUM:
            crossing = 0.5 * (sent + received).max(axis=-1)
        case SizeRule.SUM:
            crossing = sent.mean(axis=-1)
    return crossing * n / (n - 1)

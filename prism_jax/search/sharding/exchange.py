"""Exchange: seconds of the all-to-all of pooled rows, from what each rank sends to every other.

Ranks send unlike amounts where they hold unlike tables. Which number of bytes the law of an even all-to-all is asked with is a
convention: with s_i what rank i sends to each rank and S their sum,

    max_of_max   max_i max(S - s_i, (n - 1) s_i)   the slowest direction of the slowest rank; links that send and receive at once
    max_of_sum   max_i (S - s_i + (n - 1) s_i)     both directions of the slowest rank share a link
    sum          (n - 1) S                         everything passes one place

Source: size conventions of the universal performance model (arXiv 2404.12674).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..._typing import Floats
from ...errors import DataError
from ...hints import did_you_mean

SizeRule = Callable[[Floats, int], Floats]


def max_of_max(sent_bytes: Floats, n: int) -> Floats:
    """Bytes [...] of the busiest direction of the busiest rank, of what rank i sends to each rank [..., rank]."""
    total = sent_bytes.sum(axis=-1, keepdims=True)
    return np.maximum(total - sent_bytes, (n - 1) * sent_bytes).max(axis=-1)


def max_of_sum(sent_bytes: Floats, n: int) -> Floats:
    """Bytes [...] of both directions of the busiest rank."""
    return sent_bytes.sum(axis=-1) + (n - 2) * sent_bytes.max(axis=-1)


def sum_of_all(sent_bytes: Floats, n: int) -> Floats:
    """Bytes [...] of all ranks together."""
    return (n - 1) * sent_bytes.sum(axis=-1)


SIZE_RULES: dict[str, SizeRule] = {"max_of_max": max_of_max, "max_of_sum": max_of_sum, "sum": sum_of_all}


@dataclass(frozen=True, eq=False)
class Exchange:
    """One all-to-all.

    Attributes:
        law: bytes [...] that pass the busiest link -> seconds [...]; must not fall where there are more bytes.
        rule: name of the size convention.
    """

    law: Callable[[Floats], Floats]
    rule: str = "max_of_max"

    def __post_init__(self) -> None:
        if self.rule not in SIZE_RULES:
            raise DataError(f"all-to-all size rule {self.rule!r} is unknown{did_you_mean(self.rule, SIZE_RULES)}")

    def seconds(self, sent_bytes: Float[np.ndarray, "*cell rank"]) -> Float[np.ndarray, "*cell"]:
        """Seconds of one exchange, of what rank i sends to each rank."""
        n = sent_bytes.shape[-1]
        return self.law(SIZE_RULES[self.rule](sent_bytes, n))

    def least_s(self, total_bytes: float, n: int) -> float:
        """Seconds of the exchange if every rank sent equally much of `total_bytes`: no assignment is faster."""
        return float(self.seconds(np.full((1, n), total_bytes / n))[0])


def per_size(law: Callable[[float], float]) -> Callable[[Floats], Floats]:
    """A law of one number of bytes for arrays: it is asked once per distinct size, 0 bytes take no time.

    The bytes of an exchange are sums of few widths, so that thousands of assignments have few sizes.
    """
    known: dict[float, float] = {0.0: 0.0}

    def of_array(n_bytes: Floats) -> Floats:
        sizes, where = np.unique(n_bytes, return_inverse=True)
        for size in sizes.tolist():
            if size not in known:
                known[size] = law(size)
        return np.array([known[size] for size in sizes.tolist()])[where.reshape(np.shape(n_bytes))]

    return of_array

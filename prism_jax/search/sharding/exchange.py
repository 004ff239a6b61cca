"""Exchange: seconds of the all-to-all of pooled vectors, and of other collectives, for thousands of assignments at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..._typing import Floats
from ...workload.dlrm.exchange import SizeRule, exchange_bytes

Law = Callable[[Floats], Floats]  # bytes [...] as `Network.collective` counts them -> seconds [...]


@dataclass(frozen=True, eq=False)
class Exchange:
    """One all-to-all in which ranks send unlike amounts.

    Attributes:
        law: seconds of an even one; must not fall where there are more bytes.
        rule: which bytes of an uneven one decide.
    """

    law: Law
    rule: SizeRule = SizeRule.MAX_OF_MAX

    def seconds(self, sent_bytes: Float[np.ndarray, "*cell rank"]) -> Float[np.ndarray, "*cell"]:
        """Seconds of one exchange, of what rank i sends to each other rank."""
        return self.law(np.asarray(exchange_bytes(sent_bytes, self.rule)))

    def least_s(self, total_bytes: float, n: int) -> float:
        """Seconds of the exchange if every rank sent equally much of `total_bytes`: no assignment is faster."""
        return float(self.seconds(np.full((1, n), total_bytes / n))[0])


def free(n_bytes: Floats) -> Floats:
    """The law of collectives that take no time."""
    return np.zeros_like(n_bytes)


def per_size(law: Callable[[float], float]) -> Law:
    """A law of one number of bytes for arrays: it is asked once per distinct size, 0 bytes take no time.

    The bytes of an exchange are sums of few widths, so that thousands of assignments have few sizes.
    """
    known: dict[float, float] = {0.0: 0.0}

    def of_array(n_bytes: Floats) -> Floats:
        sizes, where = np.unique(n_bytes, return_inverse=True)
        for size in sizes.tolist():
            if size not in known:
                known[size] = float(law(size))
        return np.array([known[size] for size in sizes.tolist()])[where.reshape(np.shape(n_bytes))]

    return of_array
